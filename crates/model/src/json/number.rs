//! Numbers that keep their text.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Digits that determine the double: with more, the standard library may calculate with hundreds. The others only
/// decide how a number exactly between two doubles is rounded.
const DIGITS: usize = 19;
/// Half-way between the largest double and the next power: numbers from here on are out of range. It has 309 digits.
const BEYOND_RANGE: &str = concat!(
    "1797693134862315807937289714053034150799341327100378269361737789804449682927647509466490179775872070",
    "9633028641669288791094655554785194040263065748867150582068190890200070838367627385484581771153176447",
    "5730270069855571366959622842914819860834936475292719074168444365510704342711559699508093042880177904",
    "174497792",
);

/// An exponent that makes any number zero.
const FAR_BELOW: i64 = i64::MIN / 2;

/// A JSON number: text until somebody calculates with it.
#[derive(Clone, Debug)]
pub struct Number<'a>(Cow<'a, str>);

impl<'a> Number<'a> {
    /// Wraps text that is known to be a number, finite as a double.
    pub(super) fn written(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// Converts a double; `None` if it is not finite, which JSON cannot write.
    pub fn from_f64(value: f64) -> Option<Self> {
        // `{}` on a whole double writes no point; keep it a double for later readers.
        let text =
            if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.1}") } else { format!("{value:?}") };
        value.is_finite().then_some(Self(Cow::Owned(text)))
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns its value as an integer, if it is written as one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// Returns its value as a double.
    pub fn as_f64(&self) -> f64 {
        if self.0.len() <= DIGITS {
            return self.0.parse().unwrap_or(f64::NAN);
        }
        let decimal = Decimal::of(&self.0);
        let Some(exponent) = decimal.magnitude.checked_sub(DIGITS as i64 - 1) else { return 0.0 };
        let digits: String = decimal.digits().chain(std::iter::repeat('0')).take(DIGITS).collect();
        format!("{}{digits}e{exponent}", decimal.sign).parse().unwrap_or(f64::NAN)
    }

    /// Returns a number with a short text that compares like this one.
    pub fn compact(&self) -> Number<'static> {
        let double = (self.0.len() > EXACT_TEXT_BYTES).then(|| Number::from_f64(self.as_f64()));
        double.flatten().unwrap_or_else(|| self.clone().into_owned())
    }

    /// Returns the same number with an owned text.
    pub fn into_owned(self) -> Number<'static> {
        Number(Cow::Owned(self.0.into_owned()))
    }
}

impl From<i64> for Number<'_> {
    fn from(value: i64) -> Self {
        Self(Cow::Owned(value.to_string()))
    }
}

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        compare_numbers(self, other) == Ordering::Equal
    }
}

/// Returns true if a number in JSON syntax is within the range of doubles.
pub(super) fn is_finite(text: &str) -> bool {
    let decimal = Decimal::of(text);
    match decimal.magnitude.cmp(&(BEYOND_RANGE.len() as i64 - 1)) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => decimal.digits().lt(BEYOND_RANGE.chars()),
    }
}

/// The parts of a number in JSON syntax.
struct Decimal<'a> {
    sign: &'a str,
    /// Digits and point, without leading zeros.
    mantissa: &'a str,
    /// Power of ten of the first digit.
    magnitude: i64,
}

impl<'a> Decimal<'a> {
    fn of(text: &'a str) -> Self {
        let (sign, rest) = text.split_at(usize::from(text.starts_with('-')));
        let (written, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
        // An exponent that overflows is beyond every double, unless as many zeros precede it.
        let exponent: i64 = exponent.parse().unwrap_or(if exponent.starts_with('-') { FAR_BELOW } else { -FAR_BELOW });
        let mantissa = written.trim_start_matches(['0', '.']);
        let whole = written.find('.').unwrap_or(written.len()) as i64;
        let skipped = written.len() - mantissa.len();
        // Place of the first digit, counted from the point.
        let first = if skipped as i64 > whole { skipped as i64 - 1 } else { skipped as i64 };
        let magnitude = if mantissa.is_empty() { FAR_BELOW } else { exponent.saturating_add(whole - 1 - first) };
        Self { sign, mantissa, magnitude }
    }

    fn digits(&self) -> impl Iterator<Item = char> + use<'a> {
        self.mantissa.chars().filter(|digit| *digit != '.')
    }
}

/// Longest text of an integer that is compared exactly, in bytes; longer ones are compared as doubles.
const EXACT_TEXT_BYTES: usize = 40;

/// Compares by value: integers exactly (to 128 bits), everything else as doubles.
pub fn compare_numbers(left: &Number<'_>, right: &Number<'_>) -> Ordering {
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return left.cmp(&right);
    }
    if let (Ok(left), Ok(right)) = (left.0.parse::<i128>(), right.0.parse::<i128>()) {
        return left.cmp(&right);
    }
    left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> f64 {
        text.parse().unwrap()
    }

    #[test]
    fn range_of_doubles_is_exact() {
        let below = format!("{}1", BEYOND_RANGE.strip_suffix("2").unwrap());
        for text in [
            "0",
            "-0.0e999999999999999999999",
            "1e308",
            "-1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1.8e308",
            "1e309",
            "1e-400",
            "1e-99999999999999999999",
            "1e+99999999999999999999",
            "0.00001e313",
            "0.00002e313",
            "100e306",
            "200e306",
            BEYOND_RANGE,
            &below,
            &format!("{below}.9999"),
            &format!("{BEYOND_RANGE}.0000"),
            &format!("0.{}1e500", "0".repeat(192)),
            &format!("0.{}1e500", "0".repeat(190)),
        ] {
            assert_eq!(is_finite(text), parsed(text).is_finite(), "{text}");
        }
    }

    #[test]
    fn number_of_many_digits_is_the_nearest_double() {
        for text in [
            "0.1000000000000000055511151231257827",
            "-123456789012345678901234567890",
            "2.2250738585072011360574e-308",
            "0.000000000000000000000000000001",
            "-0.00000000000000000000000000",
            "100000000000000000000000000000000",
            "1e-00000000000000000000000000001",
            "12345678901234567890.123456789e-12",
        ] {
            let (read, exact) = (Number::written(text).as_f64(), parsed(text));
            assert!(read == exact || read.to_bits().abs_diff(exact.to_bits()) <= 1, "{text}: {read:e}, not {exact:e}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_the_standard_library_reads_them(
            text in "-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        ) {
            let (read, exact) = (Number::written(&text).as_f64(), parsed(&text));
            prop_assert_eq!(is_finite(&text), exact.is_finite());
            if exact.is_finite() {
                prop_assert!(read == exact || read.to_bits().abs_diff(exact.to_bits()) <= 1, "{:e}, not {:e}", read, exact);
            }
        }
    }
}
