//! Removes what is secret, and names of persons, from the texts of a support bundle.

use serde_json::{Map, Value};

use crate::config::MASK;

/// Levels of lines that are shown. Below these, libraries write what they send and receive.
const LEVELS: [&str; 3] = ["ERROR", "WARN", "INFO"];
/// Fields of log lines that name persons, or quote what designs made of payloads.
const PRIVATE_FIELDS: [&str; 2] = ["to", "subject"];
/// Labels of metrics whose values are shown: all are words of the program.
const LABELS: [&str; 12] =
    ["database", "kind", "le", "limit", "method", "outcome", "part", "quantile", "route", "status", "task", "worker"];
/// Signs before which a name in front of an `@` begins.
const BOUNDS: &str = "\"'`<>()[]{},;=|";

/// Returns the text without these secrets, without users and passwords of addresses, and without names of mailboxes.
pub fn text(text: &str, secrets: &[String]) -> String {
    let text = secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK));
    let mut pieces = text.split('@').peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            out.push_str(piece);
            break;
        }
        let is_bound = |sign: char| sign.is_whitespace() || sign.is_control() || BOUNDS.contains(sign);
        let bound = piece.char_indices().rev().find(|(_, sign)| is_bound(*sign));
        let after_bound = bound.map_or(0, |(at, sign)| at + sign.len_utf8());
        let begin = piece[after_bound..].find("://").map_or(after_bound, |at| after_bound + at + 3);
        out.push_str(&piece[..begin]);
        out.push_str(if begin == piece.len() { "" } else { MASK });
        out.push('@');
    }
    out
}

/// Returns the lines of a log in JSON without secrets, persons and payloads, and the number of lines that were left out:
/// those in another form, or below INFO.
pub fn log(lines: &str, secrets: &[String]) -> (String, usize) {
    let (mut out, mut left_out) = (String::new(), 0);
    for line in lines.lines() {
        match serde_json::from_str::<Map<String, Value>>(line).ok().and_then(shown) {
            Some(line) => {
                out.push_str(&text(&line, secrets));
                out.push('\n');
            }
            None => left_out += 1,
        }
    }
    (out, left_out)
}

/// Returns a line as it may be shown, if it may.
fn shown(mut line: Map<String, Value>) -> Option<String> {
    line.get("level").and_then(Value::as_str).filter(|level| LEVELS.contains(level))?;
    for name in PRIVATE_FIELDS {
        if let Some(value) = line.get_mut(name) {
            *value = MASK.into();
        }
    }
    // A panic may quote the text on which it happened.
    if let Some(Value::String(message)) = line.get_mut("message")
        && message.starts_with("panic: ")
    {
        *message = format!("panic: {MASK}");
    }
    serde_json::to_string(&line).ok()
}

/// Returns metrics in Prometheus' format without the values of labels that are not known to be the program's own words.
pub fn metrics(page: &str) -> String {
    let lines = page.lines().map(|line| match (line.starts_with('#'), line.find('{'), line.rfind('}')) {
        (false, Some(begin), Some(end)) if begin < end => {
            format!("{}{{{}}}{}\n", &line[..begin], labels(&line[begin + 1..end]), &line[end + 1..])
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

fn labels(text: &str) -> String {
    let mut shown = Vec::new();
    let mut rest = text;
    while let Some((name, value)) = rest.split_once("=\"") {
        // A quotation mark within a value is written with a backslash.
        let escaped = |at: usize| value[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        let end = value.match_indices('"').map(|(at, _)| at).find(|at| !escaped(*at)).unwrap_or(value.len());
        let name = name.trim_start_matches(',').trim();
        let value_shown = if LABELS.contains(&name) { &value[..end] } else { MASK };
        shown.push(format!("{name}=\"{value_shown}\""));
        rest = value.get(end + 1..).unwrap_or_default();
    }
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_loses_secrets_passwords_and_mailboxes() {
        let secrets = ["hunter2".to_owned()];
        for (given, expected) in [
            ("nothing here", "nothing here"),
            ("the password hunter2 is wrong", "the password *** is wrong"),
            ("cannot reach postgres://isobar:pass@db.example/isobar", "cannot reach postgres://***@db.example/isobar"),
            ("no mailbox: <ana.b+c@example.com>, x@y.org", "no mailbox: <***@example.com>, ***@y.org"),
            ("to=grüße@example.com", "to=***@example.com"),
            ("a @ b", "a @ b"),
            ("@", "@"),
            ("u:a@b@host", "***@***@host"),
        ] {
            assert_eq!(text(given, &secrets), expected);
        }
    }

    #[test]
    fn log_shows_known_levels_in_json_alone() {
        let lines = r#"The first administrator is admin, the password is XYZ
{"level":"INFO","message":"e-mail sent","to":"ana@example.com","subject":"fridge: 9.1"}
{"level":"DEBUG","message":"body","body":"payload"}
{"level":"ERROR","message":"panic: byte index 1 of `payload`","place":"a.rs:1"}
{"level":"WARN","message":"cannot call hunter2"}
[1]
"#;
        let (shown, left_out) = log(lines, &["hunter2".to_owned()]);
        assert_eq!(left_out, 3);
        for word in ["XYZ", "ana", "9.1", "payload", "hunter2"] {
            assert!(!shown.contains(word), "{word} in {shown}");
        }
        assert!(shown.contains("e-mail sent") && shown.contains("a.rs:1") && shown.contains("cannot call ***"));
    }

    #[test]
    fn unknown_label_of_a_metric_is_masked() {
        let page = "# HELP a {b=\"c\"}\na{worker=\"usage\",user=\"a\\\"na\",le=\"0.1\"} 1\nb 2\n";
        let expected = "# HELP a {b=\"c\"}\na{worker=\"usage\",user=\"***\",le=\"0.1\"} 1\nb 2\n";
        assert_eq!(metrics(page), expected);
    }
}
