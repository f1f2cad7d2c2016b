//! Time zones, from the database that is compiled in: the same on every machine.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::time::Timestamp;

const DAY_MILLIS: i64 = 86_400_000;
/// Day 0 of the count of days.
const DAY_ZERO: Date = Date::constant(1970, 1, 1);

/// A time zone of the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// The error for a name that no zone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the name of a time zone, like Europe/Paris")]
pub struct NoSuchZone;

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl FromStr for Zone {
    type Err = NoSuchZone;

    fn from_str(name: &str) -> Result<Self, NoSuchZone> {
        TimeZoneDatabase::bundled().get(name).map(Self).map_err(|_| NoSuchZone)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

impl Zone {
    /// Returns the local day of a moment. Moments beyond the last representable day belong to that day.
    pub(super) fn day(&self, at: Timestamp) -> Date {
        match jiff::Timestamp::from_millisecond(at.millis()) {
            Ok(at) => self.0.to_datetime(at).date(),
            Err(_) => day_at((at.millis() + self.last_offset_millis()).div_euclid(DAY_MILLIS)).unwrap_or(Date::MAX),
        }
    }

    /// Returns the start of a local day: midnight, or the first moment after a skipped midnight. Days beyond the
    /// representable ones start at the end of time.
    pub(super) fn midnight(&self, day: Option<Date>) -> Timestamp {
        let Some(day) = day else { return Timestamp::from_millis(i64::MAX) };
        Timestamp::from_millis(match day.to_zoned(self.0.clone()) {
            Ok(begin) => begin.timestamp().as_millisecond(),
            Err(_) => days_since_zero(day) * DAY_MILLIS - self.last_offset_millis(),
        })
    }

    /// Returns the offset from UTC at the end of time: the library's time ends 26 hours before ours, and no zone
    /// changes its offset in between.
    fn last_offset_millis(&self) -> i64 {
        i64::from(self.0.to_offset(jiff::Timestamp::MAX).seconds()) * 1_000
    }
}

/// Returns the days from 1970-01-01 to a day.
pub(super) fn days_since_zero(day: Date) -> i64 {
    day.since((jiff::Unit::Day, DAY_ZERO)).map_or(0, |span| i64::from(span.get_days()))
}

/// Returns the day that many days after 1970-01-01; `None` if it is not representable.
pub(super) fn day_at(days: i64) -> Option<Date> {
    DAY_ZERO.checked_add(jiff::Span::new().try_days(days).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_parsed_by_their_names() {
        for name in ["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe"] {
            assert_eq!(name.parse::<Zone>().unwrap().to_string(), name);
        }
        for name in ["", "Paris", "Europe/Nowhere", "../../etc/passwd", "+02:00", "CET-1CEST"] {
            assert_eq!(name.parse::<Zone>(), Err(NoSuchZone), "{name}");
        }
    }

    #[test]
    fn days_are_counted_up_to_the_last_representable() {
        for days in [-719_528, -1, 0, 1, 2_932_895, 2_932_896] {
            assert_eq!(day_at(days).map(days_since_zero), Some(days));
        }
        assert_eq!(day_at(2_932_897), None);
        for days in [i64::MIN, i64::MAX] {
            assert_eq!(day_at(days), None);
        }
    }
}
