//! Bytes in payloads: an array of numbers, or a text in Base64 or hexadecimal.

use crate::value::budget::Budget;
use crate::value::{Computed, Problem, Value};

/// Most bytes of a codec's input.
const CODEC_BYTES_MAX: usize = 64 << 10;

/// Encoding of bytes as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    #[default]
    Base64,
    Hex,
}

/// Decodes the bytes of a value.
pub(crate) fn bytes_of(value: &Value<'_>, encoding: Encoding, budget: &Budget) -> Computed<Vec<u8>> {
    if let Some(text) = value.as_text() {
        budget.spend_bytes(text.len())?;
        let text = text.trim();
        if text.len() > 2 * CODEC_BYTES_MAX {
            return Err(too_many());
        }
        // The encoding is never guessed from the text: `abcd` is valid in both.
        let (bytes, expected) = match encoding {
            Encoding::Base64 => (base64(text), "the bytes are no Base64; for hexadecimal, bytesEncoding is 'hex'"),
            Encoding::Hex => (hex(text), "the bytes are not hexadecimal, digits in pairs, as bytesEncoding says"),
        };
        return match bytes {
            Some(bytes) if bytes.len() > CODEC_BYTES_MAX => Err(too_many()),
            Some(bytes) => Ok(bytes),
            None => Err(Problem::new(expected)),
        };
    }
    if !value.is_list() {
        return Err(Problem::new(format!("the bytes are a value of type {}, not a list or a text", value.kind())));
    }
    let count = value.len().unwrap_or(0);
    if count > CODEC_BYTES_MAX {
        return Err(too_many());
    }
    budget.spend(count)?;
    let byte = |at: usize| -> Computed<u8> {
        let item = value.item(at).unwrap_or(Value::Null);
        budget.spend_number(&item)?;
        let byte = item.whole().and_then(|number| u8::try_from(number).ok());
        byte.ok_or_else(|| Problem::new("a byte is no whole number from 0 to 255"))
    };
    (0..count).map(byte).collect()
}

fn too_many() -> Problem {
    Problem::new(format!("there are more than {CODEC_BYTES_MAX} bytes"))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| u8::try_from(16 * digit(*high)? + digit(*low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Decodes Base64 in either alphabet; padding is optional.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    // One digit alone encodes no byte, and padding only completes a group of four.
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

    fn bytes_of(value: &Value<'_>, encoding: Encoding) -> Computed<Vec<u8>> {
        super::bytes_of(value, encoding, &Budget::of_run())
    }

    #[test]
    fn text_is_decoded_by_the_given_encoding() {
        for (text, bytes) in [
            ("", vec![]),
            ("AQID", vec![1, 2, 3]),
            ("AQ==", vec![1]),
            ("AQ", vec![1]),
            ("_-8", vec![255, 239]),
            ("/+8=", vec![255, 239]),
            // A text that looks like hexadecimal is still Base64.
            ("abcd", vec![0x69, 0xb7, 0x1d]),
            ("ABEC", vec![0, 17, 2]),
            ("01ff", vec![0xd3, 0x57, 0xdf]),
        ] {
            assert_eq!(bytes_of(&Value::Text(text), Encoding::Base64), Ok(bytes), "{text}");
        }
        for (text, bytes) in [("", vec![]), ("abcd", vec![0xab, 0xcd]), ("aB01", vec![0xab, 1]), (" FF\n", vec![255])] {
            assert_eq!(bytes_of(&Value::Text(text), Encoding::Hex), Ok(bytes), "{text}");
        }
        for text in ["A", "A===", "é", "0 1", "AQ=A", "=====", "01ff0"] {
            let problem = bytes_of(&Value::Text(text), Encoding::Base64).unwrap_err();
            assert!(problem.0.contains("no Base64; for hexadecimal"), "{text}: {problem:?}");
        }
        for text in ["AQID", "abc", "0x01", "01 ff", "é"] {
            let problem = bytes_of(&Value::Text(text), Encoding::Hex).unwrap_err();
            assert!(problem.0.contains("not hexadecimal"), "{text}: {problem:?}");
        }
    }

    #[test]
    fn white_space_around_bytes_is_charged() {
        let budget = Budget::of_run();
        let text = " ".repeat(160_000);
        assert_eq!(super::bytes_of(&Value::Text(&text), Encoding::Hex, &budget), Ok(Vec::new()));
        assert!(budget.spent() >= 10_000, "{} units", budget.spent());
    }

    proptest! {
        #[test]
        fn encoded_bytes_are_decoded_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let lower: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(bytes_of(&Value::Text(&lower.to_uppercase()), Encoding::Hex), Ok(bytes.clone()));
            prop_assert_eq!(bytes_of(&Value::Text(&lower), Encoding::Hex), Ok(bytes));
        }

        #[test]
        fn any_text_is_bytes_or_a_problem(text in "\\PC{0,20}") {
            for encoding in [Encoding::Hex, Encoding::Base64] {
                let _ = bytes_of(&Value::Text(&text), encoding);
            }
        }
    }
}
