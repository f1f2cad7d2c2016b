//! How long a bucket is.

use std::fmt;
use std::str::FromStr;

/// A unit of time. Days and longer ones are as long as the calendar has them.
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
    /// Milliseconds of a unit that is the same everywhere.
    pub const fn millis(self) -> Option<i64> {
        match self {
            Unit::Second => Some(1_000),
            Unit::Minute => Some(60_000),
            Unit::Hour => Some(3_600_000),
            Unit::Day | Unit::Week | Unit::Month | Unit::Year => None,
        }
    }

    /// Most of them in one bucket: a day, or a century.
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

/// A whole number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    count: u32,
    unit: Unit,
}

impl Width {
    /// Round widths, from the narrowest to the widest.
    pub const ROUND: [Self; 25] = {
        const fn of(count: u32, unit: Unit) -> Width {
            Width { count, unit }
        }
        [
            of(1, Unit::Second),
            of(2, Unit::Second),
            of(5, Unit::Second),
            of(10, Unit::Second),
            of(15, Unit::Second),
            of(30, Unit::Second),
            of(1, Unit::Minute),
            of(2, Unit::Minute),
            of(5, Unit::Minute),
            of(10, Unit::Minute),
            of(15, Unit::Minute),
            of(30, Unit::Minute),
            of(1, Unit::Hour),
            of(2, Unit::Hour),
            of(3, Unit::Hour),
            of(6, Unit::Hour),
            of(12, Unit::Hour),
            of(1, Unit::Day),
            of(1, Unit::Week),
            of(1, Unit::Month),
            of(3, Unit::Month),
            of(1, Unit::Year),
            of(10, Unit::Year),
            of(50, Unit::Year),
            of(100, Unit::Year),
        ]
    };

    /// How many.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Of what.
    pub const fn unit(self) -> Unit {
        self.unit
    }

    /// Its length in milliseconds where a day has 24 hours; none: months and years have none of their own.
    pub const fn fixed_millis(self) -> Option<i64> {
        const DAY: i64 = 86_400_000;
        let each = match self.unit {
            Unit::Second => 1_000,
            Unit::Minute => 60_000,
            Unit::Hour => 3_600_000,
            Unit::Day => DAY,
            Unit::Week => 7 * DAY,
            Unit::Month | Unit::Year => return None,
        };
        Some(each * self.count as i64)
    }

    /// Its least length in milliseconds: whatever the calendar does, no bucket but the last of a day is shorter.
    pub(super) const fn millis_min(self) -> i64 {
        const HOUR: i64 = 3_600_000;
        let each = match self.unit {
            Unit::Second => 1_000,
            Unit::Minute => 60_000,
            Unit::Hour => HOUR,
            // A day on which the clock is put forward; those that follow each other are not all of them such days.
            Unit::Day => 22 * HOUR,
            Unit::Week => 7 * 23 * HOUR,
            Unit::Month => 27 * 24 * HOUR,
            Unit::Year => 364 * 24 * HOUR,
        };
        each * self.count as i64
    }
}

/// A text that is no width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAWidth {
    /// It is written otherwise.
    #[error("must be a whole number and s, m, h, d, w, mo or y, like 15m")]
    Malformed,
    /// It is none of time, or more than a day in units of the clock, or more than a century.
    #[error("must be at least 1 and at most 86400s, 1440m, 24h, 36525d, 5218w, 1200mo or 100y")]
    OutOfBounds,
}

impl FromStr for Width {
    type Err = NotAWidth;

    fn from_str(text: &str) -> Result<Self, NotAWidth> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NotAWidth::Malformed)?.1;
        if count.is_empty() {
            return Err(NotAWidth::Malformed);
        }
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
    fn days_and_shorter_have_a_length_of_their_own() {
        let millis = |text: &str| text.parse::<Width>().unwrap().fixed_millis();
        assert_eq!([millis("90s"), millis("2h"), millis("31d")], [Some(90_000), Some(7_200_000), Some(2_678_400_000)]);
        assert_eq!([millis("1w"), millis("1mo"), millis("1y")], [Some(604_800_000), None, None]);
    }

    #[test]
    fn round_widths_grow() {
        assert!(Width::ROUND.windows(2).all(|two| two[0].millis_min() < two[1].millis_min()));
        assert!(Width::ROUND.iter().all(|width| width.to_string().parse() == Ok(*width)));
    }
}
