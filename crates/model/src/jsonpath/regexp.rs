//! Patterns of `match` and `search` (RFC 9485), run by an engine with time linear in the text.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use super::Comparable;

/// Most memory of a compiled pattern, in bytes; a larger one matches nothing.
const COMPILED_BYTES_MAX: usize = 256 << 10;
/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;
/// Cost of compiling a pattern, in steps: that of the largest one.
const COMPILING_STEPS: usize = 10_000;

/// A pattern of `match` or `search`.
#[derive(Debug)]
pub(super) struct Pattern {
    of: Comparable,
    /// True if it must match the whole text, false for a part.
    pub whole: bool,
    /// Compiled on first use, if the pattern is a literal; `None` within if it is invalid.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Makes the pattern of a comparable, for a whole text or for a part.
    pub fn new(of: Comparable, whole: bool) -> Self {
        Self { of, whole, compiled: OnceLock::new() }
    }

    pub fn comparable(&self) -> &Comparable {
        &self.of
    }

    fn is_fixed(&self) -> bool {
        matches!(self.of, Comparable::Literal(_))
    }

    /// Returns the cost of a search in a text, in steps.
    pub fn price(&self, text: &str, pattern: &str) -> usize {
        let is_ready = self.is_fixed() && self.compiled.get().is_some();
        let compiling = if is_ready { 0 } else { COMPILING_STEPS };
        // The slow engine of the crate takes the product of both sizes.
        compiling + 1 + text.len() * (1 + pattern.len() / 16) / 16
    }

    /// Returns true if a text matches; `pattern` is the comparable's value. An invalid pattern matches nothing.
    pub fn is_in(&self, text: &str, pattern: &str) -> bool {
        let is_match = |compiled: &Regex| compiled.is_match(text);
        match self.is_fixed() {
            true => self.compiled.get_or_init(|| compile(pattern, self.whole)).as_ref().is_some_and(is_match),
            false => compile(pattern, self.whole).as_ref().is_some_and(is_match),
        }
    }
}

fn compile(pattern: &str, whole: bool) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return None;
    }
    let translated = translated(pattern);
    let text = if whole { format!("^(?:{translated})$") } else { translated };
    RegexBuilder::new(&text).size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).build().ok()
}

/// Translates RFC 9485 to the syntax of the engine: a point excludes line ends, and `[ & ~` are literal within a class.
fn translated(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len() + 8);
    let (mut in_class, mut escaped) = (false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => {
                text.push(c);
                escaped = false;
                continue;
            }
            '.' if !in_class => {
                text.push_str("[^\\n\\r]");
                continue;
            }
            '[' if in_class => text.push('\\'),
            '&' | '~' if in_class => text.push('\\'),
            '[' => in_class = true,
            ']' => in_class = false,
            '\\' => escaped = true,
            _ => {}
        }
        text.push(c);
    }
    text
}
