//! Promises for timers of devices, and for the status of missing devices.

use isobar_model::ids::ProjectId;
use isobar_model::project::{SpecificationInput, empty_object};
use isobar_model::retention::DesignRetention;
use isobar_model::status::Status;

use super::given::{self, at, fetched, may};
use isobar_store::registry::{
    DeliveryKind, DeviceReport, Findings, LimitedDelivery, NewDelivery, NewSpecification, ProjectTimer, Registry,
};

pub(super) const MINUTE: i64 = 60_000;

/// Gives a project's devices these timers.
pub(super) async fn designs(r: &Registry, project: ProjectId, timers: &[(&str, u32)], now: i64) {
    let input = SpecificationInput {
        name: "designed".to_owned(),
        create_version: "2".to_owned(),
        description: String::new(),
        meta: empty_object(),
        planes: empty_object(),
    };
    let timer = |(element, minutes): &(&str, u32)| ProjectTimer { element: (*element).to_owned(), minutes: *minutes };
    let timers: Vec<_> = timers.iter().map(timer).collect();
    let (new, kept) = (NewSpecification::new(input), DesignRetention::new());
    r.specification_write(&may(project), &new, None, &timers, &kept, at(now)).await.unwrap();
}

/// Returns the timers that are due by then: their device, their element, and since when in minutes.
async fn due(r: &Registry, now: i64) -> Vec<(String, String, i64)> {
    let due = r.timers_due(at(now), 100).await.unwrap();
    let mut named = Vec::new();
    for timer in due {
        let name = fetched(r, timer.device).await.name;
        named.push((name, timer.element, (timer.due_at.millis() - at(0).millis()) / MINUTE));
    }
    named
}

fn expected(timers: &[(&str, &str, i64)]) -> Vec<(String, String, i64)> {
    timers.iter().map(|(name, element, minute)| ((*name).to_owned(), (*element).to_owned(), *minute)).collect()
}

/// Checks that every device of a project has the project's timers, since its creation or the design's.
pub async fn devices_have_the_timers_of_their_project(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (first, second) = (given::project(r, home, "p").await.id, given::project(r, home, "q").await.id);
    given::device(r, home, first, "old").await;
    let other = given::device(r, home, second, "other").await;
    designs(r, first, &[("tick", 5), ("", 30)], MINUTE).await;
    r.device_create(&may(home), given::new_device(first, "new"), at(2 * MINUTE)).await.unwrap();
    assert_eq!(due(r, 6 * MINUTE - 1).await, []);
    let all = expected(&[("old", "tick", 6), ("new", "tick", 7), ("old", "", 31), ("new", "", 32)]);
    assert_eq!(due(r, 99 * MINUTE).await, all);
    assert_eq!(r.timers_due(at(99 * MINUTE), 1).await.unwrap().len(), 1);

    // An unchanged timer keeps its time, a new or changed one begins, and a removed one is gone.
    designs(r, first, &[("tick", 5), ("tock", 10)], 3 * MINUTE).await;
    let all = expected(&[("old", "tick", 6), ("new", "tick", 7), ("old", "tock", 13), ("new", "tock", 13)]);
    assert_eq!(due(r, 99 * MINUTE).await, all);
    designs(r, first, &[("tick", 8)], 4 * MINUTE).await;
    assert_eq!(due(r, 99 * MINUTE).await, expected(&[("old", "tick", 12), ("new", "tick", 12)]));

    // A moved device gets the timers of its new project, which are deleted with it.
    let mut change = given::unchanged(&other);
    change.project = first;
    r.device_update(&may(other.reference()), &change, at(5 * MINUTE)).await.unwrap();
    assert_eq!(due(r, 13 * MINUTE).await.last(), expected(&[("other", "tick", 13)]).last());
    change.decided_in.0 = first;
    r.device_update(&may(other.reference()), &change, at(6 * MINUTE)).await.unwrap();
    assert_eq!(due(r, 99 * MINUTE).await.len(), 3);
    change.project = second;
    r.device_update(&may(other.reference()), &change, at(6 * MINUTE)).await.unwrap();
    assert_eq!(due(r, 99 * MINUTE).await, expected(&[("old", "tick", 12), ("new", "tick", 12)]));
}

