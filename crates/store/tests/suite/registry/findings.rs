//! Promises for findings of many devices that are written together.

use isobar_model::device::{Device, Location};
use isobar_model::ids::{DeviceRef, SettingId};
use isobar_model::status::Status;

use isobar_store::error::StoreError;

use super::given::{self, at, fetched, json, may, sees};
use isobar_store::registry::{
    DeliveryKind, DeviceReport, Findings, LimitedDelivery, NewDelivery, NewDevice, Registry, SettingWrite, TagCarrier,
};

/// Devices that are reported at once: more than one statement takes of some kinds.
const DEVICES: usize = 450;

async fn devices(r: &Registry, count: usize) -> Vec<DeviceRef> {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut made = Vec::with_capacity(count);
    for number in 0..count {
        let meta = json(&format!(r#"{{"keep":1.50,"n":"{number}","gone":true}}"#));
        let new = NewDevice { meta, ..given::new_device(project, &format!("d{number}")) };
        made.push(r.device_create(&may(home), new, at(0)).await.unwrap().reference());
    }
    made
}

fn labelled(label: &str, value: &str) -> DeviceReport {
    DeviceReport { meta: vec![(label.to_owned(), json(value))], ..DeviceReport::default() }
}

async fn found(r: &Registry, label: &str, value: &str) -> Option<DeviceRef> {
    let found = r.devices_labelled(&given::lists_all(), given::tag(label), &[value]).await.unwrap().remove(value);
    found.and_then(TagCarrier::device)
}

/// Checks that all findings of a batch are stored with their devices, and that a repeated batch changes nothing.
pub async fn many_devices_are_reported_at_once(r: &Registry) {
    let devices = devices(r, DEVICES).await;
    let reports: Vec<DeviceReport> = (0..DEVICES)
        .map(|number| DeviceReport {
            status: (number % 3 == 0).then_some(Status::Warning),
            meta: vec![("n".to_owned(), json(&format!("\"new {number}\"")))],
            location: Location::new(number as f64 / 7.0 - 30.0, 0.1 + number as f64 / 11.0).filter(|_| number % 2 == 0),
            ..DeviceReport::default()
        })
        .collect();
    let all = || devices.iter().zip(&reports).map(|(device, report)| (may(*device), report, at(5))).collect();
    let findings = Findings { reports: all(), ..Findings::default() };
    for _ in 0..2 {
        r.findings_write(&findings, at(9)).await.unwrap();
        for (number, (device, report)) in devices.iter().zip(&reports).enumerate() {
            let now = fetched(r, *device).await;
            let meta = format!(r#"{{"keep":1.50,"n":"new {number}","gone":true}}"#);
            assert_eq!((now.status, now.meta.text()), (report.status.unwrap_or_default(), meta.as_str()));
            assert_eq!((now.location, now.updated_at), (report.location, at(5)));
        }
    }
    let searched = async |text: &str| r.device_list(&given::lists_all(), &given::search(text)).await.unwrap().total;
    assert_eq!((searched("new 449").await, found(r, "n", "449").await), (1, None));
    assert_eq!(found(r, "n", "new 449").await, Some(devices[449]));
    assert_eq!(found(r, "keep", "1.50").await, Some(devices[0]));
}

/// Checks that reports of one device in one batch are applied in order, and that those of a deleted device are ignored.
pub async fn batch_of_reports_is_applied_in_order(r: &Registry) {
    let devices = devices(r, 3).await;
    r.device_delete(&may(devices[1])).await.unwrap();
    let reports = [
        (devices[0], labelled("a", "1"), 1),
        (devices[1], labelled("a", "2"), 2),
        (devices[0], labelled("a", "3"), 3),
        (devices[2], labelled("a", "4"), 4),
        (devices[0], labelled("gone", r#"{"no":"label"}"#), 2),
    ];
    let all = reports.iter().map(|(device, report, moment)| (may(*device), report, at(*moment))).collect();
    r.findings_write(&Findings { reports: all, ..Findings::default() }, at(9)).await.unwrap();
    let first = fetched(r, devices[0]).await;
    assert_eq!(first.meta.text(), r#"{"keep":1.50,"n":"0","gone":{"no":"label"},"a":3}"#);
    assert_eq!(first.updated_at, at(3));
    assert_eq!((found(r, "a", "3").await, found(r, "a", "1").await), (Some(devices[0]), None));
    assert_eq!((found(r, "a", "4").await, found(r, "a", "2").await), (Some(devices[2]), None));
    // The label that is none any more went alone.
    assert_eq!(found(r, "gone", "true").await, Some(devices[2]));
    assert_eq!(found(r, "n", "0").await, Some(devices[0]));
}

/// Checks that a batch with a finding that cannot be stored changes nothing.
pub async fn batch_of_reports_is_atomic(r: &Registry) {
    let devices = devices(r, 1).await;
    let report = labelled("a", "1");
    let reports = vec![(may(devices[0]), &report, at(1))];
    // No value is longer than its index takes; one record twice is refused, as it is another device's.
    let other = self::devices(r, 1).await[0];
    let id = SettingId(given::uuid());
    let write = |name: &str| SettingWrite { id, name: name.to_owned(), value: None, at: at(1) };
    let settings = vec![(may(devices[0]), write("x")), (may(other), write("y"))];
    let delivery =
        NewDelivery { id: "call:a:1".to_owned(), kind: DeliveryKind::Call, body: "{}".to_owned(), destination: None };
    let deliveries = vec![LimitedDelivery { delivery, source: "call:a:".to_owned(), most: 9 }];
    let error =
        r.findings_write(&Findings { reports, settings, deliveries, ..Findings::default() }, at(2)).await.unwrap_err();
    assert!(error.is_refusal(), "{error:?}");
    assert_eq!(fetched(r, devices[0]).await.updated_at, at(0));
    assert!(r.settings_of(&sees(devices[0])).await.unwrap().is_empty());
    assert!(r.deliveries_next(DeliveryKind::Call).await.unwrap().is_none());
}

/// Checks that findings of revisions before a takeover are refused, with all that were to be written with them.
pub async fn findings_that_were_taken_over_are_refused(r: &Registry) {
    let devices = devices(r, 2).await;
    let report = labelled("a", "1");
    let write = async |revisions: [u64; 2], moment: i64| {
        let reports = devices.iter().map(|device| (may(*device), &report, at(moment))).collect();
        let revisions = devices.iter().map(|device| may(*device)).zip(revisions).collect();
        r.findings_write(&Findings { reports, revisions, ..Findings::default() }, at(moment)).await
    };
    write([5, 1], 1).await.unwrap();
    assert_eq!(r.findings_take(&may(devices[0]), 7, None).await.unwrap(), None);
    let refused = write([6, 2], 2).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Overtaken(which) if *which == [devices[0].key]), "{refused:?}");
    assert_eq!((fetched(r, devices[0]).await.updated_at, fetched(r, devices[1]).await.updated_at), (at(1), at(1)));
    write([7, 2], 3).await.unwrap_or_else(|error| panic!("{error:?}"));
    // Revision 0 says that the caller knows of a takeover, even where the registry does not.
    let refused = write([7, 0], 4).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Overtaken(which) if *which == [devices[1].key]), "{refused:?}");
    // One that comes late takes nothing from a later one, even if that one has come in between.
    for outlived in [None, Some(5)] {
        assert_eq!(r.findings_take(&may(devices[0]), 6, outlived).await.unwrap(), Some(7));
    }
    assert!(matches!(write([6, 2], 4).await, Err(StoreError::Overtaken(_))));
    // A telemetry that was restored begins with lower revisions again.
    assert_eq!(r.findings_take(&may(devices[0]), 3, Some(7)).await.unwrap(), None);
    write([3, 2], 4).await.unwrap();
    r.device_delete(&may(devices[0])).await.unwrap();
    assert_eq!(r.findings_take(&may(devices[0]), 1, None).await.unwrap(), None);
    write([1, 2], 5).await.unwrap();
}

/// Checks that two reports written together equal the same reports written one after the other.
pub async fn reports_are_serialized(r: &Registry) {
    let device = devices(r, 1).await[0];
    let present = fetched(r, device).await;
    let away = Device { status: Status::Missing, status_before: Status::Info, ..present.clone() };
    let says = |status: Option<Status>, before: Option<Status>, label: &str| DeviceReport {
        status,
        status_before: before,
        ..labelled(label, "1")
    };
    let (good, missing) = (Some(Status::Good), Some(Status::Missing));
    let each = [
        says(good, None, "a"),
        says(missing, good, "b"),
        says(None, Some(Status::Critical), "a"),
        says(missing, None, "c"),
        says(Some(Status::Critical), None, "d"),
        says(None, None, "e"),
        says(missing, Some(Status::Critical), "f"),
    ];
    let over = |device: &Device, report: &DeviceReport| {
        let mut device = device.clone();
        report.over(&mut device, at(1));
        device
    };
    for (begun, first) in
        [&present, &away].into_iter().flat_map(|begun| (0..each.len()).map(move |first| (begun, first)))
    {
        // What a device gets back is said of one that is missing.
        if first == 2 && begun.status != Status::Missing {
            continue;
        }
        let (mut one, mut both) = (begun.clone(), DeviceReport::default());
        for report in &each[first..] {
            one = over(&one, report);
            both = both.then(report.clone());
            assert_eq!(over(begun, &both), one, "from {first}");
        }
    }
}
