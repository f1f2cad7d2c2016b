//! Percent-decoding (RFC 3986, 2.1) that detects results that are not UTF-8.

/// Decodes a part of a path or, with `+` for a space, of a query; `None` if the result is not UTF-8.
pub(crate) fn decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if plus_is_space => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_are_decoded() {
        for (text, plain) in
            [("a%20b", "a b"), ("%C3%A9%00", "\u{e9}\0"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("", "")]
        {
            assert_eq!(decoded(text, false).as_deref(), Some(plain), "{text}");
        }
        assert_eq!((decoded("a+b", false), decoded("a+b", true)), (Some("a+b".to_owned()), Some("a b".to_owned())));
        for broken in ["%ff", "a%C3", "%ED%A0%80", "%C0%80"] {
            assert_eq!(decoded(broken, false), None, "{broken}");
        }
    }
}
