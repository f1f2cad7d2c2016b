//! Times and durations in expressions, in UTC.

use isobar_model::time::Timestamp;

use super::functions::Function;
use crate::value::{Computed, Problem};

const MILLIS_PER_SECOND: i64 = 1000;
const MILLIS_PER_MINUTE: i64 = 60 * MILLIS_PER_SECOND;
const MILLIS_PER_HOUR: i64 = 60 * MILLIS_PER_MINUTE;
const MILLIS_PER_DAY: i64 = 24 * MILLIS_PER_HOUR;
const NANOS_PER_MILLI: i128 = 1_000_000;
const BILLION: i128 = 1_000_000_000;
/// Earliest time in milliseconds: 0001-01-01T00:00:00Z.
const MOMENT_MIN: i64 = -62_135_596_800_000;
/// Longest duration, about 10,000 years, in milliseconds.
const DURATION_MAX: u64 = 315_576_000_000_000;
/// 1970-01-01 was a Thursday; Sunday is 0.
const WEEKDAY_OF_EPOCH: i64 = 4;

/// Checks that a time is within the years of CEL, 1 to 9999.
pub(crate) fn moment(millis: Option<i64>) -> Computed<i64> {
    millis
        .filter(|millis| *millis >= MOMENT_MIN && Timestamp::from_millis(*millis).millis() == *millis)
        .ok_or_else(|| Problem::new("the timestamp is out of range"))
}

/// Checks that a duration is within the range of CEL.
pub(crate) fn bounded_duration(millis: Option<i64>) -> Computed<i64> {
    millis
        .filter(|millis| millis.unsigned_abs() <= DURATION_MAX)
        .ok_or_else(|| Problem::new("the duration is out of range"))
}

/// Parses `1h30m`, `-2.5s`, `100ms` (durations of CEL); digits below a millisecond are dropped.
pub(crate) fn read_duration(text: &str) -> Computed<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if digits == "0" { Some(0) } else { read_units(digits) };
    let nanos = nanos.ok_or_else(|| Problem::new("a duration is written like '90s' or '1h30m'"))?;
    bounded_duration(i64::try_from(sign * nanos / NANOS_PER_MILLI).ok())
}

fn read_units(mut rest: &str) -> Option<i128> {
    let mut nanos = 0_i128;
    loop {
        let (amount, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, next) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let nanos_per_unit = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => NANOS_PER_MILLI,
            "us" | "µs" => 1000,
            "ns" => 1,
            _ => return None,
        };
        nanos = nanos.checked_add(read_billionths(amount)?.checked_mul(nanos_per_unit)? / BILLION)?;
        if next.is_empty() {
            return Some(nanos);
        }
        rest = next;
    }
}

/// Parses an unsigned decimal in billionths; further digits are dropped.
fn read_billionths(decimal: &str) -> Option<i128> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 15 || fraction.contains('.') {
        return None;
    }
    let padded: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    Some(whole * BILLION + padded.parse::<i128>().ok()?)
}

/// Formats a duration in seconds, as CEL does: `90s`, `1.5s`.
pub(crate) fn duration_text(millis: i64) -> String {
    let (seconds, rest) = (millis / MILLIS_PER_SECOND, (millis % MILLIS_PER_SECOND).abs());
    if rest == 0 {
        return format!("{seconds}s");
    }
    let sign = if millis < 0 && seconds == 0 { "-" } else { "" };
    let fraction = format!("{rest:03}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// Returns a part of a time; months, days of the month, of the week and of the year count from 0, `getDate` from 1.
pub(crate) fn part_of_time(part: Function, millis: i64) -> i64 {
    let text = Timestamp::from_millis(millis).text();
    let number =
        |from: usize, to: usize| text[from..to].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let days = millis.div_euclid(MILLIS_PER_DAY);
    match part {
        Function::GetFullYear => number(0, 4),
        Function::GetMonth => number(5, 7) - 1,
        Function::GetDate => number(8, 10),
        Function::GetDayOfMonth => number(8, 10) - 1,
        Function::GetDayOfWeek => (days + WEEKDAY_OF_EPOCH).rem_euclid(7),
        Function::GetDayOfYear => {
            let new_year = format!("{:04}-01-01", number(0, 4)).parse::<Timestamp>().unwrap_or_default();
            days - new_year.millis().div_euclid(MILLIS_PER_DAY)
        }
        Function::GetHours => number(11, 13),
        Function::GetMinutes => number(14, 16),
        Function::GetSeconds => number(17, 19),
        _ => number(20, 23),
    }
}

/// Converts a duration to a unit; its milliseconds are those beyond the last whole second. `None` for parts that only a
/// time has.
pub(crate) fn part_of_duration(part: Function, millis: i64) -> Option<i64> {
    match part {
        Function::GetHours => Some(millis / MILLIS_PER_HOUR),
        Function::GetMinutes => Some(millis / MILLIS_PER_MINUTE),
        Function::GetSeconds => Some(millis / MILLIS_PER_SECOND),
        Function::GetMilliseconds => Some(millis % MILLIS_PER_SECOND),
        _ => None,
    }
}
