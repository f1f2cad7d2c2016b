//! Zones of time, with the rules that come with the program: they are the same on every machine.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::time::Timestamp;

/// A zone of the IANA time zone database, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A name that no zone has.
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
    /// The day that it is there.
    pub(super) fn day(&self, at: Timestamp) -> Date {
        let at = jiff::Timestamp::from_millisecond(at.millis()).unwrap_or_default();
        self.0.to_datetime(at).date()
    }

    /// When a day begins there: its midnight, or what comes right after a midnight that is left out. Days beyond what can
    /// be written begin at the end of it.
    pub(super) fn midnight(&self, day: Option<Date>) -> Timestamp {
        let begin = day.and_then(|day| day.to_zoned(self.0.clone()).ok());
        begin.map_or(Timestamp::from_millis(i64::MAX), |begin| {
            Timestamp::from_millis(begin.timestamp().as_millisecond())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_the_names_of_the_database() {
        for name in ["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe"] {
            assert_eq!(name.parse::<Zone>().unwrap().to_string(), name);
        }
        for name in ["", "Paris", "Europe/Nowhere", "../../etc/passwd", "+02:00", "CET-1CEST"] {
            assert_eq!(name.parse::<Zone>(), Err(NoSuchZone), "{name}");
        }
    }
}
