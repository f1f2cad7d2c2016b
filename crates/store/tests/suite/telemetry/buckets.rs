//! Buckets of time: the same as looking at every value by oneself.

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::access::CanWrite;
use isobar_model::buckets::{BUCKETS_MAX, Function, Functions, Grid, Told, Zone};
use isobar_model::ids::DeviceRef;
use isobar_model::page::TimeRange;
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;

use super::given::{self, at, id, json};
use isobar_store::error::StoreError;
use isobar_store::telemetry::{
    BucketQuery, BucketSeries, Buckets, Commit, Filter, FilterField, NewValue, Operand, Operator, PayloadTime,
    Telemetry,
};

fn query(every: Option<&str>, fields: &[&str], functions: Functions) -> BucketQuery {
    let path = |field: &&str| field.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect();
    BucketQuery {
        fields: fields.iter().map(path).collect(),
        functions,
        grid: every.map(|every| Grid::new(every.parse().unwrap(), Zone::default())),
        range: TimeRange { from: None, to: None },
        filters: Vec::new(),
        time: None,
    }
}

async fn ask(
    t: &dyn Telemetry,
    devices: &[&CanWrite<DeviceRef>],
    query: &BucketQuery,
) -> Result<(Vec<(Timestamp, u64, Vec<Vec<String>>)>, u64, u64), StoreError> {
    ask_for_kept(t, devices, query, &Kept::default()).await
}

async fn ask_for_kept(
    t: &dyn Telemetry,
    devices: &[&CanWrite<DeviceRef>],
    query: &BucketQuery,
    kept: &Kept,
) -> Result<(Vec<(Timestamp, u64, Vec<Vec<String>>)>, u64, u64), StoreError> {
    let mut buckets = Buckets::new(Arc::new(query.clone()), Box::new(Some));
    for device in devices {
        buckets = t.buckets(&device.reading(), "log", kept, buckets, given::claim()).await?.0;
    }
    let BucketSeries { buckets: found, values, skipped, .. } = buckets.take_series()?;
    let told = |told: Option<Told<'_>>| match told {
        None => "-".to_owned(),
        Some(Told::Whole(count)) => count.to_string(),
        Some(Told::Number(number)) => number.to_string(),
        Some(Told::Sent(text)) => text.to_owned(),
    };
    let rows = found.into_iter().map(|(from, bucket)| {
        let fields = bucket.fields.iter();
        let fields = fields.map(|tally| query.functions.each().map(|function| told(tally.told(function))).collect());
        (from, bucket.count, fields.collect())
    });
    Ok((rows.collect(), values, skipped))
}

fn functions(names: &[Function]) -> Functions {
    names.iter().copied().collect()
}

/// Checks that values beyond retention are in no bucket, even if they were cached before.
// Holds: c13.retention
pub async fn buckets_exclude_values_past_retention(t: &dyn Telemetry) {
    let device = given::device();
    for n in 0..50 {
        given::store(t, &device, n * 1_000, "log", &n.to_string()).await;
    }
    let asked = query(None, &[""], functions(&[Function::Count, Function::Min, Function::Max]));
    let of = |count: &str, min: &str, max: &str| vec![vec![count.to_owned(), min.to_owned(), max.to_owned()]];
    for (kept, row, values) in [
        (Kept::default(), of("50", "0", "49"), 50),
        (Kept { values: Some(10), ..Kept::default() }, of("10", "40", "49"), 10),
        (Kept { not_before: Some(at(45_000)), ..Kept::default() }, of("5", "45", "49"), 5),
    ] {
        let (rows, counted, _) = ask_for_kept(t, &[&device], &asked, &kept).await.unwrap();
        assert_eq!(counted, values, "{kept:?}");
        assert_eq!(rows.into_iter().map(|(_, _, told)| told).collect::<Vec<_>>(), [row], "{kept:?}");
    }
}

