//! Settings of devices.

use isobar_model::access;
use isobar_model::ids::{DeviceRef, SettingId, UserId};

use super::given::{self, at, json, may, page, sees, sorted, user_may};
use crate::error::StoreError;
use crate::registry::{Registry, SettingWrite};

fn write(name: &str, value: Option<&str>) -> SettingWrite {
    SettingWrite { id: SettingId(given::uuid()), name: name.to_owned(), value: value.map(json) }
}

async fn device(r: &Registry) -> DeviceRef {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    given::device(r, home, project, "d").await.reference()
}

/// The replaced record says when, by what and by whom it was replaced.
pub async fn a_setting_keeps_its_past(r: &Registry) {
    let (device, user) = (device(r).await, UserId(given::uuid()));
    let other = self::device(r).await;
    assert!(r.settings_of(&sees(device)).await.unwrap().is_empty());
    let first = r.setting_write(&may(device), write("speed", Some("1.50")), at(1)).await.unwrap();
    let second = r.setting_write(&user_may(user, device), write("speed", Some(r#""two""#)), at(2)).await.unwrap();
    r.setting_write(&may(other), write("speed", Some("9")), at(2)).await.unwrap();
    let third = r.setting_write(&access::device(device), write("speed", None), at(2)).await.unwrap();
    let mode = r.setting_write(&may(device), write("mode", Some("true")), at(3)).await.unwrap();
    assert_eq!((first.value.clone(), first.device, first.created_at), (Some(json("1.50")), device.id, at(1)));
    assert_eq!(third.value, None);
    assert_eq!(r.settings_of(&sees(device)).await.unwrap(), [mode, third.clone()]);

    let history = r.setting_history(&sees(device), &page(1, 10)).await.unwrap();
    assert_eq!((history.total, history.items.len()), (2, 2));
    let [newest, oldest] = &history.items[..] else { unreachable!("there are two") };
    assert_eq!((oldest.id, oldest.changed_at, oldest.changed_to), (first.id, Some(at(2)), Some(second.id)));
    assert_eq!(oldest.changed_by, Some(user.to_string()));
    assert_eq!((newest.id, newest.changed_at, newest.changed_to), (second.id, Some(at(2)), Some(third.id)));
    assert_eq!(newest.changed_by, Some(device.id.to_string()));
    let oldest_first = r.setting_history(&sees(device), &sorted(&["createdAt"])).await.unwrap();
    assert_eq!(oldest_first.items[0].id, first.id);
    let second_page = r.setting_history(&sees(device), &page(2, 1)).await.unwrap();
    assert_eq!((second_page.total, second_page.items[0].id), (2, first.id));
}

/// A change that is carried out again, even later, leaves everything as it is.
pub async fn a_setting_written_twice_is_written_once(r: &Registry) {
    let device = device(r).await;
    let (change, reset) = (write("speed", Some("1")), write("speed", None));
    let first = r.setting_write(&may(device), change.clone(), at(1)).await.unwrap();
    assert_eq!(r.setting_write(&may(device), change.clone(), at(5)).await.unwrap(), first);
    let second = r.setting_write(&may(device), reset, at(6)).await.unwrap();
    let late = r.setting_write(&may(device), change, at(7)).await.unwrap();
    assert_eq!((late.id, late.changed_to), (first.id, Some(second.id)));
    assert_eq!(r.settings_of(&sees(device)).await.unwrap(), [second]);
    assert_eq!(r.setting_history(&sees(device), &page(1, 10)).await.unwrap().total, 1);
    r.device_delete(&may(device)).await.unwrap();
    let gone = r.setting_write(&may(device), write("speed", Some("2")), at(8)).await;
    assert!(matches!(gone, Err(StoreError::Gone("device"))));
    assert!(r.settings_of(&sees(device)).await.unwrap().is_empty());
}

/// Changes at the same time come one after the other: one is in force, each other was replaced by the next.
pub async fn settings_of_one_name_at_the_same_time(r: &Registry) {
    let device = device(r).await;
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (r, change) = (r.clone(), write("speed", Some(&number.to_string())));
            tokio::spawn(async move { r.setting_write(&may(device), change, at(number)).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(r.settings_of(&sees(device)).await.unwrap().len(), 1);
    let history = r.setting_history(&sees(device), &page(1, 100)).await.unwrap();
    let mut successors: Vec<_> = history.items.iter().map(|record| record.changed_to.unwrap()).collect();
    successors.sort_unstable();
    successors.dedup();
    assert_eq!((history.total, successors.len()), (9, 9));
}
