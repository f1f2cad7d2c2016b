//! Moments: RFC 3339, UTC, milliseconds (contract: Conventions), and the clock.
//!
//! Reading and writing are our own: what is accepted (a date alone, a comma, a 60th second) and the 24 characters
//! written without an allocation would each need as much code around a library.

mod clock;
mod jumps;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use clock::{Clock, Late, ManualTime};

const MILLIS_PER_DAY: i64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z, the last moment of RFC 3339.
const LAST_MILLIS: i64 = 253_402_300_799_999;
/// 0000-01-01T00:00:00.000Z, the first.
const FIRST_MILLIS: i64 = -62_167_219_200_000;

/// A moment, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes the moment of that many milliseconds after the epoch, clamped to the years 0 to 9999.
    pub const fn from_millis(millis: i64) -> Self {
        if millis < FIRST_MILLIS {
            Self(FIRST_MILLIS)
        } else if millis > LAST_MILLIS {
            Self(LAST_MILLIS)
        } else {
            Self(millis)
        }
    }

    /// Returns the milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds since the epoch.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the moment `seconds` later (earlier if negative).
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_millis(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Returns its 24 characters: `2026-01-02T03:04:05.678Z`.
    pub fn text(self) -> [u8; 24] {
        let (days, of_day) = (self.0.div_euclid(MILLIS_PER_DAY), self.0.rem_euclid(MILLIS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_digits(&mut text[0..4], year);
        write_digits(&mut text[5..7], month);
        write_digits(&mut text[8..10], day);
        write_digits(&mut text[11..13], of_day / 3_600_000);
        write_digits(&mut text[14..16], of_day / 60_000 % 60);
        write_digits(&mut text[17..19], of_day / 1000 % 60);
        write_digits(&mut text[20..23], of_day % 1000);
        text
    }
}

fn write_digits(into: &mut [u8], mut number: i64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Converts days to a date: Howard Hinnant's `civil_from_days` (http://howardhinnant.github.io/date_algorithms.html).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

/// Converts a date to days: Howard Hinnant's `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let yoe = year.rem_euclid(400);
    let doy = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The error for a text that is not an RFC 3339 date-time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is not an RFC 3339 date-time")]
pub struct NotATime;

impl FromStr for Timestamp {
    type Err = NotATime;

    /// Parses RFC 3339 with any offset, and a date alone as its midnight in UTC. Digits beyond milliseconds are
    /// dropped.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Result<i64, NotATime> {
            let digits = bytes.get(from..to).ok_or(NotATime)?;
            digits.iter().try_fold(0, |sum, digit| match digit {
                b'0'..=b'9' => Ok(sum * 10 + i64::from(digit - b'0')),
                _ => Err(NotATime),
            })
        };
        let is = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        if !is(4, b"-") || !is(7, b"-") || !(1..=12).contains(&month) || day < 1 || day > days_of_month(year, month) {
            return Err(NotATime);
        }
        let midnight = days_from_civil(year, month, day) * MILLIS_PER_DAY;
        if bytes.len() == 10 {
            return Ok(Self(midnight));
        }
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !is(10, b"Tt ") || !is(13, b":") || !is(16, b":") || hour > 23 || minute > 59 || second > 60 {
            return Err(NotATime);
        }
        let mut at = 19;
        let mut fraction = 0;
        if is(at, b".,") {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return Err(NotATime);
            }
            let kept = digits.min(3);
            fraction = number(at + 1, at + 1 + kept)? * [0, 100, 10, 1][kept];
            at += 1 + digits;
        }
        let offset_minutes = match bytes.get(at) {
            Some(b'Z' | b'z') if bytes.len() == at + 1 => 0,
            Some(sign @ (b'+' | b'-')) if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if hours > 23 || minutes > 59 {
                    return Err(NotATime);
                }
                (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
            }
            _ => return Err(NotATime),
        };
        let of_day = ((hour * 60 + minute - offset_minutes) * 60 + second.min(59)) * 1000 + fraction;
        Ok(Self::from_millis(midnight + of_day))
    }
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Holds: c1.times
    #[test]
    fn offsets_fractions_and_bare_dates_are_read() {
        for (text, expected) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05.6789+02:30", "2026-01-02T00:34:05.678Z"),
            ("2026-01-02t03:04:05.5z", "2026-01-02T03:04:05.500Z"),
            ("2024-02-29", "2024-02-29T00:00:00.000Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().map(|t| t.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn malformed_time_is_refused() {
        for bad in [
            "",
            "now",
            "2026-13-01",
            "2025-02-29",
            "2026-01-02T25:00:00Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+0200",
            "2026-01-02T03:04:05.Z",
            "٢٠٢٦-01-02",
        ] {
            assert_eq!(bad.parse::<Timestamp>(), Err(NotATime), "{bad}");
        }
    }

    proptest! {
        // Holds: c1.times
        #[test]
        fn time_survives_writing_and_parsing(millis in FIRST_MILLIS..=LAST_MILLIS) {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(time.to_string().parse::<Timestamp>(), Ok(time));
        }
    }
}