/// Checks that a timer is due again at the time that was set, and has the last activity of its device.
pub async fn a_timer_is_set_and_removed(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    designs(r, project, &[("a", 1), ("b", 1)], 0).await;
    let device = given::device(r, home, project, "d").await;
    let found = r.timers_due(at(MINUTE), 10).await.unwrap();
    assert_eq!((found.len(), found[0].device, found[0].heard_at), (2, device.reference(), device.created_at));
    r.devices_touch(&[(device.key, at(7))]).await.unwrap();
    r.timers_set(&[], &[]).await.unwrap();
    let moments = [(found[0].number, at(5 * MINUTE)), (found[1].number, at(2 * MINUTE)), (u64::MAX / 2, at(0))];
    r.timers_set(&moments, &[u64::MAX, u64::MAX / 2]).await.unwrap();
    assert_eq!(r.timers_due(at(2 * MINUTE - 1), 10).await.unwrap(), []);
    let later = r.timers_due(at(5 * MINUTE), 10).await.unwrap();
    assert_eq!(later.iter().map(|timer| timer.number).collect::<Vec<_>>(), [found[1].number, found[0].number]);
    assert_eq!(later[0].heard_at, at(7));
    for _ in 0..2 {
        r.timers_set(&[(found[0].number, at(6 * MINUTE))], &[found[1].number]).await.unwrap();
        assert_eq!(r.timers_due(at(6 * MINUTE - 1), 10).await.unwrap(), []);
        assert_eq!(r.timers_due(at(9 * MINUTE), 10).await.unwrap().len(), 1);
    }
    r.device_delete(&may(device.reference())).await.unwrap();
    assert_eq!(r.timers_due(at(9 * MINUTE), 10).await.unwrap(), []);
}

/// Checks that a missing device keeps its former status, whatever is reported meanwhile.
pub async fn missing_device_keeps_its_former_status(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await.reference();
    let report = async |status, status_before| {
        let report = DeviceReport { status, status_before, ..DeviceReport::default() };
        given::reports(r, device, &report, at(1)).await;
        let device = fetched(r, device).await;
        (device.status, device.status_before)
    };
    let (warning, missing) = (Some(Status::Warning), Some(Status::Missing));
    assert_eq!(report(warning, None).await, (Status::Warning, Status::None));
    assert_eq!(report(missing, None).await, (Status::Missing, Status::Warning));
    // The current status is not taken for the former one.
    assert_eq!(report(missing, None).await, (Status::Missing, Status::Warning));
    assert_eq!(report(None, Some(Status::Good)).await, (Status::Missing, Status::Good));
    assert_eq!(report(Some(Status::Good), None).await, (Status::Good, Status::None));
    assert_eq!(report(None, Some(Status::Info)).await, (Status::Good, Status::None));
}

