//! Code of a function as a classic script: what its top level declares, and its wrapper that makes it repeatable.
//!
//! A script's top level declares names of the global object. Code runs as the body of a function instead, which makes
//! it cheap to run again for every call; the global object then has accessors for the declared names.

use std::time::Duration;

use super::engine::Engine;
use crate::value::held_bytes::HeldBytes as _;

/// Most names that are tried for the wrapper's variables.
const NAMES_TRIED: usize = 16;

/// Way in which code exports its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Under their names, as in the LoRaWAN convention.
    Plain,
    /// Members of `exports`, as in a module of Node.
    Exports,
}

/// Properties of a script's top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Names that `var` and `function` declare there.
    pub(crate) names: Vec<String>,
    pub(crate) is_strict: bool,
}

/// A checked script.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: Box<str>,
    form: Form,
    is_strict: bool,
    /// Names that the global object shows; empty if the code cannot see it.
    shared: Vec<String>,
}

impl Script {
    /// Checks that a text is a script, and finds what it declares, without running it.
    pub(crate) fn read(engine: &Engine, text: &str, time: Duration) -> Result<Self, String> {
        if let Some(line) = text.lines().position(|line| line.contains('\0')) {
            return Err(format!("has the character U+0000 in line {}: write it as \\u0000", line + 1));
        }
        // A shebang line becomes a comment.
        let text = match text.strip_prefix("#!") {
            Some(rest) => format!("//{rest}"),
            None => text.to_owned(),
        };
        let Survey { names, is_strict } = engine.survey(&text, time)?;
        let is_seen = may_see_the_global_object(&text) || engine.has_any_of(&names, time)?;
        let shared = if is_seen { names } else { Vec::new() };
        Ok(Self { text: text.into(), form: Form::Plain, is_strict, shared })
    }

    /// Returns this script as a module of Node.
    pub(crate) fn as_module(&self) -> Self {
        Self { form: Form::Exports, ..self.clone() }
    }

    /// Returns its size in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.held_bytes() + self.shared.held_bytes()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shared(&self) -> &[String] {
        &self.shared
    }

    /// Wraps the script in a function that runs its top level and returns the function of that name. Line numbers stay
    /// the same.
    pub(crate) fn wrapped(&self, entry: &str) -> String {
        let (text, begin) = (&self.text, unused_name(&self.text));
        let named = |name: &str| format!("typeof {name}==='function'?{name}:");
        let answer = match self.form {
            Form::Plain => format!("{}undefined", named(entry)),
            // Evaluated within the code, which may declare these names itself.
            Form::Exports => {
                let (module, exports) = (format!("module.exports.{entry}"), format!("exports.{entry}"));
                let (module, exports) = (named(&module), named(&exports));
                format!(
                    "{}typeof module==='object'&&module&&module.exports&&{module}typeof exports==='object'&&exports&&{exports}undefined",
                    named(entry)
                )
            }
        };
        // Two functions: the inner one is made for each call, so that properties set on `arguments.callee` are dropped
        // with it.
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

    /// Returns the code that passes accessors of the names to the function `begin`.
    fn sharing(&self, begin: &str) -> String {
        let cases = |case: &dyn Fn(usize, &String) -> String| -> String {
            self.shared.iter().enumerate().map(|(at, name)| case(at, name)).collect()
        };
        let reads = cases(&|at, name| format!("case {at}:return {name};"));
        let writes = cases(&|at, name| format!("case {at}:{name}={begin}2;break;"));
        // Arrow functions, which have no `arguments` of their own.
        format!(
            "{begin}(({begin}1)=>{{switch({begin}1){{{reads}}}}},({begin}1,{begin}2)=>{{switch({begin}1){{{writes}}}}});"
        )
    }
}

/// Returns true if code can reach the global object: by `this`, by `globalThis`, or by an escaped form of them.
fn may_see_the_global_object(text: &str) -> bool {
    ["this", "This", "\\u"].iter().any(|part| text.contains(part))
}

/// Returns a name that does not occur in the text. A text with all names that are tried gets a wrapper that fails, as
/// it collides with its own names.
fn unused_name(text: &str) -> String {
    let mut names = (0..NAMES_TRIED).map(|number| format!("begin_{number}_"));
    names.find(|name| !text.contains(name.as_str())).unwrap_or_else(|| "begin_".to_owned())
}

/// Returns true if the word `Buffer` occurs in the code.
pub(crate) fn names_buffer(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    text.match_indices("Buffer").any(|(at, _)| !text[..at].ends_with(is_word))
}