/// Checks that count, sum, least, greatest, first and last of each bucket are those of its values, of one series and of
/// several, and that values that are no numbers are counted separately.
// Holds: c13.fields
pub async fn buckets_include_every_value(t: &dyn Telemetry) {
    let devices = [given::device(), given::device()];
    let [one, other] = &devices;
    let mut stored = Vec::new();
    for n in 0..300_i64 {
        let (millis, device) = (n * 700, if n % 3 == 0 { other } else { one });
        let payload = match n % 10 {
            7 => r#"{"b":1}"#.to_owned(),
            8 => format!(r#"{{"a":"{n}"}}"#),
            _ => format!(r#"{{"a":{}.50,"b":{{"c":{n}}}}}"#, n * 37 % 101 - 50),
        };
        given::store(t, device, millis, "log", &payload).await;
        stored.push((millis, n % 3 == 0, n));
    }
    let asked =
        functions(&[Function::Count, Function::Sum, Function::Min, Function::Max, Function::First, Function::Last]);
    for (every, width) in [(Some("1s"), 1_000), (Some("10s"), 10_000), (Some("1h"), 3_600_000)] {
        for alone in [true, false] {
            let devices: &[_] = if alone { &[other] } else { &[one, other] };
            let (rows, values, skipped) = ask(t, devices, &query(every, &["a"], asked)).await.unwrap();
            let mut expected: BTreeMap<i64, (u64, Vec<i64>)> = BTreeMap::new();
            let mut missing = 0;
            for (millis, _, n) in stored.iter().filter(|(_, is_other, _)| *is_other || !alone) {
                let bucket = expected.entry(at(*millis).millis().div_euclid(width) * width).or_default();
                bucket.0 += 1;
                if matches!(n % 10, 7 | 8) {
                    missing += 1;
                } else {
                    bucket.1.push(n * 37 % 101 - 50);
                }
            }
            assert_eq!((values, skipped), (if alone { 100 } else { 300 }, missing), "{every:?}");
            let number = |whole: i64| whole as f64 + if whole < 0 { -0.5 } else { 0.5 };
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(from, (count, numbers))| {
                    let all: Vec<f64> = numbers.iter().copied().map(number).collect();
                    let told = |number: Option<f64>| number.map_or("-".to_owned(), |number| number.to_string());
                    let sent = |whole: Option<&i64>| whole.map_or("-".to_owned(), |whole| format!("{whole}.50"));
                    let sum = (!all.is_empty()).then(|| all.iter().sum());
                    let row = vec![
                        all.len().to_string(),
                        told(sum),
                        told(all.iter().copied().reduce(f64::min)),
                        told(all.iter().copied().reduce(f64::max)),
                        sent(numbers.first()),
                        sent(numbers.last()),
                    ];
                    (Timestamp::from_millis(from), count, vec![row])
                })
                .collect();
            assert_eq!(rows, expected, "{every:?}, alone: {alone}");
        }
    }
    // Deep paths, several fields, filters, a range, and all in one.
    let count = functions(&[Function::Count]);
    let operands = vec![Operand::Number("100".to_owned())];
    let path = FilterField::Payload(vec!["b".to_owned(), "c".to_owned()]);
    let filters = vec![Filter { field: path, operator: Operator::Gte, operands }];
    let range = TimeRange { from: None, to: Some(at(200 * 700)) };
    let narrow = BucketQuery { filters, range, ..query(None, &["b.c", "a", ""], count) };
    let (rows, values, skipped) = ask(t, &[one, other], &narrow).await.unwrap();
    assert_eq!((rows.len(), values, skipped), (1, 80, 80));
    assert_eq!(rows[0].2, [["80"], ["80"], ["0"]]);
    let none = ask(t, &[&given::device()], &query(Some("1s"), &["a"], count)).await.unwrap();
    assert_eq!(none, (Vec::new(), 0, 0));
}

/// Checks buckets whose time axis is in the payload: values that were stored too long after that time are left out, and
/// so are values without a time.
// Holds: c13.timeField
pub async fn buckets_by_payload_time_include_late_values(t: &dyn Telemetry) {
    let device = given::device();
    let base = at(0).millis();
    for (stored, told) in
        [(10, "9"), (2_000, "1000"), (9_000, "11"), (61_000, "999"), (61_001, "1000.5"), (70_000, "null")]
    {
        let told = match told.parse::<f64>() {
            Ok(millis) => format!("{}", base as f64 + millis),
            Err(_) => told.to_owned(),
        };
        given::store(t, &device, stored, "log", &format!(r#"{{"n":{stored},"t":{told}}}"#)).await;
    }
    let time = Some(PayloadTime { path: vec!["t".to_owned()], late_millis: 60_000 });
    let range = TimeRange { from: Some(at(0)), to: Some(at(1_001)) };
    let asked = BucketQuery { time, range, ..query(Some("1s"), &["n"], functions(&[Function::First, Function::Last])) };
    let (rows, values, skipped) = ask(t, &[&device], &asked).await.unwrap();
    let row =
        |millis, count, first: &str, last: &str| (at(millis), count, vec![vec![first.to_owned(), last.to_owned()]]);
    // 61,000 is 60,001 ms after 999: too late; what was stored later than that is not looked at.
    assert_eq!(rows, [row(0, 2, "10", "9000"), row(1_000, 1, "2000", "2000")]);
    assert_eq!((values, skipped), (3, 0));
}

/// Checks that more buckets than an answer may have are refused.
// Holds: c13.bucketsMax
pub async fn buckets_are_bounded(t: &dyn Telemetry) {
    let device = given::device();
    // Many at a time: what is durable together costs little.
    let all: Vec<i64> = (0..=BUCKETS_MAX as i64).collect();
    for some in all.chunks(500) {
        let value = |n: &i64| NewValue { event: id(n * 1_000), element: "log".into(), payload: json("1") };
        given::run(t, &device, Commit { values: some.iter().map(value).collect(), ..Commit::default() }).await;
    }
    let count = functions(&[Function::Count]);
    let refused = ask(t, &[&device], &query(Some("1s"), &[""], count)).await;
    assert!(matches!(refused, Err(StoreError::TooMuch)));
    let range = TimeRange { from: Some(at(1_000)), to: None };
    let (rows, values, _) =
        ask(t, &[&device], &BucketQuery { range, ..query(Some("1s"), &[""], count) }).await.unwrap();
    assert_eq!((rows.len(), values), (BUCKETS_MAX, BUCKETS_MAX as u64));
}
