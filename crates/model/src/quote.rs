//! Words of strangers, made fit to stand in an error, a line of the log, or on a terminal.

use std::error::Error;

/// Longest quote of what somebody else wrote, in characters: another server's answer, a file's contents, a database's message.
pub const QUOTE_CHARACTERS_MAX: usize = 200;
/// Characters of the end that a cut quote shows.
const QUOTE_TAIL: usize = 60;

/// Returns true if a terminal acts upon the character instead of showing it: control characters (C0, DEL, C1), and those that
/// change the direction of text.
pub fn is_command(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Returns the text in one line, with U+FFFD for each character that a terminal acts upon.
pub fn plain(text: &str) -> String {
    text.chars().map(plain_character).collect()
}

/// Quotes words of strangers: [`plain`], without space around them, and of more than [`QUOTE_CHARACTERS_MAX`] only the beginning
/// and the end, which often holds the point.
pub fn quote(text: &str) -> String {
    let text = text.trim();
    let plain = || text.chars().map(plain_character);
    if plain().nth(QUOTE_CHARACTERS_MAX).is_none() {
        return plain().collect();
    }
    let tail_at = text.char_indices().rev().nth(QUOTE_TAIL - 1).map_or(0, |(at, _)| at);
    let head = plain().take(QUOTE_CHARACTERS_MAX - QUOTE_TAIL - 1);
    head.chain(['…']).chain(text[tail_at..].chars().map(plain_character)).collect()
}

fn plain_character(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => ' ',
        character if is_command(character) => char::REPLACEMENT_CHARACTER,
        character => character,
    }
}

/// Formats an error with its causes in one text. A cause that the text before it ends with is not repeated.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_its_length_does_not_matter() {
        let long = format!("begin {} end", "é".repeat(15 << 20));
        let quoted = quote(&long);
        assert_eq!(quoted.chars().count(), QUOTE_CHARACTERS_MAX);
        assert!(quoted.starts_with("begin ééé") && quoted.contains("é…é") && quoted.ends_with("ééé end"), "{quoted}");
        let most = "é".repeat(QUOTE_CHARACTERS_MAX);
        assert_eq!(quote(&most), most);
    }

    #[test]
    fn what_a_terminal_acts_upon_is_replaced() {
        assert_eq!(
            quote(" a\u{1b}[2J\r\n b\u{9b}c\u{7f}d\u{202e}e\u{2069}f\u{61c}\u{200f} "),
            "a\u{fffd}[2J   b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}\u{fffd}"
        );
        assert_eq!(quote("naïve — 東京 👩‍🚀"), "naïve — 東京 👩‍🚀");
    }
}
