//! Runs published codecs through the real `function` element with the examples that they come with.

#![allow(dead_code, reason = "each program uses a part of this")]

mod layouts;
pub mod trial;
pub mod yaml;

use std::fmt;
use std::path::Path;

use layouts::Codec;

/// Globals that codecs find elsewhere and not here; code that needs one cannot run.
const ELSEWHERE: [&str; 22] = [
    "require",
    "process",
    "global",
    "window",
    "document",
    "$",
    "jQuery",
    "self",
    "fetch",
    "XMLHttpRequest",
    "setTimeout",
    "setInterval",
    "setImmediate",
    "TextDecoder",
    "TextEncoder",
    "atob",
    "btoa",
    "URL",
    "crypto",
    "Intl",
    "Proxy",
    "WebAssembly",
];

/// Outcome of a codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All examples return what they promise.
    Same,
    /// A codec without examples.
    WithoutExamples,
    /// Some examples differ, or it is not a codec.
    Differs,
    /// Needs this missing global.
    Needs(String),
    /// Its files cannot be read.
    Unread,
}

/// A codec that was run.
#[derive(Debug)]
pub struct Tried {
    /// Path in the collection.
    pub codec: String,
    /// Outcome.
    pub state: State,
    /// Number of examples.
    pub examples: usize,
    /// Number of examples that differ.
    pub differing: usize,
    /// Differences by example, or the fault of the whole.
    pub told: Vec<String>,
}

/// A collection that was run.
#[derive(Debug, Default)]
pub struct Report {
    /// Codecs, sorted by name.
    pub codecs: Vec<Tried>,
}

/// Runs every codec of a folder, and reports each as it goes. See [`layouts::read`] for where it finds them.
pub fn try_all(folder: &Path, mut tell: impl FnMut(&Tried)) -> Report {
    let codecs = layouts::read(folder).into_iter().map(|codec| {
        let tried = Tried::of(codec);
        tell(&tried);
        tried
    });
    Report { codecs: codecs.collect() }
}

impl Tried {
    fn of(codec: Codec) -> Self {
        let Codec { name, code, examples, faults } = codec;
        let mut tried = Self { codec: name, state: State::Same, examples: examples.len(), differing: 0, told: faults };
        let code = match code {
            Ok(code) if tried.told.is_empty() => code,
            Ok(_) => return Self { state: State::Unread, ..tried },
            Err(why) => {
                // If the examples already show the fault, there may be no code to check.
                if tried.told.is_empty() {
                    tried.told.push(why);
                }
                return Self { state: State::Unread, ..tried };
            }
        };
        match trial::plan(&code) {
            Err(faults) => {
                tried.state = needed(&faults, &code).map_or(State::Differs, State::Needs);
                tried.told.push(faults);
            }
            Ok(plan) => {
                // Twice: the second time in a used engine.
                for round in 0..2 {
                    for example in &examples {
                        let Some(difference) = trial::difference(&plan, example) else { continue };
                        tried.differing += usize::from(round == 0 || !tried.told.contains(&difference));
                        if !tried.told.contains(&difference) {
                            tried.told.push(difference);
                        }
                    }
                }
                tried.state = match tried.told.first() {
                    Some(first) => needed(first, &code).map_or(State::Differs, State::Needs),
                    None if examples.is_empty() => State::WithoutExamples,
                    None => State::Same,
                };
            }
        }
        tried
    }

    /// Returns true if nothing is wrong with it.
    pub fn is_sound(&self) -> bool {
        matches!(self.state, State::Same | State::WithoutExamples)
    }
}

/// Returns the missing global that code needs, by the error message or the code itself.
fn needed(message: &str, code: &str) -> Option<String> {
    let missing = message.split_once(" is not defined").and_then(|(before, _)| {
        let name = before.rsplit([' ', ':', '\'']).find(|word| !word.is_empty())?;
        ELSEWHERE.contains(&name).then(|| name.to_owned())
    });
    let is_module = |line: &str| {
        line.starts_with("import ")
            || line.starts_with("import{")
            || line.starts_with("export ")
            || line.starts_with("export{")
    };
    missing.or_else(|| {
        (message.contains("SyntaxError") && code.lines().any(is_module)).then(|| "import or export".to_owned())
    })
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { codec, state, examples, differing, told } = self;
        match state {
            State::Same => write!(f, "{codec}: {examples} example(s), all the same")?,
            State::WithoutExamples => write!(f, "{codec}: has no example")?,
            State::Differs => write!(f, "{codec}: {differing} of {examples} example(s) differ")?,
            State::Needs(what) => write!(f, "{codec}: needs {what}, which is not there")?,
            State::Unread => write!(f, "{codec}: cannot be read")?,
        }
        told.iter().try_for_each(|told| write!(f, "\n    {}", told.replace('\n', " ")))
    }
}

impl fmt::Display for Report {
    /// Writes the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |is: &dyn Fn(&State) -> bool| self.codecs.iter().filter(|codec| is(&codec.state)).count();
        let sum = |of: fn(&Tried) -> usize| -> usize { self.codecs.iter().map(of).sum() };
        writeln!(f, "{} codec(s), {} example(s)", self.codecs.len(), sum(|codec| codec.examples))?;
        writeln!(f, "  {} give what all their examples say", count(&|state| *state == State::Same))?;
        let differing = sum(|codec| if codec.state == State::Differs { codec.differing } else { 0 });
        writeln!(f, "  {} differ, in {differing} example(s)", count(&|state| *state == State::Differs))?;
        writeln!(f, "  {} need what is not there", count(&|state| matches!(state, State::Needs(_))))?;
        writeln!(f, "  {} have no example", count(&|state| *state == State::WithoutExamples))?;
        write!(f, "  {} cannot be read", count(&|state| *state == State::Unread))
    }
}
