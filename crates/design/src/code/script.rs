//! The code of a function as a classic script: what its top level declares, and how it is wrapped to be run again and again.
//!
//! A script's top level declares names of the global object. Code runs as the body of a function instead, which is what
//! makes it cheap to run anew for every call; the global object then has accessors to the names that are declared there.

use std::time::Duration;

use super::engine::Engine;
use crate::held_bytes::HeldBytes as _;

/// Names that are tried for what the code's own names must not hide.
const NAMES_TRIED: usize = 16;

/// How code gives its functions away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By their names, as the LoRaWAN convention has it.
    Plain,
    /// As members of `exports`, as a module of Node does.
    Exports,
}

/// What a look at a script tells of its top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The names that `var` and `function` declare there.
    pub(crate) names: Vec<String>,
    pub(crate) is_strict: bool,
}

/// A script that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: Box<str>,
    form: Form,
    is_strict: bool,
    /// The names that the global object shows; none, where nobody would see it.
    shared: Vec<String>,
}

impl Script {
    /// Looks at a text: whether it is a script, and what that declares. Nothing of it runs.
    pub(crate) fn read(engine: &Engine, text: &str, time: Duration) -> Result<Self, String> {
        if let Some(line) = text.lines().position(|line| line.contains('\0')) {
            return Err(format!("has the character U+0000 in line {}: write it as \\u0000", line + 1));
        }
        // A first line for a shell is a comment of the script.
        let text = match text.strip_prefix("#!") {
            Some(rest) => format!("//{rest}"),
            None => text.to_owned(),
        };
        let Survey { names, is_strict } = engine.survey(&text, time)?;
        let is_seen = may_see_the_global_object(&text) || engine.has_any_of(&names, time)?;
        let shared = if is_seen { names } else { Vec::new() };
        Ok(Self { text: text.into(), form: Form::Plain, is_strict, shared })
    }

    /// This script as a module of Node.
    pub(crate) fn as_module(&self) -> Self {
        Self { form: Form::Exports, ..self.clone() }
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.held_bytes() + self.shared.held_bytes()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shared(&self) -> &[String] {
        &self.shared
    }

    /// The script as a function that runs its top level and gives the function of that name. Lines keep their numbers.
    pub(crate) fn wrapped(&self, entry: &str) -> String {
        let (text, begin) = (&self.text, unused_name(&self.text));
        let named = |name: &str| format!("typeof {name}==='function'?{name}:");
        let answer = match self.form {
            Form::Plain => format!("{}undefined", named(entry)),
            // Where the code stands: it may have declared these names itself.
            Form::Exports => {
                let (module, exports) = (format!("module.exports.{entry}"), format!("exports.{entry}"));
                let (module, exports) = (named(&module), named(&exports));
                format!(
                    "{}typeof module==='object'&&module&&module.exports&&{module}typeof exports==='object'&&exports&&{exports}undefined",
                    named(entry)
                )
            }
        };
        // Two functions: the code's own is made for each call, so that what it hangs on `arguments.callee` goes with it.
        let (strict, shares) = match self.shared.is_empty() {
            true => ("", String::new()),
            false => (if self.is_strict { "'use strict';" } else { "" }, self.sharing(&begin)),
        };
        let plain = format!(
            "(function ({begin}) {{return (function () {{{strict}{shares}{text}\n;return {answer}}}).call(this)}})"
        );
        match self.form {
            Form::Plain => plain,
            Form::Exports => format!(
                "(function ({begin}) {{var module={{exports:{{}}}},exports=module.exports;return {plain}.call(this,{begin})}})"
            ),
        }
    }

    /// What hands the reading and the writing of the names to the function `begin`.
    fn sharing(&self, begin: &str) -> String {
        let cases = |case: &dyn Fn(usize, &String) -> String| -> String {
            self.shared.iter().enumerate().map(|(at, name)| case(at, name)).collect()
        };
        let reads = cases(&|at, name| format!("case {at}:return {name};"));
        let writes = cases(&|at, name| format!("case {at}:{name}={begin}2;break;"));
        // Arrows, as these have no `arguments` of their own.
        format!(
            "{begin}(({begin}1)=>{{switch({begin}1){{{reads}}}}},({begin}1,{begin}2)=>{{switch({begin}1){{{writes}}}}});"
        )
    }
}

/// Whether code has a way to the global object: by `this`, by `globalThis`, or by either in other letters.
fn may_see_the_global_object(text: &str) -> bool {
    ["this", "This", "\\u"].iter().any(|part| text.contains(part))
}

/// A name that nothing of the text is called by. Whoever uses up all that are tried has code that fails, as it is wrapped in
/// names of its own.
fn unused_name(text: &str) -> String {
    let mut names = (0..NAMES_TRIED).map(|number| format!("begin_{number}_"));
    names.find(|name| !text.contains(name.as_str())).unwrap_or_else(|| "begin_".to_owned())
}

/// Whether the word `Buffer` stands in the code, by itself.
pub(crate) fn names_buffer(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    text.match_indices("Buffer").any(|(at, _)| !text[..at].ends_with(is_word))
}
