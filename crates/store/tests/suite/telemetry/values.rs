//! Stored values: pages, filters, orders, last values, deletion.

use std::collections::BTreeSet;

use isobar_model::ids::EventId;
use isobar_model::json::LAST_BYTES_MAX;
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;

use super::given::{self, at, id, page, texts};
use isobar_store::telemetry::{Filter, FilterField, Operand, Operator, Telemetry, ValueQuery, ValueSort};

fn path(dotted: &str) -> FilterField {
    match dotted {
        "id" => FilterField::Id,
        "createdAt" => FilterField::CreatedAt,
        "" => FilterField::Payload(Vec::new()),
        _ => FilterField::Payload(dotted.split('.').map(str::to_owned).collect()),
    }
}

fn sort(keys: &[&str]) -> Vec<ValueSort> {
    let key = |key: &&str| ValueSort { field: path(key.trim_start_matches('-')), descending: key.starts_with('-') };
    keys.iter().map(key).collect()
}

fn only(field: &str, operator: Operator, operands: &[Operand]) -> ValueQuery {
    let filters = vec![Filter { field: path(field), operator, operands: operands.to_vec() }];
    ValueQuery { filters, page: page(1, 1_000), sort: sort(&["createdAt"]), ..ValueQuery::default() }
}

/// Checks that totals are exact and pages complete, by time, in both directions, and past the end.
// Holds: c6.totalDocs
pub async fn pages_and_totals_are_exact(t: &dyn Telemetry) {
    let device = given::device();
    for n in 0..200 {
        given::store(t, &device, n / 2, "log", &n.to_string()).await;
    }
    let newest: Vec<String> = (0..200).rev().map(|n: i32| n.to_string()).collect();
    for (number, limit, expected) in [(1, 100, &newest[..100]), (3, 70, &newest[140..]), (4, 70, &[]), (9, 100, &[])] {
        let query = ValueQuery { page: page(number, limit), ..ValueQuery::default() };
        assert_eq!(texts(t, &device, "log", query).await, (expected.to_vec(), 200));
    }
    let oldest = ValueQuery { page: page(2, 3), sort: sort(&["createdAt"]), ..ValueQuery::default() };
    assert_eq!(texts(t, &device, "log", oldest).await.0, ["3", "4", "5"]);
    for (from, to, expected) in [
        (None, None, 200),
        (Some(0), Some(100), 200),
        (Some(10), Some(20), 20),
        (Some(99), None, 2),
        (None, Some(1), 2),
        (Some(100), None, 0),
        (Some(20), Some(10), 0),
        (Some(10), Some(10), 0),
        (None, Some(-5), 0),
    ] {
        let range = TimeRange { from: from.map(at), to: to.map(at) };
        let query = ValueQuery { range, page: page(1, 1_000), ..ValueQuery::default() };
        let (found, total) = texts(t, &device, "log", query).await;
        assert_eq!((found.len(), total), (expected, expected as u64), "{from:?} {to:?}");
    }
}

/// Checks that values are in the order in which they were stored, and that ranges of time select one part of that
/// order.
pub async fn values_keep_storage_order_after_a_clock_step_back(t: &dyn Telemetry) {
    let device = given::device();
    for (n, millis) in [10, 20, 15, 5, 30, 29, 40].into_iter().enumerate() {
        given::store(t, &device, millis, "log", &n.to_string()).await;
    }
    let all = texts(t, &device, "log", ValueQuery::default()).await;
    assert_eq!(all, (["6", "5", "4", "3", "2", "1", "0"].map(str::to_owned).to_vec(), 7));
    let range = TimeRange { from: Some(at(20)), to: Some(at(40)) };
    let some = texts(t, &device, "log", ValueQuery { range, ..ValueQuery::default() }).await;
    assert_eq!(some, (["5", "4", "3", "2", "1"].map(str::to_owned).to_vec(), 5));
    let history = given::history(t, &device.reading()).await;
    assert_eq!((history.total, history.items.len()), (7, 7));
    // Visible times never decrease, and are within the ranges that find them.
    let shown = [10, 20, 20, 20, 30, 30, 40].map(at);
    let page = t.values(&device.reading(), "log", ValueQuery::default(), given::claim()).await.unwrap().unwrap();
    assert!(page.items.iter().rev().map(|value| value.created_at).eq(shown));
    assert!(history.items.iter().rev().map(|event| event.received_at).eq(shown));
    for moment in shown {
        let range = TimeRange { from: Some(moment), to: Some(Timestamp::from_millis(moment.millis() + 1)) };
        let found = given::whole(t, &device.reading(), "log", &ValueQuery { range, ..ValueQuery::default() }).await;
        let there = page.items.iter().filter(|value| value.created_at == moment).count();
        assert!(found.is_some_and(|found| found.len() == there && found[0].created_at == moment));
    }
    assert_eq!(t.last(&device.reading(), "log").await.unwrap().unwrap().values.text(), "6");
}

