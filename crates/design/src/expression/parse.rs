//! Parses an expression to a syntax tree, by the parser of the `cel` crate.
//!
//! That parser recurses at every bracket and operator, so nesting is limited before, and it runs [`on_a_large_stack`].
//! If it panics nevertheless, that is a fault of the expression.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::IdedExpr;

/// Longest expression, in characters.
pub(crate) const EXPRESSION_CHARS_MAX: usize = 10_000;
/// Deepest nesting of brackets and conditionals. The parser itself stops at 96.
const NESTING_MAX: usize = 64;
/// Stack size in bytes for parsing and compiling: enough, even in a debug build, for the longest chain of operators
/// within the deepest brackets.
const STACK_BYTES: usize = 64 << 20;
/// Most characters of a parser's message that are shown.
const PARSER_MESSAGE_CHARS_MAX: usize = 200;

/// Runs deeply recursive work on a thread of its own. Returns `None` if it panics or no thread can be started.
pub(crate) fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("design".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

/// Parses an expression without expanding macros; the error says what is wrong.
pub(crate) fn parse(source: &str) -> Result<IdedExpr, String> {
    if source.chars().nth(EXPRESSION_CHARS_MAX).is_some() {
        return Err(format!("an expression has at most {EXPRESSION_CHARS_MAX} characters"));
    }
    if nesting(source) > NESTING_MAX {
        return Err(format!("an expression is nested at most {NESTING_MAX} deep"));
    }
    let parser = || cel::Env::default().parser().enable_optional_syntax(false).parse(source);
    match catch_unwind(AssertUnwindSafe(parser)) {
        Ok(Ok(tree)) => Ok(tree),
        Ok(Err(errors)) => Err(errors.errors.first().map_or_else(|| "is no expression".to_owned(), message_of)),
        Err(_) => Err("is no expression".to_owned()),
    }
}

fn message_of(error: &cel::ParseError) -> String {
    let message: String = error.msg.chars().take(PARSER_MESSAGE_CHARS_MAX).collect();
    let message = message.strip_prefix("Syntax error: ").unwrap_or(&message);
    format!("{message} (line {}, column {})", error.pos.0, error.pos.1)
}

/// Returns the depth of nested brackets and conditionals. A conditional extends to the next comma or closing bracket.
fn nesting(source: &str) -> usize {
    let mut rest = source;
    let (mut deepest, mut depth) = (0, 0_usize);
    let mut conditionals: Vec<usize> = vec![0];
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        match next {
            '"' | '\'' => length = string_length(rest, is_raw(source, rest)),
            '/' if rest.starts_with("//") => length = rest.find('\n').unwrap_or(rest.len()),
            '(' | '[' | '{' => {
                depth += 1;
                conditionals.push(0);
            }
            '?' => {
                depth += 1;
                if let Some(here) = conditionals.last_mut() {
                    *here += 1;
                }
            }
            ',' => depth -= conditionals.last_mut().map_or(0, std::mem::take),
            ')' | ']' | '}' if conditionals.len() > 1 => depth -= 1 + conditionals.pop().unwrap_or(0),
            _ => {}
        }
        deepest = deepest.max(depth);
        rest = &rest[length..];
    }
    deepest
}

/// Returns true if the string at the beginning of `rest` has the prefix of raw strings.
fn is_raw(source: &str, rest: &str) -> bool {
    let before = &source.as_bytes()[..source.len() - rest.len()];
    let prefix = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_');
    let letters: Vec<u8> = prefix.map(u8::to_ascii_lowercase).collect();
    matches!(letters.as_slice(), [b'r'] | [b'r', b'b'])
}

/// Returns the length in bytes of the string at the beginning of `text`, including its quotes.
fn string_length(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let (open, close) = if text.starts_with(&triple) { (3, triple.as_str()) } else { (1, quote) };
    let mut at = open;
    while let Some(next) = text[at..].chars().next() {
        if text[at..].starts_with(close) {
            return at + close.len();
        }
        at += next.len_utf8();
        if next == '\\' && !raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}
