//! Bytes as payloads carry them: an array of numbers, hexadecimal text, or Base64.

use crate::expression::{Computed, Problem, Value};

/// Most bytes that a codec is given.
const BYTES_MAX: usize = 64 << 10;

/// How a text carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Hexadecimal, if all of it is: digits in pairs, letters in one case. Else Base64.
    Auto,
    Hex,
    Base64,
}

/// The bytes that a value is.
pub(crate) fn bytes_of(value: &Value<'_>, encoding: Encoding) -> Computed<Vec<u8>> {
    if let Some(text) = value.as_text() {
        let text = text.trim();
        if text.len() > 2 * BYTES_MAX {
            return Err(too_many());
        }
        let bytes = match encoding {
            Encoding::Hex => hex(text),
            Encoding::Base64 => base64(text),
            Encoding::Auto if is_one_case(text) => hex(text).or_else(|| base64(text)),
            Encoding::Auto => base64(text),
        };
        return match bytes {
            Some(bytes) if bytes.len() > BYTES_MAX => Err(too_many()),
            Some(bytes) => Ok(bytes),
            None => Err(Problem::new("the bytes are neither hexadecimal nor Base64")),
        };
    }
    if !value.is_list() {
        return Err(Problem::new(format!("the bytes are a value of type {}, not a list or a text", value.kind())));
    }
    let count = value.len().unwrap_or(0);
    if count > BYTES_MAX {
        return Err(too_many());
    }
    let byte = |at: usize| value.item(at)?.whole().and_then(|number| u8::try_from(number).ok());
    let bytes = (0..count).map(|at| byte(at).ok_or_else(|| Problem::new("a byte is no whole number from 0 to 255")));
    bytes.collect()
}

fn too_many() -> Problem {
    Problem::new(format!("there are more than {BYTES_MAX} bytes"))
}

/// Whether no letters of both cases are in it: hexadecimal text is written in one.
fn is_one_case(text: &str) -> bool {
    !(text.bytes().any(|byte| byte.is_ascii_lowercase()) && text.bytes().any(|byte| byte.is_ascii_uppercase()))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| u8::try_from(16 * digit(*high)? + digit(*low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Base64 in either alphabet; padding may be left out.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    // One digit alone carries no byte, and padding only fills up a group of four.
    let padding = text.len() - digits.len();
    if digits.len() % 4 == 1 || padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut buffer, mut bits) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        buffer = (buffer << 6 | u32::from(value)) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_hexadecimal_if_it_can_be() {
        for (text, bytes) in [
            ("", vec![]),
            ("01ff", vec![1, 255]),
            ("DEAD", vec![0xde, 0xad]),
            ("AQID", vec![1, 2, 3]),
            ("AQ==", vec![1]),
            ("AQ", vec![1]),
            ("_-8", vec![255, 239]),
            ("/+8=", vec![255, 239]),
        ] {
            assert_eq!(bytes_of(&Value::Text(text), Encoding::Auto), Ok(bytes), "{text}");
        }
        assert_eq!(bytes_of(&Value::Text("ABEC"), Encoding::Base64), Ok(vec![0, 17, 2]));
        assert_eq!(bytes_of(&Value::Text("aB"), Encoding::Hex), Ok(vec![0xab]));
        for text in ["A", "A===", "é", "0 1", "AQ=A", "====="] {
            assert!(bytes_of(&Value::Text(text), Encoding::Auto).is_err(), "{text}");
        }
        assert!(bytes_of(&Value::Text("AQID"), Encoding::Hex).is_err());
    }

    proptest! {
        #[test]
        fn hexadecimal_in_one_case_is_always_told(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let lower: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(bytes_of(&Value::Text(&lower.to_uppercase()), Encoding::Auto), Ok(bytes.clone()));
            prop_assert_eq!(bytes_of(&Value::Text(&lower), Encoding::Auto), Ok(bytes));
        }

        #[test]
        fn any_text_is_bytes_or_a_problem(text in "\\PC{0,20}") {
            for encoding in [Encoding::Auto, Encoding::Hex, Encoding::Base64] {
                let _ = bytes_of(&Value::Text(&text), encoding);
            }
        }
    }
}