/// Values that are filtered.
const FILTERED: [&str; 10] = [
    r#"{"a":1}"#,
    r#"{"a":2.0}"#,
    r#"{"a":"2"}"#,
    r#"{"a":true}"#,
    r#"{"a":null}"#,
    r#"{"b":2}"#,
    r#"{"a":[5,{"b":"x"}]}"#,
    "7",
    r#"{"a":"é\n"}"#,
    r#"{ "\u0061" : 9007199254740993 }"#,
];

/// A field, an operator and its operands, and for which of them it holds.
type FilterCase = (&'static str, Operator, Vec<Operand>, &'static [usize]);

fn number(text: &str) -> Operand {
    Operand::Number(text.to_owned())
}

fn word(text: &str) -> Operand {
    Operand::Text(text.to_owned())
}

fn filter_cases(ids: &[EventId]) -> Vec<FilterCase> {
    use Operator::{Eq, Gt, Gte, In, Lt, Lte, Ne, Nin};
    vec![
        ("a", Eq, vec![number("2")], &[1]),
        ("a", Ne, vec![number("2")], &[0, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("a", Gt, vec![number("1")], &[1, 9]),
        ("a", Gte, vec![number("1")], &[0, 1, 9]),
        ("a", Lt, vec![number("2")], &[0]),
        ("a", Lte, vec![number("2")], &[0, 1]),
        ("a", In, vec![number("1"), word("2"), Operand::Bool(true)], &[0, 2, 3]),
        ("a", Nin, vec![number("1"), Operand::Null], &[1, 2, 3, 5, 6, 7, 8, 9]),
        ("a", Eq, vec![Operand::Null], &[4]),
        ("a", Gte, vec![Operand::Null], &[]),
        ("a", Gt, vec![word("2")], &[8]),
        ("a", Eq, vec![word("é\n")], &[8]),
        ("a", Eq, vec![number("9007199254740993")], &[9]),
        ("a", Gt, vec![number("9007199254740992")], &[9]),
        ("a.0", Eq, vec![number("5")], &[6]),
        ("a.1.b", Eq, vec![word("x")], &[6]),
        ("a.1.c", Ne, vec![word("x")], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("a.1.c", Lt, vec![word("x")], &[]),
        ("", Eq, vec![number("7")], &[7]),
        ("", Ne, vec![number("7")], &[0, 1, 2, 3, 4, 5, 6, 8, 9]),
        ("id", Eq, vec![word(&ids[3].to_string())], &[3]),
        ("id", Gt, vec![word(&ids[7].to_string())], &[8, 9]),
        ("id", Eq, vec![number("3")], &[]),
        ("createdAt", Gt, vec![Operand::Time(at(7))], &[8, 9]),
        ("createdAt", Gte, vec![Operand::Time(at(8))], &[8, 9]),
        ("createdAt", Lt, vec![Operand::Time(at(1))], &[0]),
        ("createdAt", Lte, vec![Operand::Time(at(1))], &[0, 1]),
        ("createdAt", Eq, vec![Operand::Time(at(4))], &[4]),
        ("createdAt", Ne, vec![Operand::Time(at(4))], &[0, 1, 2, 3, 5, 6, 7, 8, 9]),
        ("createdAt", In, vec![Operand::Time(at(4)), Operand::Time(at(6))], &[4, 6]),
        ("createdAt", Eq, vec![number("4")], &[]),
    ]
}

/// Checks filters (contract, 6): types, missing paths, operators; several filters are ANDed.
// Holds: c6.compare
pub async fn filters_follow_the_contract(t: &dyn Telemetry) {
    let device = given::device();
    let mut ids = Vec::new();
    for (n, payload) in FILTERED.iter().enumerate() {
        let event = id(n as i64);
        ids.push(event);
        given::run(t, &device, given::storing(event, &[("log", payload)])).await;
    }
    for (field, operator, operands, expected) in filter_cases(&ids) {
        let found = texts(t, &device, "log", only(field, operator, &operands)).await;
        let expected: Vec<String> = expected.iter().map(|index| FILTERED[*index].to_owned()).collect();
        assert_eq!(found, (expected.clone(), expected.len() as u64), "{field} {operator:?} {operands:?}");
    }
    let mut both = only("a", Operator::Gte, &[number("1")]);
    both.filters.extend(only("a", Operator::Lt, &[number("2.5")]).filters);
    both.page = page(2, 1);
    assert_eq!(texts(t, &device, "log", both).await, (vec![FILTERED[1].to_owned()], 2));
}

/// Checks orders (contract, 6): numbers, text, booleans, everything else, missing; missing is last in either direction;
/// pages never overlap.
pub async fn orders_follow_the_contract(t: &dyn Telemetry) {
    let device = given::device();
    let parts = [
        r#""a":"é""#,
        r#""a":10"#,
        r#""a":-2.5"#,
        r#""b":1"#,
        r#""a":true"#,
        r#""a":null"#,
        r#""a":"b""#,
        r#""a":9007199254740993"#,
        r#""a":9007199254740992"#,
        r#""a":[1]"#,
        r#""a":false"#,
        r#""a":10.0"#,
    ];
    for (n, part) in parts.iter().enumerate() {
        given::store(t, &device, (n / 4) as i64, "log", &format!("{{\"n\":{n},{part}}}")).await;
    }
    let numbers = async |keys: &[&str], request| {
        let query = ValueQuery { sort: sort(keys), page: request, ..ValueQuery::default() };
        let (found, total) = texts(t, &device, "log", query).await;
        assert_eq!(total, 12);
        let number = |text: &String| text.trim_start_matches("{\"n\":").split(',').next().unwrap().parse().unwrap();
        found.iter().map(number).collect::<Vec<usize>>()
    };
    let whole = page(1, 100);
    assert_eq!(numbers(&["a"], whole).await, [2, 11, 1, 8, 7, 6, 0, 10, 4, 9, 5, 3]);
    assert_eq!(numbers(&["-a"], whole).await, [9, 5, 4, 10, 0, 6, 7, 8, 11, 1, 2, 3]);
    assert_eq!(numbers(&["b", "n"], whole).await, [3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(numbers(&["-createdAt", "n"], whole).await, [8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]);
    assert_eq!(numbers(&["id"], whole).await, (0..12).collect::<Vec<_>>());
    assert_eq!(numbers(&["-id", "a"], whole).await, (0..12).rev().collect::<Vec<_>>());
    for keys in [&["a"][..], &["-a"], &["b"], &["-b", "-createdAt"], &["c"]] {
        let mut seen = Vec::new();
        for number in 1..=4 {
            seen.extend(numbers(keys, page(number, 4)).await);
        }
        assert_eq!(seen[..12], numbers(keys, whole).await, "{keys:?}");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 12, "{keys:?}");
    }
}

/// Checks that keys of objects are merged and deep values replaced, and that any other newest payload replaces all,
/// until the next object.
pub async fn last_values_are_merged(t: &dyn Telemetry) {
    let device = given::device();
    let steps = [
        (r#"{"a":1,"deep":{"x":1,"y":2}}"#, r#"{"a":1,"deep":{"x":1,"y":2}}"#),
        (r#"{"deep":{"x":3}}"#, r#"{"a":1,"deep":{"x":3}}"#),
        ("[1]", "[1]"),
        ("true", "true"),
        (r#"{"b":2}"#, r#"{"a":1,"deep":{"x":3},"b":2}"#),
    ];
    for (millis, (payload, expected)) in (0..).zip(steps) {
        given::store(t, &device, millis, "log", payload).await;
        let last = t.last(&device.reading(), "log").await.unwrap().unwrap();
        assert_eq!((last.updated_at, last.values.text()), (at(millis), expected));
    }
}

/// Checks that the last values kept with a series are bounded, whether values come one by one or many in a run, and that
/// all values are stored.
pub async fn last_values_are_bounded(t: &dyn Telemetry) {
    let (by_one, at_once) = (given::device(), given::device());
    let large = |from: usize| {
        let members: Vec<_> = (from..from + 1_000).map(|n| format!("\"k{n:05}\":\"{}\"", "x".repeat(100))).collect();
        format!("{{{}}}", members.join(","))
    };
    let payloads: Vec<String> = (0..40).map(|n| large(n * 500)).collect();
    for payload in &payloads {
        given::store(t, &by_one, 1, "log", payload).await;
    }
    let values: Vec<_> = payloads.iter().map(|payload| ("log", payload.as_str())).collect();
    given::run(t, &at_once, given::storing(id(1), &values)).await;
    let mut lasts = Vec::new();
    for device in [&by_one, &at_once] {
        let last = t.last(&device.reading(), "log").await.unwrap().unwrap().values;
        assert!((LAST_BYTES_MAX / 2..=LAST_BYTES_MAX).contains(&last.bytes().len()), "{}", last.bytes().len());
        assert_eq!(t.series(&device.reading()).await.unwrap()[0].count, 40);
        lasts.push(last);
    }
    assert_eq!(lasts[0], lasts[1]);
}

/// Checks that the first value has the identifier of the event, and that the others have identifiers right behind it.
pub async fn values_of_one_run_have_ids_of_their_own(t: &dyn Telemetry) {
    let device = given::device();
    let event = id(7);
    given::run(t, &device, given::storing(event, &[("x", "1"), ("x", "2"), ("y", "3"), ("x", "4")])).await;
    let reading = device.reading();
    let of_x = t.values(&reading, "x", ValueQuery::default(), given::claim()).await.unwrap().unwrap();
    let of_y = t.values(&reading, "y", ValueQuery::default(), given::claim()).await.unwrap().unwrap();
    assert_eq!((of_x.items[2].id, of_y.items[0].id), (event, event));
    assert!(of_x.items.is_sorted_by(|newer, older| newer.id > older.id));
    assert!(of_x.items.iter().all(|value| value.created_at == at(7)));
    assert_eq!(of_x.items[0].payload.text(), "4");
}

/// Checks that a deleted series is gone at once, that the others stay, and that values stored later are all that it
/// has.
pub async fn deleted_series_starts_empty(t: &dyn Telemetry) {
    let device = given::device();
    let reading = device.reading();
    for n in 0..100 {
        given::run(t, &device, given::storing(id(n), &[("x", &format!("{{\"k{n}\":1}}")), ("y", "1")])).await;
    }
    assert!(!t.series_delete(&device, Some("z")).await.unwrap());
    assert!(t.series_delete(&device, Some("x")).await.unwrap());
    assert!(!t.series_delete(&device, Some("x")).await.unwrap());
    assert!(t.values(&reading, "x", ValueQuery::default(), given::claim()).await.unwrap().is_none());
    assert!(t.last(&reading, "x").await.unwrap().is_none());
    assert_eq!(t.series(&reading).await.unwrap().len(), 1);
    given::store(t, &device, 200, "x", r#"{"new":1}"#).await;
    assert_eq!(texts(t, &device, "x", ValueQuery::default()).await, (vec![r#"{"new":1}"#.to_owned()], 1));
    assert_eq!(t.last(&reading, "x").await.unwrap().unwrap().values.text(), r#"{"new":1}"#);
    assert_eq!(texts(t, &device, "y", ValueQuery::default()).await.1, 100);
    assert!(t.series_delete(&device, None).await.unwrap());
    assert!(t.series(&reading).await.unwrap().is_empty());
    assert!(!t.series_delete(&device, None).await.unwrap());
    assert_eq!(given::history(t, &reading).await.total, 101);
}
