//! Paths into JSON in parameters and designs: `payload.a.b` or, for names with other characters, `payload["a.b"]["c
//! d"]` (contract: Data). A quoted name is a JSON string; both forms mix.

use crate::json::{self, Json};

/// Delimiters of a quoted name.
const OPENS: &str = "[\"";
const CLOSES: &str = "\"]";

/// Returns the keys of a path beneath a member; `None` if it is malformed, or not beneath it.
pub fn path_beneath(member: &str, path: &str) -> Option<Vec<String>> {
    let (mut keys, mut rest) = (Vec::new(), path.strip_prefix(member)?);
    while !rest.is_empty() {
        let key;
        (key, rest) = match rest.strip_prefix('.') {
            Some(plain) => plain_key(plain)?,
            None => quoted_key(rest)?,
        };
        keys.push(key);
    }
    (!keys.is_empty()).then_some(keys)
}

/// Parses a key without quotes, which ends where the next key begins.
fn plain_key(text: &str) -> Option<(String, &str)> {
    let end = [text.find('.'), text.find(OPENS)].into_iter().flatten().min().unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    (!key.is_empty()).then(|| (key.to_owned(), rest))
}

/// Parses a key in brackets and quotes.
fn quoted_key(text: &str) -> Option<(String, &str)> {
    let (key, rest) = text.split_at(quoted_length(text)?);
    match json::parse(key.strip_prefix('[')?.strip_suffix(']')?) {
        Ok(Json::Text(key)) => Some((key.into_owned(), rest)),
        _ => None,
    }
}

/// Returns the length in bytes of a leading quoted key with its brackets; `None` if there is none, or it is not closed.
fn quoted_length(text: &str) -> Option<usize> {
    let mut signs = text.strip_prefix(OPENS)?.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '"' => {
                let end = OPENS.len() + at;
                return text[end..].starts_with(CLOSES).then_some(end + CLOSES.len());
            }
            _ => {}
        }
    }
    None
}

/// Splits a text at the first separator outside of quoted keys.
pub fn split_once<'t>(text: &'t str, separator: &str) -> Option<(&'t str, &'t str)> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let (found, quoted) = (rest.find(separator), rest.find(OPENS));
        match quoted.filter(|quoted| found.is_none_or(|found| *quoted < found)) {
            // A key that is not closed is not quoted.
            Some(quoted) => at += quoted + quoted_length(&rest[quoted..]).unwrap_or(OPENS.len()),
            None => return found.map(|found| (&text[..at + found], &rest[found + separator.len()..])),
        }
    }
}

/// Splits a list of paths at its commas.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest?;
        let (path, more) = split_once(list, ",").map_or((list, None), |(path, more)| (path, Some(more)));
        rest = more;
        Some(path)
    })
}

/// Writes a path with every key in quotes.
pub fn quoted(member: &str, keys: &[String]) -> String {
    let key = |key: &String| format!("[{}]", serde_json::Value::from(key.as_str()));
    std::iter::once(member.to_owned()).chain(keys.iter().map(key)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::Step;

    fn read(path: &str) -> Option<Vec<String>> {
        path_beneath("payload", path)
    }

    #[test]
    fn paths_are_dotted_quoted_or_both() {
        for (path, keys) in [
            ("payload.a.b", &["a", "b"][..]),
            ("payload.a b.0.ü]", &["a b", "0", "ü]"]),
            (r#"payload["a.b"]["c d"]"#, &["a.b", "c d"]),
            (r#"payload.a["b.c"].d"#, &["a", "b.c", "d"]),
            (r#"payload[""]"#, &[""]),
            (r#"payload["\"]"]["\\"]["\u00fc,\n"]"#, &["\"]", "\\", "ü,\n"]),
            // Names that could be written before quotes were introduced.
            ("payload.a[0]", &["a[0]"]),
            (r#"payload.a"b.c'd"#, &["a\"b", "c'd"]),
        ] {
            assert_eq!(read(path).unwrap(), keys, "{path}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in [
            "payload",
            "payload.",
            "payload..a",
            "payload.a.",
            "payloads.a",
            "payload[0]",
            "payload['a']",
            "payload[a]",
            r#"payload["a""#,
            r#"payload["a]"#,
            r#"payload["a" ]"#,
            r#"payload["a"]b"#,
            r#"payload["a"]."#,
            r#"payload.["a"]"#,
            r#"payload["a"]["#,
            r#"payload["\x"]"#,
            r#"payload["\ud800"]"#,
            "payload[\"\n\"]",
            r#"payload.a["b"#,
            "meta.a",
            "",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn list_is_split_outside_of_quotes() {
        let lists = [
            (r#"payload["a,b"],payload.c"#, &[r#"payload["a,b"]"#, "payload.c"][..]),
            (r#"-payload["\",\\"],id"#, &[r#"-payload["\",\\"]"#, "id"]),
            (r#"payload.a"b,payload.c"d"#, &[r#"payload.a"b"#, r#"payload.c"d"#]),
            (r#"payload["a,b"#, &[r#"payload["a"#, "b"]),
            (",a,", &["", "a", ""]),
            ("", &[""]),
        ];
        for (list, paths) in lists {
            assert_eq!(split(list).collect::<Vec<_>>(), paths, "{list}");
        }
    }

    proptest! {
        // Holds: c6.paths
        #[test]
        fn any_key_is_found_by_its_quoted_form(
            keys in prop::collection::vec(any::<String>(), 1..4),
            others in prop::collection::vec(any::<String>(), 0..4),
        ) {
            let path = quoted("payload", &keys);
            prop_assert_eq!(read(&path).unwrap_or_default(), &keys[..], "{}", path);
            let list = format!("{path},{path}");
            prop_assert_eq!(split(&list).collect::<Vec<_>>(), [path.as_str(), path.as_str()]);
            let filtered = format!("{path}][eq");
            prop_assert_eq!(split_once(&filtered, "]["), Some((path.as_str(), "eq")));
            // Among other keys it leads to its own value.
            let payload = keys.iter().rev().fold(serde_json::json!("found"), |inner, key| {
                let mut members: serde_json::Map<_, _> = others.iter().map(|other| (other.clone(), 1.into())).collect();
                members.insert(key.clone(), inner);
                members.into()
            });
            let (payload, steps) = (payload.to_string(), keys.iter().map(Step::new).collect::<Vec<_>>());
            prop_assert_eq!(json::find(&payload, &steps), Some("\"found\""));
        }

        #[test]
        fn any_text_is_a_path_or_none(text in r#"(payload)?[\["\]\\.,a ü]{0,24}"#) {
            let _ = read(&text);
            prop_assert_eq!(split(&text).collect::<Vec<_>>().join(","), text);
        }
    }
}
