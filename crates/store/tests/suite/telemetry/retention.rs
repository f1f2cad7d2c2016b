//! Promises for retention of series: values beyond it are not visible in any way, and dropped ones stay gone.

use std::sync::Arc;

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::DeviceRef;
use isobar_model::page::TimeRange;
use isobar_model::retention::Kept;

use super::given::{self, at, id, page, texts, whole};
use isobar_store::telemetry::{Filter, FilterField, Operand, Operator, Telemetry, ValueQuery, ValueSort};

fn newest(values: u64) -> Kept {
    Kept { values: Some(values), ..Kept::default() }
}

fn since(millis: i64) -> Kept {
    Kept { not_before: Some(at(millis)), ..Kept::default() }
}

fn of_former(millis: i64, values: u64) -> Kept {
    Kept { of_former: vec![(at(millis), values)], ..Kept::default() }
}

fn numbers(range: impl Iterator<Item = i64>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn by(field: FilterField, descending: bool) -> Vec<ValueSort> {
    vec![ValueSort { field, descending }]
}

/// Returns a device with this many values, one for each millisecond, which is its number.
async fn with_values(t: &dyn Telemetry, count: i64) -> CanWrite<DeviceRef> {
    let device = given::device();
    for n in 0..count {
        given::run(t, &device, given::storing(id(n), &[("log", &n.to_string())])).await;
    }
    device
}

/// Checks that every way to read a series shows the numbers from `first` on.
async fn shows(t: &dyn Telemetry, device: &CanWrite<DeviceRef>, kept: &Kept, first: i64, end: i64) {
    let reading: CanRead<DeviceRef> = device.reading();
    let total = (end - first).max(0) as u64;
    let query = || ValueQuery { kept: kept.clone(), page: page(1, 1_000), ..ValueQuery::default() };
    let payload = || FilterField::Payload(Vec::new());
    let all = || Filter { field: payload(), operator: Operator::Gte, operands: vec![Operand::Number("0".to_owned())] };
    let oldest = ValueQuery { sort: by(FilterField::CreatedAt, false), ..query() };
    let ascending = [
        oldest.clone(),
        ValueQuery { filters: vec![all()], ..oldest.clone() },
        ValueQuery { sort: by(payload(), false), ..query() },
        ValueQuery { range: TimeRange { from: Some(at(-5)), to: None }, ..oldest.clone() },
    ];
    for ascending in ascending {
        assert_eq!(texts(t, device, "log", ascending).await, (numbers(first..end), total), "{kept:?}");
    }
    for descending in [query(), ValueQuery { filters: vec![all()], ..query() }] {
        assert_eq!(texts(t, device, "log", descending).await, (numbers((first..end).rev()), total), "{kept:?}");
    }
    let last = ValueQuery { page: page(total.max(1), 1), ..query() };
    let oldest_one = numbers((first..end).take(1));
    assert_eq!(texts(t, device, "log", last).await, (oldest_one, total), "{kept:?}");
    let exported = whole(t, &reading, "log", &oldest).await.unwrap();
    assert_eq!(exported.iter().map(|value| value.payload.text().to_owned()).collect::<Vec<_>>(), numbers(first..end));
    let range = TimeRange { from: Some(at(first - 10)), to: Some(at(first + 3)) };
    let some = ValueQuery { range, ..oldest };
    assert_eq!(texts(t, device, "log", some).await.0, numbers(first..end.min(first + 3)), "{kept:?}");
}

/// Checks that lists, totals, filters, orders and exports begin at the retained values, and that last values stay.
// Holds: c13.retention
pub async fn values_past_retention_are_hidden(t: &dyn Telemetry) {
    let device = with_values(t, 60).await;
    for (kept, first) in [
        (Kept::default(), 0),
        (newest(60), 0),
        (newest(1_000), 0),
        (newest(25), 35),
        (newest(1), 59),
        (since(20), 20),
        (since(-5), 0),
        (since(60), 60),
        (of_former(30, 10), 20),
        (of_former(500, 10), 50),
        (of_former(30, 100), 0),
        (Kept { values: Some(30), ..since(20) }, 30),
        (Kept { values: Some(50), ..since(20) }, 20),
        (Kept { not_before: Some(at(5)), values: Some(59), of_former: vec![(at(10), 2), (at(30), 10)] }, 20),
    ] {
        shows(t, &device, &kept, first, 60).await;
    }
    assert_eq!(t.last(&device.reading(), "log").await.unwrap().unwrap().values.text(), "59");
}

/// Checks that no query shows dropped values, whatever retention it passes, and that the others remain.
// Holds: c13.retentionStays
pub async fn dropped_values_stay_dropped(t: &dyn Telemetry) {
    let device = with_values(t, 600).await;
    let log: Arc<str> = "log".into();
    let drops = async |kept: Kept| t.series_retain(&device, vec![(Arc::clone(&log), kept)], false).await.unwrap();
    let before = t.series(&device.reading()).await.unwrap()[0].bytes;
    assert!(drops(newest(300)).await);
    assert!(!drops(newest(300)).await && !drops(newest(10_000)).await);
    let after = t.series(&device.reading()).await.unwrap()[0].bytes;
    assert!(after > 0 && after < before, "{before} {after}");
    shows(t, &device, &Kept::default(), 300, 600).await;
    shows(t, &device, &newest(10), 590, 600).await;
    // All of it, of a device that has gone silent: what comes then is all there is.
    assert!(drops(since(600)).await);
    shows(t, &device, &Kept::default(), 600, 600).await;
    let reading = device.reading();
    assert_eq!(t.last(&reading, "log").await.unwrap().unwrap().values.text(), "599");
    assert_eq!(t.series(&reading).await.unwrap()[0].bytes, 0);
    for n in 600..640 {
        given::store(t, &device, n, "log", &n.to_string()).await;
    }
    shows(t, &device, &Kept::default(), 600, 640).await;
    // A series that begins anew has lost nothing.
    assert!(t.series_delete(&device, Some("log")).await.unwrap());
    given::store(t, &device, 640, "log", "640").await;
    shows(t, &device, &Kept::default(), 640, 641).await;
}

/// Checks that the extent goes from the first visible value to the last, whatever other values exist or were visible.
// Holds: c13.retention
pub async fn series_extent_covers_visible_values(t: &dyn Telemetry) {
    let device = with_values(t, 60).await;
    let reading = device.reading();
    let extent = async |element: &str, kept: Kept, range: TimeRange| {
        let extent = t.extent(&reading, element, &kept, range, given::claim()).await.unwrap();
        extent.map(|(first, last)| (first.millis() - at(0).millis(), last.millis() - at(0).millis()))
    };
    let range = |from: Option<i64>, to: Option<i64>| TimeRange { from: from.map(at), to: to.map(at) };
    let all = || range(None, None);
    for (kept, within, expected) in [
        (Kept::default(), all(), Some((0, 59))),
        (newest(25), all(), Some((35, 59))),
        (newest(1), all(), Some((59, 59))),
        (since(20), all(), Some((20, 59))),
        (since(60), all(), None),
        (of_former(30, 10), all(), Some((20, 59))),
        (newest(25), range(Some(10), Some(40)), Some((35, 39))),
        (newest(25), range(None, Some(35)), None),
        (Kept::default(), range(Some(50), None), Some((50, 59))),
        (Kept::default(), range(Some(60), None), None),
        (Kept::default(), range(Some(40), Some(20)), None),
    ] {
        assert_eq!(extent("log", kept.clone(), within).await, expected, "{kept:?} {within:?}");
    }
    assert_eq!(extent("other", Kept::default(), all()).await, None);
    // Dropped values do not count, whatever retention is passed.
    assert!(t.series_retain(&device, vec![("log".into(), newest(10))], true).await.unwrap());
    assert_eq!(extent("log", Kept::default(), all()).await, Some((50, 59)));
    assert!(t.series_retain(&device, vec![("log".into(), since(60))], true).await.unwrap());
    assert_eq!(extent("log", Kept::default(), all()).await, None);
    given::store(t, &device, 70, "log", "70").await;
    assert_eq!(extent("log", Kept::default(), all()).await, Some((70, 70)));
}

/// Checks that bytes are those of visible values, before and after the hidden ones are dropped.
// Holds: c13.retentionSpace
pub async fn hidden_values_do_not_count_as_stored(t: &dyn Telemetry) {
    let device = given::device();
    for n in 0..60 {
        given::run(t, &device, given::storing(id(n), &[("log", "\"123456\""), ("free", "12")])).await;
    }
    let visible = async |kept: &[(&str, Kept)]| {
        let kept = kept.iter().map(|(element, kept)| (Arc::from(*element), kept.clone())).collect();
        t.visible_bytes(&device.reading(), kept).await.unwrap()
    };
    assert_eq!(visible(&[]).await, 60 * (8 + 2));
    for (kept, values) in [
        (Kept::default(), 60),
        (newest(1_000), 60),
        (newest(25), 25),
        (since(20), 40),
        (since(60), 0),
        (of_former(30, 10), 40),
        (Kept { values: Some(30), ..since(20) }, 30),
    ] {
        assert_eq!(visible(&[("log", kept.clone()), ("other", newest(1))]).await, values * 8 + 60 * 2, "{kept:?}");
    }
    assert!(t.series_retain(&device, vec![("log".into(), newest(20))], true).await.unwrap());
    for (kept, values) in [(Kept::default(), 20), (newest(20), 20), (newest(5), 5), (since(50), 10)] {
        assert_eq!(visible(&[("log", kept.clone())]).await, values * 8 + 60 * 2, "{kept:?}");
    }
    assert!(t.series_delete(&device, Some("log")).await.unwrap());
    assert_eq!(visible(&[("log", newest(5)), ("free", newest(1))]).await, 2);
    assert_eq!(t.visible_bytes(&given::device().reading(), vec![("log".into(), newest(5))]).await.unwrap(), 0);
}

/// Checks that a few values are not dropped unless they are all values, or `exactly` is set.
pub async fn few_values_are_dropped_on_request_only(t: &dyn Telemetry) {
    let device = with_values(t, 40).await;
    let drops =
        async |kept: Kept, exactly| t.series_retain(&device, vec![("log".into(), kept)], exactly).await.unwrap();
    assert!(!drops(newest(30), false).await);
    shows(t, &device, &Kept::default(), 0, 40).await;
    assert!(drops(newest(30), true).await);
    shows(t, &device, &Kept::default(), 10, 40).await;
    assert!(drops(since(40), false).await);
    shows(t, &device, &Kept::default(), 40, 40).await;
    assert!(!t.series_retain(&device, vec![("other".into(), newest(1))], true).await.unwrap());
}

/// Checks that such an export ends well, with the remaining values.
pub async fn export_omits_values_dropped_meanwhile(t: &dyn Telemetry) {
    let device = given::device();
    let large = "x".repeat(2_000);
    for n in 0..600 {
        given::run(t, &device, given::storing(id(n), &[("log", &format!("\"{n} {large}\""))])).await;
    }
    let reading = device.reading();
    let number = |text: &str| text[1..].split(' ').next().unwrap().parse::<i64>().unwrap();
    for (descending, keeps) in [(false, 300), (true, 200)] {
        let query = ValueQuery { sort: by(FilterField::CreatedAt, descending), ..ValueQuery::default() };
        let mut piece = t.values_chunk(&reading, "log", &query, None, given::claim()).await.unwrap().unwrap();
        let mut seen: Vec<i64> = piece.values.iter().map(|value| number(value.payload.text())).collect();
        assert!(piece.next.is_some());
        assert!(t.series_retain(&device, vec![("log".into(), newest(keeps))], true).await.unwrap());
        while let Some(next) = piece.next {
            piece = t.values_chunk(&reading, "log", &query, Some(next), given::claim()).await.unwrap().unwrap();
            seen.extend(piece.values.iter().map(|value| number(value.payload.text())));
        }
        let shown: Vec<i64> = (600 - keeps as i64..600).collect();
        assert!(shown.iter().all(|n| seen.contains(n)), "{descending}");
        assert!(seen.is_sorted_by(|one, next| if descending { one > next } else { one < next }), "{descending}");
    }
}
