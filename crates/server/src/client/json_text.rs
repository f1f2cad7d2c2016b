//! Formatting of JSON that keeps the order of keys and the digits of numbers.

/// Most levels by which a line is indented: no JSON that a server of Isobar accepts is deeper. Each level of deeper text
/// would cost as many spaces as there are levels above it, which takes all memory.
const INDENTED_LEVELS_MAX: usize = 64;

/// Formats valid JSON with a line per value, indented by two spaces.
pub fn indent(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if in_string {
            out.push(character);
            in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
            continue;
        }
        match character {
            ' ' | '\n' | '\r' | '\t' => {}
            '{' | '[' => {
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                out.push(character);
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other => {
                in_string = other == '"';
                out.push(other);
            }
        }
    }
    out.push('\n');
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth.min(INDENTED_LEVELS_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_keeps_order_digits_and_strings() {
        let text = r#"{"z":[0.1000, 18446744073709551616],"a":"{,:\" \\","e":{ },"f":[]}"#;
        let expected = "{\n  \"z\": [\n    0.1000,\n    18446744073709551616\n  ],\n  \"a\": \"{,:\\\" \\\\\",\n  \"e\": {},\n  \"f\": []\n}\n";
        assert_eq!(indent(text), expected);
        assert_eq!(indent(expected), expected);
    }

    #[test]
    fn deep_json_grows_by_a_constant_factor() {
        let levels = 20_000;
        let text = format!("{}0{}", "[".repeat(levels), "]".repeat(levels));
        let line_bytes_max = 2 * INDENTED_LEVELS_MAX + 2;
        assert!(indent(&text).len() <= text.len() * line_bytes_max);
    }
}
