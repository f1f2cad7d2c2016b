//! Rows with long texts: their size is checked before a call reads them together.

use isobar_model::ids::{NotificationId, SettingId};
use isobar_model::json::RawJson;
use isobar_model::notification::{Audience, Notice, NotificationKind};
use isobar_model::page::PageRequest;

use super::given::{self, at, lists_all, may, page, sees, sets};
use isobar_store::error::StoreError;
use isobar_store::registry::{Registry, SettingWrite, SpreadStep};
use isobar_store::telemetry::PAGE_BYTES_MAX;

const MIB: usize = 1 << 20;

fn text(bytes: usize) -> RawJson {
    RawJson::trusted(format!("\"{}\"", "x".repeat(bytes - 2)).into())
}

/// Creates this many devices with metadata of half a mebibyte each.
async fn large_devices(r: &Registry, count: usize) -> Vec<isobar_model::device::Device> {
    let organization = given::organization(r, None, "Large").await.id;
    let project = given::project(r, organization, "p").await.id;
    let mut made = Vec::with_capacity(count);
    for number in 0..count {
        let mut new = given::new_device(project, &format!("{number:03}"));
        new.meta = RawJson::trusted(format!("{{\"a\":{}}}", text(MIB / 2).text()).into());
        made.push(r.device_create(&may(organization), new, at(0)).await.unwrap());
    }
    made
}

/// Checks that a page of devices with too much metadata is refused before it is read, and that a smaller page and a
/// list in pieces are not.
pub async fn devices_with_much_metadata_are_read_in_pieces(r: &Registry) {
    let devices = large_devices(r, PAGE_BYTES_MAX / (MIB / 2) + 2).await;
    let all = r.device_list(&lists_all(), &page(1, 10_000)).await;
    assert!(matches!(all, Err(StoreError::TooMuch)));
    let few = r.device_list(&lists_all(), &page(1, 10)).await.unwrap();
    assert_eq!((few.items.len(), few.total), (10, devices.len() as u64));

    let ids: Vec<_> = devices.iter().map(|device| device.id).collect();
    let (piece, together) = r.devices_of(&lists_all(), &ids).await.unwrap();
    let read: Vec<_> = piece.into_iter().map(|device| device.id).collect();
    assert_eq!((read.as_slice(), together), (&ids[..1], 1), "a second one would be more than a mebibyte");
    // The size of a few devices is not checked: their metadata is limited.
    let (piece, together) = r.devices_of(&lists_all(), &ids[1..4]).await.unwrap();
    assert_eq!((piece.len(), together), (3, 3));

    let permits: Vec<_> = devices.iter().map(|device| sees(device.reference())).collect();
    assert_eq!(r.devices_that_take(&permits, 3 * MIB + MIB / 2).await.unwrap(), 6);
    let write =
        SettingWrite { id: SettingId(given::uuid()), name: "s".to_owned(), value: Some(text(2 * MIB)), at: at(1) };
    sets(r, &[(may(devices[1].reference()), write)]).await;
    assert_eq!(r.devices_that_take(&permits, 3 * MIB + MIB / 2).await.unwrap(), 2);
    assert_eq!(r.devices_that_take(&permits, 1).await.unwrap(), 1);
    assert_eq!(r.devices_that_take(&permits[..0], 1).await.unwrap(), 0);
}

/// Checks that a page of a setting's history with too large values is refused before it is read.
pub async fn history_of_large_settings_is_read_in_pieces(r: &Registry) {
    let organization = given::organization(r, None, "Large").await.id;
    let project = given::project(r, organization, "p").await.id;
    let device = given::device(r, organization, project, "d").await.reference();
    let write = |at: i64| {
        let (id, value) = (SettingId(given::uuid()), Some(text(8 * MIB)));
        (may(device), SettingWrite { id, name: "s".to_owned(), value, at: given::at(at) })
    };
    for number in 0..10 {
        sets(r, &[write(number)]).await;
    }
    let past = async |limit| r.setting_history(&sees(device), at(0), &page(1, limit)).await;
    assert!(matches!(past(100).await, Err(StoreError::TooMuch)));
    let few = past(2).await.unwrap();
    assert_eq!((few.items.len(), few.total), (2, 9));
    assert_eq!(few.items[0].value.as_ref().map(|value| value.bytes().len()), Some(8 * MIB));
}

/// Checks that a page of notifications with too long texts is refused before it is read.
pub async fn long_notifications_are_read_in_pieces(r: &Registry) {
    const COUNT: u32 = 110;
    let organization = given::organization(r, None, "Large").await.id;
    let user = given::user(r, organization, "reader").await.id;
    let message = "x".repeat(PAGE_BYTES_MAX / 108);
    for number in 0..COUNT {
        let id = NotificationId(given::uuid());
        let notice = Notice {
            id,
            kind: NotificationKind::System,
            to: Audience::Everybody,
            message: message.clone(),
            device: None,
            alarm: None,
            at: at(i64::from(number) + 1),
        };
        assert!(r.notice_create(&may(notice)).await.unwrap());
        let part = r.notice_spreading(id).await.unwrap().unwrap();
        r.notice_spread(part, &SpreadStep::default(), at(0)).await.unwrap();
    }
    let list = async |limit| r.notification_list(&may(user), PageRequest::new(1, limit), false).await;
    assert!(matches!(list(10_000).await, Err(StoreError::TooMuch)));
    let few = list(5).await.unwrap();
    assert_eq!((few.items.len(), few.total), (5, u64::from(COUNT)));
}
