//! Promises for a clock that was ahead.

use isobar_model::ids::EventId;

use super::given::{self, at, fetched, may};
use super::timers::{MINUTE, designs};
use isobar_store::registry::{DeliveryKind, NewDelivery, Registry, SettingWrite};

const HOUR: i64 = 60 * MINUTE;
/// Destination of deliveries.
const TO: &str = "1 one.example";

/// Checks that moments which only a clock that was ahead can have left are moved to the present, and no others.
pub async fn timestamps_ahead_of_the_clock_are_corrected(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let (early, late) = (given::device(r, home, project, "early").await, given::device(r, home, project, "late").await);
    let user = given::user(r, home, "ana").await.id;
    designs(r, project, &[("tick", 5), ("", 90)], 0).await;
    let first = r.timers_due(at(5 * MINUTE), 9).await.unwrap();
    let silent = r.timers_due(at(90 * MINUTE), 9).await.unwrap()[2].number;
    let beyond = [(first[0].number, at(HOUR + 7)), (first[1].number, at(7 * MINUTE)), (silent, at(94 * MINUTE))];
    r.timers_set(&beyond, &[]).await.unwrap();
    r.devices_touch(&[(early.key, at(2 * MINUTE)), (late.key, at(HOUR))]).await.unwrap();
    r.users_touch(&[(user, at(HOUR))]).await.unwrap();
    let delivery = |id: &str| NewDelivery {
        id: id.to_owned(),
        kind: DeliveryKind::Call,
        body: String::new(),
        destination: Some(TO.to_owned()),
    };
    r.deliveries_put(&[delivery("later"), delivery("failed"), delivery("soon")], at(0)).await.unwrap();
    r.deliveries_put(&[delivery("ahead")], at(2 * HOUR)).await.unwrap();
    // One that was put off waits for its turn, one that has failed no longer than it may.
    r.delivery_replace("later", "", at(3 * HOUR)).await.unwrap();
    r.delivery_failed("failed", 1, at(3 * HOUR)).await.unwrap();
    r.delivery_failed("soon", 1, at(4 * MINUTE)).await.unwrap();
    for _ in 0..2 {
        r.clock_set_back(at(3 * MINUTE), at(HOUR)).await.unwrap();
        let due = r.timers_due(at(9 * HOUR), 9).await.unwrap();
        let due: Vec<_> = due.iter().map(|timer| (timer.element.as_str(), timer.due_at)).collect();
        // In its rhythm, and no later than its minutes from now on.
        let expected = [("", 3 * MINUTE), ("tick", 5 * MINUTE + 7), ("tick", 7 * MINUTE), ("", 90 * MINUTE)];
        assert_eq!(due, expected.map(|(element, due)| (element, at(due))));
        assert_eq!(fetched(r, early.reference()).await.last_active, Some(at(2 * MINUTE)));
        assert_eq!(fetched(r, late.reference()).await.last_active, Some(at(3 * MINUTE)));
        assert_eq!(given::user_fetched(r, user).await.last_active, Some(at(3 * MINUTE)));
        let now = vec!["ahead", "failed"];
        let soon = vec!["ahead", "failed", "soon"];
        for (now, due) in
            [(3 * MINUTE - 1, vec![]), (3 * MINUTE, now), (4 * MINUTE, soon.clone()), (3 * HOUR - 1, soon)]
        {
            let found = r.deliveries_to(DeliveryKind::Call, TO, at(now), 9).await.unwrap();
            assert_eq!(found.iter().map(|delivery| delivery.id.as_str()).collect::<Vec<_>>(), due);
        }
    }
}

/// Checks that the newest identifier is that of the resource that was made last.
pub async fn newest_identifier_is_found(r: &Registry) {
    assert_eq!(r.newest_id().await.unwrap(), None);
    let home = given::organization(r, None, "Home").await.id;
    assert_eq!(r.newest_id().await.unwrap(), Some(EventId(home.0)));
    let user = given::user(r, home, "ana").await.id;
    assert_eq!(r.newest_id().await.unwrap(), Some(EventId(user.0)));
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await;
    assert_eq!(r.newest_id().await.unwrap(), Some(EventId(device.id.0)));
    let setting = isobar_model::ids::SettingId(uuid::Uuid::from_u128(u128::MAX));
    let write = SettingWrite { id: setting, name: "limit".to_owned(), value: Some(given::json("1")), at: at(1) };
    given::sets(r, &[(may(device.reference()), write)]).await;
    assert_eq!(r.newest_id().await.unwrap(), Some(EventId(setting.0)));
}
