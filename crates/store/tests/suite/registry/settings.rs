//! Settings of devices.

use isobar_model::access::{self, CanWrite};
use isobar_model::ids::{DeviceRef, SettingId, UserId};
use isobar_model::setting::SettingRecord;

use super::given::{self, at, json, may, page, sees, sorted, user_may};
use isobar_store::registry::{Registry, SettingWrite};

fn write(name: &str, value: Option<&str>, moment: i64) -> SettingWrite {
    SettingWrite { id: SettingId(given::uuid()), name: name.to_owned(), value: value.map(json), at: at(moment) }
}

async fn device(r: &Registry) -> DeviceRef {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    given::device(r, home, project, "d").await.reference()
}

async fn written(r: &Registry, permit: CanWrite<DeviceRef>, write: SettingWrite) -> SettingWrite {
    given::sets(r, &[(permit, write.clone())]).await;
    write
}

/// Returns a record's identifier, that of its successor, and the user who replaced it.
fn fate(record: &SettingRecord) -> (SettingId, Option<SettingId>, Option<&str>) {
    (record.id, record.changed_to, record.changed_by.as_deref())
}

/// Checks that a replaced record has the time, the successor and the author of its replacement.
pub async fn setting_has_a_history(r: &Registry) {
    let (device, user) = (device(r).await, UserId(given::uuid()));
    let other = self::device(r).await;
    assert!(r.settings_of(&sees(device)).await.unwrap().is_empty());
    let first = written(r, may(device), write("speed", Some("1.50"), 1)).await;
    let second = written(r, user_may(user, device), write("speed", Some(r#""two""#), 2)).await;
    written(r, may(other), write("speed", Some("9"), 2)).await;
    let third = written(r, access::device(device), write("speed", None, 2)).await;
    let mode = written(r, may(device), write("mode", Some("true"), 3)).await;
    let now = r.settings_of(&sees(device)).await.unwrap();
    let [by_name, then] = &now[..] else { unreachable!("there are two") };
    assert_eq!((by_name.id, by_name.value.clone(), by_name.created_at), (mode.id, mode.value, at(3)));
    assert_eq!((fate(then), then.value.clone(), then.device), ((third.id, None, None), None, device.id));

    let history = r.setting_history(&sees(device), at(0), &page(1, 10)).await.unwrap();
    assert_eq!((history.total, history.items.len()), (2, 2));
    let [newest, oldest] = &history.items[..] else { unreachable!("there are two") };
    assert_eq!(fate(oldest), (first.id, Some(second.id), Some(user.to_string().as_str())));
    assert_eq!((oldest.value.clone(), oldest.changed_at), (Some(json("1.50")), Some(at(2))));
    assert_eq!(fate(newest), (second.id, Some(third.id), Some(device.id.to_string().as_str())));
    assert_eq!((newest.created_at, newest.changed_at), (at(2), Some(at(2))));
    let oldest_first = r.setting_history(&sees(device), at(0), &sorted(&["createdAt"])).await.unwrap();
    assert_eq!(oldest_first.items[0].id, first.id);
    let second_page = r.setting_history(&sees(device), at(0), &page(2, 1)).await.unwrap();
    assert_eq!((second_page.total, second_page.items[0].id), (2, first.id));
}

/// Checks that a repeated change, even a late one, changes nothing.
pub async fn a_setting_written_twice_is_written_once(r: &Registry) {
    let device = device(r).await;
    let (change, reset) = (write("speed", Some("1"), 1), write("speed", None, 6));
    let all = [(may(device), change.clone()), (may(device), reset.clone())];
    written(r, may(device), change.clone()).await;
    written(r, may(device), change.clone()).await;
    assert_eq!(r.settings_of(&sees(device)).await.unwrap()[0].id, change.id);
    // Half of it is stored: only the other half is written.
    given::sets(r, &all).await;
    given::sets(r, &all).await;
    written(r, may(device), change.clone()).await;
    assert_eq!(r.settings_of(&sees(device)).await.unwrap()[0].id, reset.id);
    let history = r.setting_history(&sees(device), at(0), &page(1, 10)).await.unwrap();
    assert_eq!((history.total, fate(&history.items[0])), (1, (change.id, Some(reset.id), None)));
}

/// Checks that many changes in one call equal single ones, in their order, of any devices.
pub async fn settings_are_written_in_bulk(r: &Registry) {
    let (device, other, user) = (device(r).await, self::device(r).await, UserId(given::uuid()));
    let before = written(r, may(device), write("speed", Some("0"), 1)).await;
    let changes: Vec<_> = (0..300)
        .map(|number| {
            let target = if number % 3 == 0 { other } else { device };
            (user_may(user, target), write("speed", Some(&number.to_string()), 2 + number))
        })
        .collect();
    given::sets(r, &changes).await;
    let now = r.settings_of_many(&[sees(device), sees(other)]).await.unwrap();
    let value_of = |device: DeviceRef| now.iter().find(|record| record.device == device.id).unwrap().value.clone();
    assert_eq!((now.len(), value_of(device), value_of(other)), (2, Some(json("299")), Some(json("297"))));

    let history = r.setting_history(&sees(device), at(0), &page(1, 1000)).await.unwrap();
    assert_eq!(history.total, 200);
    let oldest_first: Vec<_> = history.items.iter().rev().collect();
    assert_eq!(oldest_first[0].id, before.id);
    for pair in oldest_first.windows(2) {
        assert_eq!(fate(pair[0]), (pair[0].id, Some(pair[1].id), Some(user.to_string().as_str())));
        assert_eq!(pair[0].changed_at, Some(pair[1].created_at));
    }
    assert!(r.settings_of_many(&[]).await.unwrap().is_empty());
    given::sets(r, &[]).await;
}

/// Checks that a deleted device takes its own settings along, and no others.
pub async fn deleted_device_takes_its_own_settings_along(r: &Registry) {
    let (device, other) = (device(r).await, self::device(r).await);
    written(r, may(device), write("speed", Some("1"), 1)).await;
    r.device_delete(&may(device)).await.unwrap();
    let changes = [(may(device), write("speed", Some("2"), 2)), (may(other), write("speed", Some("3"), 2))];
    given::sets(r, &changes).await;
    assert!(r.settings_of(&sees(device)).await.unwrap().is_empty());
    assert_eq!(r.settings_of(&sees(other)).await.unwrap()[0].id, changes[1].1.id);
    let elsewhere = DeviceRef { key: other.key, id: device.id };
    written(r, may(elsewhere), write("speed", Some("4"), 3)).await;
    assert_eq!(r.settings_of(&sees(other)).await.unwrap()[0].id, changes[1].1.id);
    let places = r.device_placements(&[device.id, other.id]).await.unwrap();
    assert_eq!(places.iter().map(|(found, _)| *found).collect::<Vec<_>>(), [other]);
    let found = r.devices_fetch(&[sees(device), sees(other)]).await.unwrap();
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [other.id]);
}

/// Checks that concurrent changes are serialized: one is current, and each other was replaced by the next.
pub async fn concurrent_writes_of_a_setting_are_all_recorded(r: &Registry) {
    let device = device(r).await;
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (r, change) = (r.clone(), write("speed", Some(&number.to_string()), number));
            tokio::spawn(async move { given::sets(&r, &[(may(device), change)]).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(r.settings_of(&sees(device)).await.unwrap().len(), 1);
    let history = r.setting_history(&sees(device), at(0), &page(1, 100)).await.unwrap();
    let mut successors: Vec<_> = history.items.iter().map(|record| record.changed_to.unwrap()).collect();
    successors.sort_unstable();
    successors.dedup();
    assert_eq!((history.total, successors.len()), (9, 9));
}

/// Checks that records replaced long ago are removed in parts, the oldest first, and that valid ones stay at any age.
pub async fn old_history_of_settings_is_removed(r: &Registry) {
    let (device, other) = (device(r).await, self::device(r).await);
    for number in 1..=6 {
        written(r, may(device), write("speed", Some(&number.to_string()), number)).await;
    }
    written(r, may(other), write("speed", Some("1"), 1)).await;
    written(r, may(other), write("mode", None, 2)).await;
    written(r, may(other), write("mode", None, 3)).await;
    let total = async |device, from| r.setting_history(&sees(device), at(from), &page(1, 10)).await.unwrap().total;
    // Replaced at 2, 3, 4, 5 and 6; at 3.
    assert_eq!((total(device, 0).await, total(device, 5).await, total(device, 7).await), (5, 2, 0));
    assert_eq!(r.setting_history_sweep(at(2), 10).await.unwrap(), 0);
    assert_eq!(r.setting_history_sweep(at(5), 3).await.unwrap(), 3);
    assert_eq!((total(device, 0).await, total(other, 0).await), (3, 0));
    assert_eq!(r.setting_history_sweep(at(5), 3).await.unwrap(), 1);
    assert_eq!(r.setting_history_sweep(at(5), 3).await.unwrap(), 0);
    let left = r.setting_history(&sees(device), at(0), &page(1, 10)).await.unwrap();
    assert_eq!(left.items.iter().map(|record| record.changed_at).collect::<Vec<_>>(), [Some(at(6)), Some(at(5))]);
    assert_eq!(r.setting_history_sweep(at(1_000), 10).await.unwrap(), 2);
    let now = r.settings_of_many(&[sees(device), sees(other)]).await.unwrap();
    assert_eq!(now.len(), 3);
    // History continues from there.
    written(r, may(device), write("speed", Some("7"), 7)).await;
    assert_eq!(total(device, 0).await, 1);
}