/// Checks that destinations are listed without their deliveries, and that a body may be replaced by the work that
/// remains.
pub async fn deliveries_wait_separately_for_each_destination(r: &Registry) {
    let new = |id: &str, destination: Option<&str>| NewDelivery {
        id: id.to_owned(),
        kind: DeliveryKind::Call,
        body: format!("\"{id}\""),
        destination: destination.map(str::to_owned),
    };
    let destinations = async |from: &str, limit| {
        let destinations = r.delivery_destinations(DeliveryKind::Call, from, limit).await.unwrap();
        destinations.into_iter().map(|destination| (destination.name, destination.due_at)).collect::<Vec<_>>()
    };
    assert_eq!(destinations("", 9).await, []);
    r.deliveries_put(&[new("b", Some("1 one.example")), new("d", Some("2 one.example"))], at(0)).await.unwrap();
    r.deliveries_put(&[new("a", Some("1 one.example")), new("c", None)], at(3)).await.unwrap();
    let destination = |name: &str, due| (name.to_owned(), at(due));
    let both = [destination("1 one.example", 0), destination("2 one.example", 0)];
    assert_eq!((destinations("", 9).await, destinations("", 1).await), (both.to_vec(), both[..1].to_vec()));
    assert_eq!(
        (destinations("1 one.example\u{1}", 9).await, destinations("1!", 9).await),
        (both[1..].to_vec(), both[1..].to_vec())
    );
    assert_eq!(
        (destinations("3", 9).await, r.delivery_destinations(DeliveryKind::Mail, "", 9).await.unwrap().len()),
        (vec![], 0)
    );
    let due = async |destination: &str, now, limit| {
        let due = r.deliveries_to(DeliveryKind::Call, destination, at(now), limit).await.unwrap();
        due.into_iter().map(|delivery| delivery.body).collect::<Vec<_>>()
    };
    assert_eq!(
        (due("1 one.example", 2, 9).await, due("1 one.example", 3, 9).await),
        (vec!["\"b\"".to_owned()], vec!["\"b\"".to_owned(), "\"a\"".to_owned()])
    );
    assert_eq!((due("1 one.example", 3, 1).await.len(), due("1", 3, 9).await.len()), (1, 0));
    // Deliveries of an earlier version have no destination yet.
    let without = r.deliveries_without_destination(DeliveryKind::Call, 9).await.unwrap();
    assert_eq!(without.iter().map(|it| (&*it.id, &*it.body)).collect::<Vec<_>>(), [("c", "\"c\"")]);
    r.delivery_destinations_set(&[]).await.unwrap();
    r.delivery_destinations_set(&[("c".to_owned(), String::new()), ("gone".to_owned(), "x".to_owned())]).await.unwrap();
    assert_eq!(r.deliveries_without_destination(DeliveryKind::Call, 9).await.unwrap(), []);
    assert_eq!(destinations("", 1).await, [destination("", 3)]);
    r.delivery_failed("b", 3, at(4)).await.unwrap();
    assert_eq!(destinations("1", 1).await, [destination("1 one.example", 3)]);
    r.delivery_replace("b", "\"rest\"", at(5)).await.unwrap();
    assert_eq!((due("1 one.example", 4, 9).await.len(), due("1 one.example", 5, 9).await.len()), (1, 2));
    let read = r.deliveries_to(DeliveryKind::Call, "1 one.example", at(5), 9).await.unwrap();
    assert_eq!((&*read[1].body, read[1].attempts, read[1].created_at), ("\"rest\"", 0, at(0)));
}

/// Checks the limit of waiting deliveries from one source.
pub async fn deliveries_of_a_source_are_bounded(r: &Registry) {
    let delivery = |id: &str| NewDelivery {
        id: id.to_owned(),
        kind: DeliveryKind::Call,
        body: id.to_owned(),
        destination: Some(String::new()),
    };
    let put = async |ids: &[(&str, &str)]| {
        let asked =
            |(source, id): (&str, &str)| LimitedDelivery { delivery: delivery(id), source: source.to_owned(), most: 3 };
        let findings = Findings { deliveries: ids.iter().copied().map(asked).collect(), ..Findings::default() };
        r.findings_write(&findings, at(0)).await.unwrap()
    };
    assert!(put(&[]).await.is_empty());
    assert!(put(&[("call:a:", "call:a:1"), ("call:ab:", "call:ab:1"), ("call:a:", "call:a:2")]).await.is_empty());
    assert_eq!(put(&[("call:a:", "call:a:3"), ("call:a:", "call:a:4"), ("call:ab:", "call:ab:1")]).await, [1]);
    assert_eq!(put(&[("call:a:", "call:a:5")]).await, [0]);
    let due = r.deliveries_to(DeliveryKind::Call, "", at(0), 10).await.unwrap();
    let due: Vec<_> = due.into_iter().map(|due| due.id).collect();
    assert_eq!(due, ["call:a:1", "call:a:2", "call:a:3", "call:ab:1"]);
}
