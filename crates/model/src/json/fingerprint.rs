//! Digests of values, to test whether the next value equals the last.

use sha2::{Digest as _, Sha256};

use super::{Json, Number};

/// Size of a fingerprint, in bytes.
pub const FINGERPRINT_BYTES: usize = 32;

/// Largest integer up to which all are exact as doubles: 2^53.
const EXACT_MAX: u128 = 1 << 53;

/// Returns the SHA-256 digest of a value, the same for values that are [`super::equal`]. Integers beyond 2^53 are the
/// exception: they differ from the same number with a point or an exponent, as several integers share a double.
pub fn fingerprint(value: &Json<'_>) -> [u8; FINGERPRINT_BYTES] {
    let mut digest = Sha256::new();
    take_in(value, &mut digest);
    digest.finalize().into()
}

/// Hashes a value, with its type and length in front, so that different values hash different bytes.
fn take_in(value: &Json<'_>, digest: &mut Sha256) {
    match value {
        Json::Null => digest.update(b"n"),
        Json::Bool(truth) => digest.update([b'b', u8::from(*truth)]),
        Json::Number(number) => take_in_number(number, digest),
        Json::Text(text) => {
            digest.update(b"t");
            take_in_text(text, digest);
        }
        Json::Array(items) => {
            digest.update(b"a");
            digest.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| take_in(item, digest));
        }
        Json::Object(members) => {
            digest.update(b"o");
            digest.update((members.len() as u64).to_le_bytes());
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by(|(name, _), (other, _)| name.cmp(other));
            for (name, value) in sorted {
                take_in_text(name, digest);
                take_in(value, digest);
            }
        }
    }
}

fn take_in_text(text: &str, digest: &mut Sha256) {
    digest.update((text.len() as u64).to_le_bytes());
    digest.update(text);
}

fn take_in_number(number: &Number<'_>, digest: &mut Sha256) {
    match number.text().parse::<i128>() {
        Ok(int) if int.unsigned_abs() > EXACT_MAX => {
            digest.update(b"i");
            digest.update(int.to_le_bytes());
        }
        _ => {
            digest.update(b"d");
            // Adding 0.0 makes negative zero positive, as both are equal.
            digest.update((number.as_f64() + 0.0).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::{equal, parse};

    fn of(text: &str) -> [u8; FINGERPRINT_BYTES] {
        fingerprint(&parse(text).unwrap())
    }

    #[test]
    fn values_that_are_equal_have_one_fingerprint() {
        for same in [
            &["1", "1.0", "1e0", "10e-1"][..],
            &["0", "-0", "-0.0", "0e5"],
            &[r#"{"a":1,"b":[{"x":2,"y":null}]}"#, r#" {"b" : [{"y":null,"x":2.0}], "\u0061":1}"#],
            &["9007199254740993", "9007199254740993"],
            &["\"é\"", r#""\u00e9""#],
        ] {
            assert!(same.windows(2).all(|pair| of(pair[0]) == of(pair[1])), "{same:?}");
        }
    }

    #[test]
    fn values_that_differ_have_others() {
        let all = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "\"\"",
            "\"1\"",
            "[]",
            "[[]]",
            "[[],[]]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#"{"a":1,"b":1}"#,
            r#"["a",1]"#,
            r#"["ab"]"#,
            r#"["a","b"]"#,
            "9007199254740993",
            "9007199254740994",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
        ];
        for (at, left) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|right| of(left) != of(right)), "{left}");
        }
    }

    fn any_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            (-3_i64..3).prop_map(Into::into),
            prop::sample::select(vec![0.0, -0.0, 1.0, 0.5]).prop_map(Into::into),
            "[ab]{0,2}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::hash_map("[ab]", inner, 0..3)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn fingerprints_agree_where_values_do(left in any_value(), right in any_value()) {
            let (left, right) = (left.to_string(), right.to_string());
            let (left, right) = (parse(&left).unwrap(), parse(&right).unwrap());
            prop_assert_eq!(fingerprint(&left) == fingerprint(&right), equal(&left, &right));
        }
    }
}
