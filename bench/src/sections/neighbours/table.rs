//! The figures of the section.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::{grouped, megabytes, millis, verdict};
use super::Row;
use super::good::{GRACE, KINDS, MEMORY_MAX};
use super::malice::LINKED;
use crate::{Failure, Options};

/// How many times the 99th percentile of the good tenant may become.
const FACTOR: f64 = 2.0;
/// It may become this all the same: nobody notices less.
const P99_FINE: Duration = Duration::from_millis(20);
/// What it may become where it was less.
const P99_MAX: Duration = Duration::from_millis(250);
/// What the process may take more than before, in bytes: a tenant that was not there fills caches and write buffers,
/// which have bounds of their own.
const GROWTH_MAX: u64 = 256 << 20;

pub fn text(options: &Options, rows: &[Row]) -> Result<String, Failure> {
    let mut table = String::from(
        "| beside | what it is answered | p99 of all | events | devices | data | lists | stream | alarms | log-ins | memory | target |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows {
        write!(
            table,
            "| {} | {} | {}",
            row.name,
            answers(row),
            times(row.alone.p99_of_all()?, row.beside.p99_of_all()?)
        )?;
        for kind in 0..KINDS.len() {
            write!(table, " | {}", times(row.alone.p99(kind), row.beside.p99(kind)))?;
        }
        let (before, peak) = row.memory;
        let memory = if peak == 0 { String::new() } else { format!("{} → {}", megabytes(before), megabytes(peak)) };
        writeln!(table, " | {memory} | {} |", target(row)?)?;
    }
    let missed = rows.iter().filter_map(|row| target(row).ok()).filter(|target| target.starts_with("**")).count();
    writeln!(
        table,
        "\n{} of {} hold. Times are 99th percentiles of one well-behaved tenant, alone → beside the hostile one, the medians of {} turns of {} s (bodies that drip \
         and intervals: once, and longer); targets: at most {FACTOR:.0} times that alone or {}, whichever is more, for each kind of call, at most {} where it was less, no call \
         refused, and at most {} more memory of the process at its peak. The well-behaved tenant has 20 devices, which post 100 events a second, and one that raises 5 alarms a second, whose time is that from sending an event until the list of alarms has it; it reads devices, data and lists 40 \
         times a second each and follows its stream, whose time is that from sending an event to being told of it. Each hostile tenant has a server of its own, whose rate limits are counted but \
         never reached (but that of addresses, 600, where passwords are guessed), and sends from a thread of its own: large bodies 4 a second, small ones up to 2,000. Links lead to each of {} types of elements. What it is answered: \
         the {} most frequent answers and errors on its newest events, and how often. A case is ended, and its server killed, when calls are not answered within {} s, or the process takes more than {} GiB.",
        rows.len() - missed,
        rows.len(),
        options.rounds,
        options.seconds as f64 / f64::from(super::PART_OF_A_ROUND),
        millis(P99_FINE),
        millis(P99_MAX),
        megabytes(GROWTH_MAX),
        LINKED.len(),
        super::ANSWERS_TOLD,
        GRACE.as_secs(),
        MEMORY_MAX >> 30
    )?;
    Ok(table)
}

/// A row for who watches.
pub fn line(row: &Row) -> Result<String, Failure> {
    let all = times(row.alone.p99_of_all()?, row.beside.p99_of_all()?);
    Ok(format!("beside {}: {all}, {}", row.name, target(row)?))
}

fn answers(row: &Row) -> String {
    let told = |(what, count): &(String, usize)| format!("{} ({})", what.replace('|', "\\|"), grouped(*count as f64));
    row.answers.iter().map(told).collect::<Vec<_>>().join("; ")
}

fn times(alone: Option<Duration>, beside: Option<Duration>) -> String {
    match (alone, beside) {
        (Some(alone), Some(beside)) => format!("{} → {}", millis(alone), millis(beside)),
        (Some(alone), None) => format!("{} →", millis(alone)),
        _ => String::new(),
    }
}

/// Whether everything holds, and if not, what does not.
fn target(row: &Row) -> Result<String, Failure> {
    if row.beside.p99_of_all()?.is_none() && row.ended.is_none() {
        return Ok("holds: it cannot be begun".to_owned());
    }
    let mut misses: Vec<String> = row.ended.iter().cloned().collect();
    let all = [("all", row.alone.p99_of_all()?, row.beside.p99_of_all()?)];
    let kinds = KINDS.iter().enumerate().map(|(kind, name)| (*name, row.alone.p99(kind), row.beside.p99(kind)));
    for (name, alone, beside) in all.into_iter().chain(kinds) {
        if let (Some(alone), Some(beside)) = (alone, beside)
            && !is_fine(alone, beside)
        {
            misses.push(format!("{name} {:.1} times", beside.as_secs_f64() / alone.as_secs_f64()));
        }
    }
    if let Some((count, how)) = row.beside.failures() {
        misses.push(format!("{} calls failed, most: {how}", grouped(count as f64)));
    }
    if row.memory.1 > row.memory.0 + GROWTH_MAX {
        misses.push(format!("{} more memory", megabytes(row.memory.1 - row.memory.0)));
    }
    misses.extend(row.lacks.clone());
    match misses.is_empty() {
        true => Ok(verdict(true).to_owned()),
        false => Ok(format!("{}: {}", verdict(false), misses.join("; "))),
    }
}

fn is_fine(alone: Duration, beside: Duration) -> bool {
    beside <= alone.mul_f64(FACTOR).max(P99_FINE) && (alone >= P99_MAX || beside <= P99_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_may_double_or_be_20_ms_but_not_pass_250() {
        let millis = Duration::from_millis;
        for (alone, beside, fine) in [
            (5, 20, true),
            (5, 21, false),
            (15, 30, true),
            (15, 31, false),
            (200, 250, true),
            (200, 251, false),
            (300, 600, true),
        ] {
            assert_eq!(is_fine(millis(alone), millis(beside)), fine, "{alone} {beside}");
        }
    }
}
