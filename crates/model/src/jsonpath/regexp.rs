//! The patterns of `match` and `search` (RFC 9485), run by an engine whose time is linear in the text.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use super::Comparable;

/// Most memory that a compiled pattern may take, in bytes; a larger one matches nothing.
const COMPILED_BYTES_MAX: usize = 256 << 10;
/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;
/// What it costs to compile a pattern, in steps: as long as the largest one may take.
const COMPILING_STEPS: usize = 10_000;

/// A pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    of: Comparable,
    /// Of a whole text, rather than of a part of one.
    pub whole: bool,
    /// Compiled when it is first needed, if it stands in the path itself; none in it when it is no pattern.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// The pattern that a comparable gives, for a whole text or for a part of one.
    pub fn new(of: Comparable, whole: bool) -> Self {
        Self { of, whole, compiled: OnceLock::new() }
    }

    pub fn comparable(&self) -> &Comparable {
        &self.of
    }

    fn is_fixed(&self) -> bool {
        matches!(self.of, Comparable::Literal(_))
    }

    /// What it costs to look for it in a text, in steps.
    pub fn price(&self, text: &str, pattern: &str) -> usize {
        let is_ready = self.is_fixed() && self.compiled.get().is_some();
        let compiling = if is_ready { 0 } else { COMPILING_STEPS };
        // The slow engine of the crate takes the pattern's size times the text's.
        compiling + 1 + text.len() * (1 + pattern.len() / 16) / 16
    }

    /// Whether it is found in a text; `pattern` is what its comparable gives. What is no pattern is found nowhere.
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

/// What RFC 9485 writes, as the engine writes it: a point is no line end, and `[ & ~` mean nothing within a class.
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
