//! Boundaries of buckets.

use jiff::civil::Date;

use super::width::{Unit, Width};
use super::zone::{Zone, day_at, days_since_zero};
use crate::time::Timestamp;

/// Days from a Monday to day 0 of the count, a Thursday.
const DAYS_SINCE_MONDAY: i64 = 3;

/// The endless sequence of buckets of a width in a zone. Days and longer ones follow the calendar; shorter ones are
/// counted from each day's midnight, so that the last of a day may be shorter.
#[derive(Clone, Debug)]
pub struct Grid {
    width: Width,
    zone: Zone,
}

/// A half-open interval of time: the end is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its start.
    pub from: Timestamp,
    /// Its end, the start of the next.
    pub to: Timestamp,
}

impl Stretch {
    /// All representable time.
    pub const ALL: Self = Self { from: Timestamp::from_millis(i64::MIN), to: Timestamp::from_millis(i64::MAX) };

    /// Returns true if a moment lies in it.
    pub fn holds(self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

impl Grid {
    /// Makes the buckets of a width in a zone.
    pub fn new(width: Width, zone: Zone) -> Self {
        Self { width, zone }
    }

    /// Finds the narrowest round width that divides an interval into at most `most` buckets; `None` if no width does.
    pub fn narrowest(zone: &Zone, stretch: Stretch, most: usize) -> Option<Self> {
        let mut grids = Width::round().map(|width| Self::new(width, zone.clone()));
        grids.find(|grid| grid.count(stretch, most).is_some())
    }

    /// Returns the width of the buckets.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Returns the bucket of a moment.
    pub fn bucket(&self, at: Timestamp) -> Stretch {
        let day = self.zone.day(at);
        match self.width.unit().millis() {
            Some(millis) => self.of_day(day, at, millis * i64::from(self.width.count())),
            None => {
                let (from, to) = self.days(day);
                Stretch { from: self.zone.midnight(from), to: self.zone.midnight(to) }
            }
        }
    }

    /// Counts the buckets that an interval touches; `None` if there are more than `most`.
    pub fn count(&self, stretch: Stretch, most: usize) -> Option<usize> {
        if stretch.from >= stretch.to {
            return Some(0);
        }
        // A quick bound, so that a century is not walked second by second.
        let length = stretch.to.millis().saturating_sub(stretch.from.millis());
        if length / self.width.millis_min().max(1) > i64::try_from(most).unwrap_or(i64::MAX).saturating_mul(2) {
            return None;
        }
        let (mut count, mut at) = (0, stretch.from);
        while at < stretch.to && count <= most {
            let (some, to) = self.count_of_day(at, stretch.to);
            (count, at) = (count + some, to);
        }
        (count <= most).then_some(count)
    }

    /// Counts the buckets from a moment to the end of its day, or of its bucket if that is longer; returns that end
    /// too.
    fn count_of_day(&self, at: Timestamp, until: Timestamp) -> (usize, Timestamp) {
        let bucket = self.bucket(at);
        let Some(millis) = self.width.unit().millis() else { return (1, bucket.to) };
        let next = self.zone.midnight(self.zone.day(at).tomorrow().ok());
        let length = next.min(until).millis() - bucket.from.millis();
        let width = millis * i64::from(self.width.count());
        (
            usize::try_from(length.div_euclid(width) + i64::from(length.rem_euclid(width) > 0)).unwrap_or(usize::MAX),
            next,
        )
    }

    fn of_day(&self, day: Date, at: Timestamp, width: i64) -> Stretch {
        let midnight = self.zone.midnight(Some(day)).millis();
        let next = self.zone.midnight(day.tomorrow().ok());
        let from = midnight + (at.millis() - midnight).div_euclid(width) * width;
        Stretch { from: Timestamp::from_millis(from), to: Timestamp::from_millis(from + width).min(next) }
    }

    /// Returns the first day of a day's bucket, and that of the next bucket.
    fn days(&self, day: Date) -> (Option<Date>, Option<Date>) {
        let count = i64::from(self.width.count());
        let by_days = |days: i64, offset: i64| {
            let since = days_since_zero(day) + offset;
            let first = since.div_euclid(days) * days - offset;
            (day_at(first), day_at(first + days))
        };
        let by_months = |months: i64| {
            let since = i64::from(day.year()) * 12 + i64::from(day.month()) - 1;
            let first = since.div_euclid(months) * months;
            (month_at(first), month_at(first + months))
        };
        match self.width.unit() {
            Unit::Week => by_days(7 * count, DAYS_SINCE_MONDAY),
            Unit::Month => by_months(count),
            Unit::Year => by_months(12 * count),
            _ => by_days(count, 0),
        }
    }
}

fn month_at(months: i64) -> Option<Date> {
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Returns the length in hours of a moment's bucket, and its start.
    fn bucket(width: &str, zone: &str, moment: &str) -> (String, f64) {
        let grid = Grid::new(width.parse().unwrap(), zone.parse().unwrap());
        let moment = if moment.matches(':').count() == 1 { moment.replace('Z', ":00Z") } else { moment.to_owned() };
        let Stretch { from, to } = grid.bucket(at(&moment));
        (from.to_string().replace(":00.000Z", "Z"), (to.millis() - from.millis()) as f64 / 3_600_000.0)
    }

    /// Checks the start of each bucket in UTC and its length in hours against values calculated by hand.
    // Holds: c13.every
    #[test]
    fn buckets_follow_clock_and_calendar() {
        for (width, zone, moment, begins, hours) in [
            ("15m", "UTC", "2026-03-01T10:44:59.999Z", "2026-03-01T10:30Z", 0.25),
            ("1h", "Asia/Kolkata", "2026-03-01T10:44Z", "2026-03-01T10:30Z", 1.0),
            ("1h", "Asia/Kathmandu", "2026-03-01T10:44Z", "2026-03-01T10:15Z", 1.0),
            // The last of a day is shorter.
            ("7h", "UTC", "2026-03-01T22:00Z", "2026-03-01T21:00Z", 3.0),
            // Days of 23 and 25 hours, and buckets counted from their midnights.
            ("1d", "Europe/Paris", "2026-03-29T12:00Z", "2026-03-28T23:00Z", 23.0),
            ("1d", "Europe/Paris", "2026-10-25T12:00Z", "2026-10-24T22:00Z", 25.0),
            ("12h", "Europe/Paris", "2026-10-25T22:30Z", "2026-10-25T22:00Z", 1.0),
            ("6h", "Europe/Paris", "2026-03-29T21:59Z", "2026-03-29T17:00Z", 5.0),
            // A DST shift of half an hour.
            ("1d", "Australia/Lord_Howe", "2026-04-05T00:00Z", "2026-04-04T13:00Z", 24.5),
            // Midnight is skipped: the clock goes from 24:00 to 01:00.
            ("1d", "America/Sao_Paulo", "2018-11-04T12:00Z", "2018-11-04T03:00Z", 23.0),
            // Midnight occurs twice; the hour belongs to the day before.
            ("1d", "America/Sao_Paulo", "2018-02-18T02:30Z", "2018-02-17T02:00Z", 25.0),
            ("1d", "America/Sao_Paulo", "2018-02-18T03:00Z", "2018-02-18T03:00Z", 24.0),
            // The zone skipped a day between these.
            ("1d", "Pacific/Apia", "2011-12-30T09:59Z", "2011-12-29T10:00Z", 24.0),
            ("1d", "Pacific/Apia", "2011-12-30T10:00Z", "2011-12-30T10:00Z", 24.0),
            ("1w", "UTC", "2026-11-22T23:59Z", "2026-11-16T00:00Z", 168.0),
            ("1w", "UTC", "1969-12-29T00:00Z", "1969-12-29T00:00Z", 168.0),
            ("1w", "Europe/Paris", "2026-03-25T12:00Z", "2026-03-22T23:00Z", 167.0),
            ("2w", "UTC", "2026-11-22T00:00Z", "2026-11-16T00:00Z", 336.0),
            ("3d", "UTC", "1970-01-03T23:00Z", "1970-01-01T00:00Z", 72.0),
            ("3d", "UTC", "1969-12-31T23:00Z", "1969-12-29T00:00Z", 72.0),
            // Months and years of different lengths.
            ("1mo", "UTC", "2024-02-29T00:00Z", "2024-02-01T00:00Z", 696.0),
            ("1mo", "UTC", "2026-02-28T23:00Z", "2026-02-01T00:00Z", 672.0),
            ("1mo", "Europe/Paris", "2026-03-15T00:00Z", "2026-02-28T23:00Z", 743.0),
            ("1mo", "UTC", "2100-02-10T00:00Z", "2100-02-01T00:00Z", 672.0),
            ("3mo", "UTC", "2026-12-31T23:59Z", "2026-10-01T00:00Z", 92.0 * 24.0),
            ("1y", "UTC", "2024-06-01T00:00Z", "2024-01-01T00:00Z", 366.0 * 24.0),
            ("10y", "UTC", "2026-06-01T00:00Z", "2020-01-01T00:00Z", 3653.0 * 24.0),
            ("1y", "America/New_York", "2026-01-01T04:59Z", "2025-01-01T05:00Z", 365.0 * 24.0),
            // The first and the last representable days.
            ("1h", "UTC", "0000-01-01T00:30Z", "0000-01-01T00:00Z", 1.0),
            ("6h", "UTC", "9999-12-31T07:00Z", "9999-12-31T06:00Z", 6.0),
            ("6h", "Asia/Kolkata", "9999-12-31T07:00Z", "9999-12-31T06:30Z", 6.0),
            ("1d", "UTC", "9999-12-30T23:00Z", "9999-12-30T00:00Z", 24.0),
            ("1d", "America/New_York", "9999-12-31T06:00Z", "9999-12-31T05:00Z", 68_399_999.0 / 3_600_000.0),
            ("1y", "UTC", "9999-12-31T00:00Z", "9999-01-01T00:00Z", 31_535_999_999.0 / 3_600_000.0),
        ] {
            assert_eq!(bucket(width, zone, moment), (begins.to_owned(), hours), "{width} in {zone} at {moment}");
        }
    }

    // Holds: c13.points
    #[test]
    fn narrowest_width_has_at_most_the_asked_buckets() {
        let stretch = Stretch { from: at("2026-11-01"), to: at("2026-11-08") };
        for (points, width) in
            [(5_000, "5m"), (2_016, "5m"), (2_015, "10m"), (100, "2h"), (7, "1d"), (6, "1w"), (2, "1w")]
        {
            let grid = Grid::narrowest(&Zone::default(), stretch, points).unwrap();
            assert_eq!(grid.width().to_string(), width, "{points}");
        }
        let all = Stretch { from: at("0000-01-01"), to: at("9999-12-31") };
        let grid = Grid::narrowest(&Zone::default(), all, 100).unwrap();
        assert_eq!((grid.width().to_string().as_str(), grid.count(all, 100)), ("100y", Some(100)));
        assert!(Grid::narrowest(&Zone::default(), all, 2).is_none());
        assert_eq!(Grid::new("1s".parse().unwrap(), Zone::default()).count(all, 10_000), None);
    }

    #[test]
    fn buckets_are_counted_across_days_of_every_length() {
        for (width, zone, from, to, count) in [
            ("1h", "Europe/Paris", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 23),
            ("1h", "Europe/Paris", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 25),
            ("7h", "UTC", "2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z", 8),
            ("7h", "UTC", "2026-03-01T06:59:59Z", "2026-03-02T00:00:00.001Z", 5),
            ("30m", "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z", 49),
            ("1d", "UTC", "2024-02-28T23:00:00Z", "2024-03-01T00:00:00.001Z", 3),
            ("1mo", "UTC", "2024-01-31", "2024-03-01", 2),
            ("1m", "UTC", "2026-01-01", "2026-01-01", 0),
        ] {
            let grid = Grid::new(width.parse().unwrap(), zone.parse().unwrap());
            assert_eq!(
                grid.count(Stretch { from: at(from), to: at(to) }, 100),
                Some(count),
                "{width} in {zone} from {from}"
            );
        }
    }

    fn any_width() -> impl Strategy<Value = Width> {
        let text = prop_oneof![
            (1..=86_400_u32).prop_map(|n| format!("{n}s")),
            (1..=1_440_u32).prop_map(|n| format!("{n}m")),
            (1..=24_u32).prop_map(|n| format!("{n}h")),
            (1..=400_u32).prop_map(|n| format!("{n}d")),
            (1..=60_u32).prop_map(|n| format!("{n}w")),
            (1..=30_u32).prop_map(|n| format!("{n}mo")),
            (1..=100_u32).prop_map(|n| format!("{n}y")),
        ];
        text.prop_map(|text| text.parse().unwrap())
    }

    /// Zones with rules of many kinds, and those farthest ahead of and behind UTC.
    fn any_zone() -> impl Strategy<Value = Zone> {
        let names = vec![
            "UTC",
            "Europe/Paris",
            "Asia/Kolkata",
            "America/Sao_Paulo",
            "Pacific/Apia",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
            "America/St_Johns",
            "Antarctica/Troll",
            "Asia/Tehran",
            "Pacific/Kiritimati",
            "Etc/GMT+12",
        ];
        prop::sample::select(names).prop_map(|name| name.parse().unwrap())
    }

    /// Moments of the present, of all time, and near both ends of it.
    fn any_moment() -> impl Strategy<Value = Timestamp> {
        const FIRST: i64 = Stretch::ALL.from.millis();
        const LAST: i64 = Stretch::ALL.to.millis();
        const ABOUT: i64 = 800 * 86_400_000;
        let millis = prop_oneof![0..4_102_444_800_000_i64, FIRST..LAST, FIRST..FIRST + ABOUT, LAST - ABOUT..LAST];
        millis.prop_map(Timestamp::from_millis)
    }

    proptest! {
        #[test]
        fn buckets_have_no_gap_and_no_overlap(
            width in any_width(),
            zone in any_zone(),
            at in any_moment(),
        ) {
            let (grid, bucket) = (Grid::new(width, zone.clone()), Grid::new(width, zone).bucket(at));
            let (first, last) = (Stretch::ALL.from, Stretch::ALL.to);
            prop_assert!(bucket.holds(at), "{bucket:?}");
            prop_assert_eq!(grid.bucket(bucket.from), bucket);
            if bucket.to < last {
                prop_assert_eq!(grid.bucket(bucket.to).from, bucket.to);
                prop_assert_eq!(grid.bucket(Timestamp::from_millis(bucket.to.millis() - 1)), bucket);
            }
            if bucket.from > first {
                prop_assert_eq!(grid.bucket(Timestamp::from_millis(bucket.from.millis() - 1)).to, bucket.from);
            }
        }

        #[test]
        fn buckets_of_an_interval_cover_it_and_match_the_count(
            width in any_width(),
            zone in any_zone(),
            from in any_moment(),
            length in prop_oneof![1..7_200_000_i64, 1..63_072_000_000_i64, 1..320_000_000_000_000_i64],
        ) {
            const MOST: usize = 300;
            let (grid, to) = (Grid::new(width, zone), Timestamp::from_millis(from.millis() + length));
            let (mut walked, mut at) = (0, from);
            while at < to && walked <= MOST {
                let bucket = grid.bucket(at);
                prop_assert!(bucket.holds(at) && (walked == 0 || bucket.from == at), "{bucket:?} at {at}");
                (walked, at) = (walked + 1, bucket.to);
            }
            let counted = grid.count(Stretch { from, to }, MOST);
            prop_assert_eq!(counted, (walked <= MOST).then_some(walked), "{} from {} to {}", width, from, to);
        }

        #[test]
        fn narrowest_round_width_is_found_for_any_interval(
            zone in any_zone(),
            from in any_moment(),
            length in prop_oneof![1..7_200_000_i64, 1..320_000_000_000_000_i64],
            points in 2..5_000_usize,
        ) {
            let stretch = Stretch { from, to: Timestamp::from_millis(from.millis() + length) };
            if let Some(grid) = Grid::narrowest(&zone, stretch, points) {
                prop_assert!(grid.count(stretch, points).is_some_and(|count| (1..=points).contains(&count)));
            } else {
                prop_assert!(points < 102, "{points} for {stretch:?}");
            }
        }
    }
}
