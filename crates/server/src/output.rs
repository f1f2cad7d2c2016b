//! The one way out: everything that a command writes to standard output or standard error, progress bars of `indicatif`
//! excepted, passes here. Clippy denies the others.
//!
//! To a pipe or a file each byte goes as it is. On a terminal, what the terminal would act upon (control characters, and those
//! that change the direction of text) is written as `\uXXXX`: strangers write the names and payloads that commands show. JSON has
//! the same escape, so JSON on a terminal is still the same JSON.

#![allow(clippy::disallowed_methods, reason = "these are the one way out")]

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use isobar_model::quote::is_command;

/// Returns true if standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns true if standard error is a terminal.
pub fn is_error_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes to standard output.
pub fn print(text: &str) -> io::Result<()> {
    let text = if is_terminal() { shown(text) } else { Cow::Borrowed(text) };
    write_to(io::stdout().lock(), text.as_bytes())
}

/// Writes a line for people to standard error, which may be closed.
pub fn note(line: &str) {
    note_with(line, "\n");
}

/// Writes a text with this end to standard error: a line break, nothing, or a carriage return before the next progress.
pub fn note_with(text: &str, end: &str) {
    let text = if is_error_terminal() { shown(text) } else { Cow::Borrowed(text) };
    let _ = write_to(io::stderr().lock(), format!("{text}{end}").as_bytes());
}

/// Writes a line of the log, which is whole and escaped, to standard error.
pub fn write_log(line: &[u8]) -> io::Result<()> {
    write_to(io::stderr().lock(), line)
}

fn write_to(mut out: impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

/// Standard output for text that comes in pieces, which may end within a character.
#[derive(Default)]
pub struct Pieces {
    /// The start of a character, or a carriage return whose line break may come, on a terminal.
    rest: Vec<u8>,
}

impl Pieces {
    /// Writes the next piece.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        if !is_terminal() {
            return write_to(io::stdout().lock(), piece);
        }
        let text = self.whole_text(piece);
        write_to(io::stdout().lock(), shown(&text).as_bytes())
    }

    /// Returns the text up to the end of the last whole character; what is behind that stays for the next piece.
    fn whole_text(&mut self, piece: &[u8]) -> String {
        self.rest.extend_from_slice(piece);
        let broken = self.rest.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_start = std::str::from_utf8(broken).is_err_and(|error| error.error_len().is_none());
        let end = match self.rest.last() {
            Some(b'\r') => self.rest.len() - 1,
            _ if is_start => self.rest.len() - broken.len(),
            _ => self.rest.len(),
        };
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        String::from_utf8_lossy(&whole).into_owned()
    }
}

/// Returns the text as a terminal may have it. Line breaks and tabs stay.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| is_command(character) && !matches!(character, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => out.push(character),
            '\r' if characters.peek() == Some(&'\n') => {}
            character => push_escaped(&mut out, character),
        }
    }
    Cow::Owned(out)
}

/// Appends a character, as JSON's escape if a terminal acts upon it.
pub fn push_escaped(out: &mut String, character: char) {
    if is_command(character) {
        // All of them lie below U+10000.
        out.push_str(&format!("\\u{:04x}", u32::from(character)));
    } else {
        out.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_is_the_same_json_without_commands() {
        let value = serde_json::json!({"a\u{202e}b": "\u{1b}[2J \u{7f}\u{80}\u{9b}31m\u{61c}\u{200e}\u{2066} ü\n"});
        let shown = shown(&value.to_string()).into_owned();
        assert!(!shown.chars().any(is_command), "{shown:?}");
        assert!(shown.contains("\\u009b31m") && shown.contains("a\\u202eb") && shown.contains('ü'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn lines_and_tabs_of_a_text_stay_on_a_terminal() {
        assert_eq!(shown("a\tb\r\nc\rd\n"), "a\tb\nc\\u000dd\n");
        assert!(matches!(shown("plain\n"), Cow::Borrowed("plain\n")));
    }

    #[test]
    fn text_in_pieces_is_shown_like_the_whole() {
        let text = "name\r\n\u{9b}31m,ü,\u{202e}東\r\nx\r\n";
        for size in 1..text.len() {
            let mut pieces = Pieces::default();
            let texts: String =
                text.as_bytes().chunks(size).map(|piece| shown(&pieces.whole_text(piece)).into_owned()).collect();
            assert_eq!(texts, shown(text), "pieces of {size}");
        }
        assert_eq!(Pieces::default().whole_text(b"a\x9b31m"), "a\u{fffd}31m");
    }
}
