//! Widths of buckets.

use std::fmt;
use std::str::FromStr;

/// A unit of time. Days and longer units follow the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// `s`
    Second,
    /// `m`
    Minute,
    /// `h`
    Hour,
    /// `d`
    Day,
    /// `w`, from Monday
    Week,
    /// `mo`
    Month,
    /// `y`
    Year,
}

const UNITS: [(&str, Unit); 7] = [
    ("s", Unit::Second),
    ("m", Unit::Minute),
    ("h", Unit::Hour),
    ("d", Unit::Day),
    ("w", Unit::Week),
    ("mo", Unit::Month),
    ("y", Unit::Year),
];

impl Unit {
    /// Returns the length in milliseconds of a unit that does not depend on the calendar.
    pub const fn millis(self) -> Option<i64> {
        match self {
            Unit::Second => Some(1_000),
            Unit::Minute => Some(60_000),
            Unit::Hour => Some(3_600_000),
            Unit::Day | Unit::Week | Unit::Month | Unit::Year => None,
        }
    }

    /// Returns the largest count in one bucket: a day in units of the clock, a century in units of the calendar.
    const fn most(self) -> u32 {
        match self {
            Unit::Second => 86_400,
            Unit::Minute => 1_440,
            Unit::Hour => 24,
            Unit::Day => 36_525,
            Unit::Week => 5_218,
            Unit::Month => 1_200,
            Unit::Year => 100,
        }
    }
}

/// Counts of each unit that make a round width.
const ROUND: [(Unit, &[u32]); 7] = [
    (Unit::Second, &[1, 2, 5, 10, 15, 30]),
    (Unit::Minute, &[1, 2, 5, 10, 15, 30]),
    (Unit::Hour, &[1, 2, 3, 6, 12]),
    (Unit::Day, &[1]),
    (Unit::Week, &[1]),
    (Unit::Month, &[1, 3]),
    (Unit::Year, &[1, 10, 50, 100]),
];

/// The width of a bucket: a whole number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    count: u32,
    unit: Unit,
}

impl Width {
    /// Iterates over the round widths, from the narrowest to the widest.
    pub fn round() -> impl Iterator<Item = Self> {
        ROUND.into_iter().flat_map(|(unit, counts)| counts.iter().map(move |count| Self { count: *count, unit }))
    }

    /// Returns the number of units.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Returns the unit.
    pub const fn unit(self) -> Unit {
        self.unit
    }

    /// Returns its minimum length in milliseconds: no bucket but the last of a day is shorter, whatever the calendar
    /// does.
    pub(super) const fn millis_min(self) -> i64 {
        const HOUR: i64 = 3_600_000;
        let each = match self.unit {
            Unit::Second => 1_000,
            Unit::Minute => 60_000,
            Unit::Hour => HOUR,
            // A day on which clocks go forward; not all consecutive days are such days.
            Unit::Day => 22 * HOUR,
            Unit::Week => 7 * 23 * HOUR,
            Unit::Month => 27 * 24 * HOUR,
            Unit::Year => 364 * 24 * HOUR,
        };
        each * self.count as i64
    }
}

/// A duration in the syntax of widths: any whole number of units of fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(i64);

impl Span {
    /// Returns its length in milliseconds, saturated.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = NotAWidth;

    /// Parses a whole number of s, m, h, d or w, where a day has 24 hours; months and years have no fixed length.
    fn from_str(text: &str) -> Result<Self, NotAWidth> {
        const DAY: i64 = 86_400_000;
        let (count, unit) = counted(text)?;
        let each = match unit {
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            unit => unit.millis().ok_or(NotAWidth::Malformed)?,
        };
        match count.parse::<i64>().unwrap_or(i64::MAX) {
            0 => Err(NotAWidth::OutOfBounds),
            count => Ok(Self(count.saturating_mul(each))),
        }
    }
}

/// The reason why a text is not a width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAWidth {
    /// The syntax is wrong.
    #[error("must be a whole number and s, m, h, d, w, mo or y, like 15m")]
    Malformed,
    /// The width is 0, more than a day in units of the clock, or more than a century.
    #[error("must be at least 1 and at most 86400s, 1440m, 24h, 36525d, 5218w, 1200mo or 100y")]
    OutOfBounds,
}

/// Splits a text into its digits and its unit.
fn counted(text: &str) -> Result<(&str, Unit), NotAWidth> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NotAWidth::Malformed)?.1;
    if count.is_empty() { Err(NotAWidth::Malformed) } else { Ok((count, unit)) }
}

impl FromStr for Width {
    type Err = NotAWidth;

    fn from_str(text: &str) -> Result<Self, NotAWidth> {
        let (count, unit) = counted(text)?;
        match count.parse() {
            Ok(count) if (1..=unit.most()).contains(&count) => Ok(Self { count, unit }),
            _ => Err(NotAWidth::OutOfBounds),
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = UNITS.iter().find(|(_, unit)| *unit == self.unit).map_or("", |(name, _)| name);
        write!(f, "{}{name}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_read_and_written() {
        for text in ["1s", "15m", "24h", "1d", "2w", "3mo", "100y"] {
            assert_eq!(text.parse::<Width>().unwrap().to_string(), text);
        }
        for text in ["", "m", "1", "1x", "-1m", "+1m", "1.5h", "1 m", "1M", "1min", "٣m"] {
            assert_eq!(text.parse::<Width>(), Err(NotAWidth::Malformed), "{text}");
        }
        for text in ["0s", "86401s", "1441m", "25h", "36526d", "101y", "99999999999999999999s"] {
            assert_eq!(text.parse::<Width>(), Err(NotAWidth::OutOfBounds), "{text}");
        }
    }

    #[test]
    fn spans_are_any_number_of_units_with_a_length() {
        const DAY: i64 = 86_400_000;
        for (text, millis) in [
            ("90s", 90_000),
            ("86401s", DAY + 1_000),
            ("1441m", DAY + 60_000),
            ("25h", 25 * 3_600_000),
            ("0744h", 31 * DAY),
            ("31d", 31 * DAY),
            ("4w", 28 * DAY),
            ("99999999999999999999s", i64::MAX),
            ("9223372036854775807w", i64::MAX),
        ] {
            assert_eq!(text.parse::<Span>().map(Span::millis), Ok(millis), "{text}");
        }
        for text in ["", "h", "1", "1.5h", "-1h", "1mo", "1y", " 1h"] {
            assert_eq!(text.parse::<Span>(), Err(NotAWidth::Malformed), "{text}");
        }
        assert_eq!("0s".parse::<Span>(), Err(NotAWidth::OutOfBounds));
    }

    #[test]
    fn round_widths_grow() {
        let round: Vec<Width> = Width::round().collect();
        assert!(round.windows(2).all(|two| two[0].millis_min() < two[1].millis_min()));
        assert!(round.iter().all(|width| width.to_string().parse() == Ok(*width)));
    }
}
