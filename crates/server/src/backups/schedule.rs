//! Schedules of backups: five fields as in cron(8) (minute, hour, day of the month, month, day of the week), in UTC.

use isobar_model::time::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};

/// Days that are searched for the next moment: a 29 February may be eight years away.
const DAYS_LOOKED_THROUGH: usize = 366 * 9;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const EXAMPLE: &str = "must be five fields of cron like \"15 3 * * *\" (3:15 UTC every day)";

/// The minutes at which a backup is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if both kinds of days are restricted: as in cron, either then makes a day due.
    either_day: bool,
}

impl Schedule {
    /// Parses the five fields.
    pub fn read(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("{EXAMPLE}, not {text:?}"));
        };
        let either_day = !days.starts_with('*') && !weekdays.starts_with('*');
        let weekdays = field("day of the week", weekdays, 0, 7, &WEEKDAYS)?;
        let schedule = Self {
            minutes: field("minute", minutes, 0, 59, &[])?,
            hours: field("hour", hours, 0, 23, &[])?,
            days: field("day of the month", days, 1, 31, &[])?,
            months: field("month", months, 1, 12, &MONTHS)?,
            // Sunday is 0 and 7.
            weekdays: weekdays | (weekdays >> 7 & 1),
            either_day,
        };
        match schedule.after(Timestamp::from_millis(0)) {
            Some(_) => Ok(schedule),
            None => Err(format!("{text:?} names no day that there is")),
        }
    }

    /// Returns the first due moment after this one.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let moment = jiff::Timestamp::from_millisecond(moment.millis()).ok()?.to_zoned(TimeZone::UTC);
        let from = moment.datetime().checked_add(1_i32.minute()).ok()?;
        let dates = std::iter::successors(Some(from.date()), |date| date.tomorrow().ok());
        let due = dates.take(DAYS_LOOKED_THROUGH).filter(|date| self.has_day(*date)).find_map(|date| {
            let earliest = if date == from.date() { (from.hour(), from.minute()) } else { (0, 0) };
            self.time_from(earliest).map(|(hour, minute)| date.at(hour, minute, 0, 0))
        });
        due.and_then(in_utc).map(|due| Timestamp::from_millis(due.timestamp().as_millisecond()))
    }

    fn has_day(&self, date: Date) -> bool {
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let day = has(self.days, date.day());
        has(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }

    /// Returns the first due time of a day that is not before this one.
    fn time_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        let of_hour = |at: i8| (if at == hour { minute } else { 0 }..60).find(|minute| has(self.minutes, *minute));
        (hour..24).filter(|at| has(self.hours, *at)).find_map(|at| of_hour(at).map(|minute| (at, minute)))
    }
}

fn in_utc(moment: DateTime) -> Option<Zoned> {
    moment.to_zoned(TimeZone::UTC).ok()
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set >> number & 1 == 1)
}

/// Parses a list of numbers, ranges and steps into a set of bits.
fn field(name: &str, text: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    let wrong = || format!("the {name} must be made of numbers from {least} to {most} as cron has them, not {text:?}");
    let number = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name)).and_then(|at| u32::try_from(at).ok());
        let number = named.map(|at| at + least).or_else(|| text.parse().ok());
        number.filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
    };
    let mut set = 0;
    for item in text.split(',') {
        let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
        let (first, last) = match range.split_once('-') {
            None if range == "*" => (least, most),
            None => (number(range)?, if step.is_some() { most } else { number(range)? }),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        let step = step.map_or(Ok(1), |step| step.parse::<usize>().ok().filter(|step| *step > 0).ok_or_else(wrong))?;
        if first > last {
            return Err(wrong());
        }
        set |= (first..=last).step_by(step).fold(0, |set, number| set | 1 << number);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let due = Schedule::read(schedule).unwrap().after(after.parse().unwrap()).unwrap().to_string();
        due.strip_suffix(":00.000Z").unwrap().to_owned()
    }

    #[test]
    fn schedule_finds_the_next_moment() {
        // 26 November 2026 is a Thursday.
        let now = "2026-11-26T12:34:56.789Z";
        for (schedule, due) in [
            ("* * * * *", "2026-11-26T12:35"),
            ("*/20 * * * *", "2026-11-26T12:40"),
            ("34 * * * *", "2026-11-26T13:34"),
            ("15 3 * * *", "2026-11-27T03:15"),
            ("0 3 * * sun", "2026-11-29T03:00"),
            ("0 3 * * 7", "2026-11-29T03:00"),
            ("0 3 1 * *", "2026-12-01T03:00"),
            ("0 3 1 * mon", "2026-11-30T03:00"),
            ("0,30 8-10/2 * jan,Jul 1-5", "2027-01-01T08:00"),
            ("59 23 31 12 *", "2026-12-31T23:59"),
            ("0 0 29 2 *", "2028-02-29T00:00"),
            ("5/20 * * * *", "2026-11-26T12:45"),
        ] {
            assert_eq!(next(schedule, now), due, "{schedule}");
        }
        assert_eq!(next("35 12 * * *", "2026-11-26T12:35:00.000Z"), "2026-11-27T12:35", "not the same again");
    }

    #[test]
    fn impossible_schedule_is_refused() {
        for bad in ["", "daily", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"]
            .into_iter()
            .chain(["* * * * 8", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "1, * * * *", "0 0 30 2 *", "a * * * *"])
        {
            assert!(Schedule::read(bad).is_err(), "{bad}");
        }
    }
}
