//! Whole series, piece by piece.

use isobar_model::event::StoredValue;
use isobar_model::page::TimeRange;

use super::given::{self, at, id, page};
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Filter, FilterField, Operand, Operator, Telemetry, ValueQuery, ValueSort};

fn by(field: FilterField, descending: bool) -> ValueQuery {
    ValueQuery { sort: vec![ValueSort { field, descending }], ..ValueQuery::default() }
}

fn texts(values: Option<Vec<StoredValue>>) -> Vec<String> {
    values.unwrap().iter().map(|value| value.payload.text().to_owned()).collect()
}

/// Checks both directions, ranges and filters; that the page is ignored; and that an order by payload is refused.
pub async fn a_series_is_read_whole_in_pieces(t: &dyn Telemetry) {
    let device = given::device();
    let reading = device.reading();
    assert!(t.values_chunk(&reading, "log", &ValueQuery::default(), None, given::claim()).await.unwrap().is_none());
    // Enough values, and among them large ones, for several pieces.
    let large = format!("\"{}\"", "x".repeat(150_000));
    let payload = |n: usize| if n % 5_000 == 17 { large.clone() } else { n.to_string() };
    for start in (0..20_000).step_by(1_000) {
        let payloads: Vec<String> = (start..start + 1_000).map(payload).collect();
        let values: Vec<_> = payloads.iter().map(|text| ("log", text.as_str())).collect();
        given::run(t, &device, given::storing(id(start as i64), &values)).await;
    }
    let oldest: Vec<String> = (0..20_000).map(payload).collect();
    let newest: Vec<String> = oldest.iter().rev().cloned().collect();
    let one = ValueQuery { page: page(7, 1), ..ValueQuery::default() };
    assert!(texts(given::whole(t, &reading, "log", &one).await) == newest);
    for field in [FilterField::CreatedAt, FilterField::Id] {
        assert!(texts(given::whole(t, &reading, "log", &by(field.clone(), false)).await) == oldest);
        assert!(texts(given::whole(t, &reading, "log", &by(field, true)).await) == newest);
    }
    let first = t.values_chunk(&reading, "log", &ValueQuery::default(), None, given::claim()).await.unwrap().unwrap();
    assert!(first.next.is_some() && first.values.len() < 20_000);
    let range = TimeRange { from: Some(at(3_000)), to: Some(at(5_000)) };
    let ranged = ValueQuery { range, ..by(FilterField::CreatedAt, false) };
    assert!(texts(given::whole(t, &reading, "log", &ranged).await) == oldest[3_000..5_000]);
    let operands = ["12", "19999", "-1"].map(|text| Operand::Number(text.to_owned())).to_vec();
    let filters = vec![Filter { field: FilterField::Payload(Vec::new()), operator: Operator::In, operands }];
    let filtered = ValueQuery { filters, ..ValueQuery::default() };
    assert_eq!(texts(given::whole(t, &reading, "log", &filtered).await), ["19999", "12"]);
    let nothing = ValueQuery { range: TimeRange { from: Some(at(99_999)), to: None }, ..ValueQuery::default() };
    assert_eq!(given::whole(t, &reading, "log", &nothing).await, Some(Vec::new()));
    let by_payload = by(FilterField::Payload(Vec::new()), false);
    assert!(t.values_chunk(&reading, "log", &by_payload, None, given::claim()).await.is_err());
}

/// Checks that the end of an export is fixed when it begins, in either direction.
pub async fn values_stored_during_an_export_are_excluded(t: &dyn Telemetry) {
    for descending in [false, true] {
        let device = given::device();
        let reading = device.reading();
        let query = by(FilterField::CreatedAt, descending);
        let values = vec![("log", "1"); 10_000];
        given::run(t, &device, given::storing(id(0), &values)).await;
        let mut count = 0;
        let mut next = None;
        loop {
            let piece = t.values_chunk(&reading, "log", &query, next, given::claim()).await.unwrap().unwrap();
            count += piece.values.len();
            given::run(t, &device, given::storing(id(10), &values)).await;
            next = piece.next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(count, 10_000);
    }
}

/// Checks that an export fails if its series is deleted meanwhile, even if a new one has its name.
pub async fn export_of_a_deleted_series_fails(t: &dyn Telemetry) {
    let device = given::device();
    let reading = device.reading();
    let query = ValueQuery::default();
    let values = vec![("log", "1"); 10_000];
    for begins_anew in [false, true] {
        given::run(t, &device, given::storing(id(0), &values)).await;
        let next = t.values_chunk(&reading, "log", &query, None, given::claim()).await.unwrap().unwrap().next;
        assert!(next.is_some());
        assert!(t.series_delete(&device, Some("log")).await.unwrap());
        if begins_anew {
            given::run(t, &device, given::storing(id(1), &values)).await;
        }
        let rest = t.values_chunk(&reading, "log", &query, next, given::claim()).await;
        assert!(matches!(rest, Err(StoreError::Gone(_))), "{rest:?}");
    }
}
