//! Numbers that keep the text they were written in.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A JSON number: text until somebody calculates with it.
#[derive(Clone, Debug)]
pub struct Number<'a>(Cow<'a, str>);

impl<'a> Number<'a> {
    /// A number from text that is known to be one, and finite as a double.
    pub(super) fn written(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A double; none when it is not finite, for JSON cannot write it.
    pub fn from_f64(value: f64) -> Option<Self> {
        // `{}` on a whole double writes no point; keep it a double for whoever reads it next.
        let text =
            if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.1}") } else { format!("{value:?}") };
        value.is_finite().then_some(Self(Cow::Owned(text)))
    }

    /// The text it was written in.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Its value as an integer, if it is written as one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// Its value as a double.
    pub fn as_f64(&self) -> f64 {
        self.0.parse().unwrap_or(f64::NAN)
    }

    /// The same number, owning its text.
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
