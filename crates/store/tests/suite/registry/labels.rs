//! Labels of devices, and devices that are made when they are first heard of.

use isobar_model::access::CanWrite;
use isobar_model::ids::{DeviceRef, OrganizationId, ProjectId};
use isobar_model::json::parse;
use isobar_model::meta::MetaPatch;

use super::given::{self, at, fetched, json, lists, lists_all, may};
use isobar_store::error::StoreError;
use isobar_store::registry::{
    DeviceReport, MetaChange, NewLabels, NewTagged, Provisioned, Registry, Tag, TagCarrier, TagCase,
};

fn tagged(project: ProjectId, value: &str) -> NewTagged {
    let mut device = given::new_device(project, value);
    device.meta = json(&format!(r#"{{"eui":"{value}","site":7}}"#));
    NewTagged { value: value.to_owned(), device }
}

async fn labelled(r: &Registry, label: &str, value: &str) -> Option<DeviceRef> {
    let found = r.devices_labelled(&lists_all(), given::tag(label), &[value]).await.unwrap().remove(value);
    found.and_then(TagCarrier::device)
}

async fn provision(r: &Registry, home: OrganizationId, wanted: &[NewTagged]) -> Vec<Provisioned> {
    provision_by(r, home, given::tag("eui"), wanted).await
}

async fn provision_by(r: &Registry, home: OrganizationId, tag: Tag<'_>, wanted: &[NewTagged]) -> Vec<Provisioned> {
    r.devices_provision(&may(home), tag, wanted, at(1)).await.unwrap()
}

/// Checks that texts, numbers and booleans are labels, and that labels follow each change of the metadata.
pub async fn a_device_is_found_by_its_labels(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let mut new = given::new_device(project, "d");
    let long = "x".repeat(300);
    new.meta = json(&format!(r#"{{"a":"1.50","b":1.50,"c":true,"d":null,"e":[1],"f":"{long}","g":"ü"}}"#));
    let device = r.device_create(&may(home.id), new, at(0)).await.unwrap();
    for (label, value, is_found) in [
        ("a", "1.50", true),
        ("b", "1.50", true),
        ("b", "1.5", false),
        ("c", "true", true),
        ("d", "null", false),
        ("e", "[1]", false),
        ("f", &*long, false),
        ("g", "ü", true),
        ("g", "Ü", false),
        ("a", "1.50\0", false),
    ] {
        assert_eq!(labelled(r, label, value).await, is_found.then_some(device.reference()), "{label} {value}");
    }
    let mut change = given::unchanged(&device);
    change.meta = Some(json(r#"{"a":"2"}"#));
    r.device_update(&may(device.reference()), &change, at(1)).await.unwrap();
    let found = (labelled(r, "a", "1.50").await, labelled(r, "g", "ü").await, labelled(r, "a", "2").await);
    assert_eq!(found, (None, None, Some(device.reference())));
    let report = DeviceReport { meta: vec![("h".to_owned(), json("3"))], ..DeviceReport::default() };
    given::reports(r, device.reference(), &report, at(2)).await;
    assert!(labelled(r, "h", "3").await.is_some() && labelled(r, "a", "2").await.is_some());
    r.device_delete(&may(device.reference())).await.unwrap();
    assert_eq!(labelled(r, "h", "3").await, None);
}

/// Checks that the oldest of several devices with a label is found, within the requested part of the tree.
pub async fn label_finds_its_oldest_device(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let beside = given::organization(r, None, "Beside").await;
    let project = given::project(r, top.id, "p").await.id;
    let mut made = Vec::new();
    for organization in [beside.id, top.id, low.id, low.id] {
        let new = tagged(project, "e1").device;
        made.push(r.device_create(&may(organization), new, at(0)).await.unwrap().reference());
    }
    let found = async |permit| r.devices_labelled(&permit, given::tag("eui"), &["e1", "e2"]).await.unwrap();
    assert_eq!(
        found(lists_all()).await.into_iter().collect::<Vec<_>>(),
        [("e1".to_owned(), TagCarrier::Device(made[0], project))]
    );
    assert_eq!(found(lists(&top.lineage, None)).await["e1"], TagCarrier::Device(made[1], project));
    assert_eq!(found(lists(&low.lineage, None)).await["e1"], TagCarrier::Device(made[2], project));
    assert!(r.devices_labelled(&lists_all(), given::tag("eui"), &[]).await.unwrap().is_empty());
}

/// Checks that a value is found in any case: an exact match takes precedence, and several other matches are refused.
// Holds: c9.case
pub async fn tag_is_found_in_any_case(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let mut made = Vec::new();
    for value in ["70B3D57E", "aa01", "AA01", "cd", "CD", "CD", "ÄB"] {
        made.push(r.device_create(&may(home.id), tagged(project, value).device, at(0)).await.unwrap().reference());
    }
    let values = ["70b3d57e", "70B3d57E", "70B3D57E", "aa01", "AA01", "Aa01", "CD", "cD", "Äb", "äB", "none"];
    let found = async |case| {
        let tag = Tag { label: "eui", case };
        let found = r.devices_labelled(&lists(&home.lineage, None), tag, &values).await.unwrap();
        values.map(|value| found.get(value).copied())
    };
    let one = |place: usize| Some(TagCarrier::Device(made[place], project));
    let several = Some(TagCarrier::Ambiguous);
    assert_eq!(
        found(TagCase::Insensitive).await,
        [one(0), one(0), one(0), one(1), one(2), several, one(4), several, one(6), None, None]
    );
    assert_eq!(
        found(TagCase::Sensitive).await,
        [None, None, one(0), one(1), one(2), None, one(4), None, None, None, None]
    );
    // It follows the label.
    let mut change = given::unchanged(&fetched(r, made[0]).await);
    change.meta = Some(json(r#"{"eui":"70B3D57F"}"#));
    r.device_update(&may(made[0]), &change, at(1)).await.unwrap();
    assert_eq!(found(TagCase::Insensitive).await[..3], [None, None, None]);
}

/// Checks that concurrent deliveries in any case of letters create a device once.
pub async fn tag_in_any_case_is_provisioned_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let tag = Tag { label: "eui", case: TagCase::Insensitive };
    let tasks: Vec<_> = (0..20)
        .map(|turn| {
            let (r, value) = (r.clone(), ["70b3d57e", "70B3D57E", "70B3d57e"][turn % 3]);
            tokio::spawn(async move { provision_by(&r, home, tag, &[tagged(project, value)]).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap().iter().filter(|made| matches!(made, Provisioned::Made(_))).count();
    }
    assert_eq!((made, given::refetched(r, home).await.device_count), (1, 1));
    for value in ["ab", "AB"] {
        r.device_create(&may(home), tagged(project, value).device, at(0)).await.unwrap();
    }
    let several = provision_by(r, home, tag, &[tagged(project, "Ab")]).await;
    assert_eq!(several, [Provisioned::Ambiguous]);
}

/// Checks that labels are added or replaced, that others stay, and that a device which has them all is not written.
pub async fn labels_are_given_to_many_devices_at_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut devices = Vec::new();
    for meta in ["{}", r#"{"room":"own","gateway":"old","n":1.50}"#, r#"{"gateway":"new","room":"r1"}"#] {
        let mut new = given::new_device(project, "d");
        new.meta = json(meta);
        devices.push(r.device_create(&may(home), new, at(0)).await.unwrap().reference());
    }
    let label = |name: &str, value: &str| (name.to_owned(), json(value));
    let labels = NewLabels { missing: vec![label("room", r#""r1""#)], set: vec![label("gateway", r#""new""#)] };
    let gone = given::device(r, home, project, "gone").await.reference();
    r.device_delete(&may(gone)).await.unwrap();
    let permits: Vec<CanWrite<DeviceRef>> = devices.iter().copied().chain([gone]).map(may).collect();
    let changed = r.devices_label(&permits, &labels, at(5)).await.unwrap();
    assert_eq!(changed.len(), 2);
    let mut metas = Vec::new();
    for device in &devices {
        let device = fetched(r, *device).await;
        metas.push((device.meta.text().to_owned(), device.updated_at));
    }
    let expected = [
        (r#"{"room":"r1","gateway":"new"}"#, at(5)),
        (r#"{"room":"own","gateway":"new","n":1.50}"#, at(5)),
        (r#"{"gateway":"new","room":"r1"}"#, at(0)),
    ];
    assert_eq!(metas, expected.map(|(meta, moment)| (meta.to_owned(), moment)));
    assert_eq!(labelled(r, "gateway", "new").await, Some(devices[0]));
    assert_eq!(labelled(r, "gateway", "old").await, None);
    assert!(r.devices_label(&permits, &labels, at(6)).await.unwrap().is_empty());
}

/// Checks that patches of one device are applied in order, that one without room changes nothing, and that a deleted or
/// moved device is skipped.
pub async fn label_patches_skip_moved_and_deleted_devices(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut devices = Vec::new();
    for meta in [r#"{"room":"r1","n":1.50}"#, "{}", r#"{"same":1}"#] {
        let mut new = given::new_device(project, "d");
        new.meta = json(meta);
        devices.push(r.device_create(&may(home), new, at(0)).await.unwrap().reference());
    }
    let gone = given::device(r, home, project, "gone").await.reference();
    r.device_delete(&may(gone)).await.unwrap();
    let large = format!(r#"{{"large":"{}"}}"#, "x".repeat(70_000));
    let texts =
        [r#"{"room":"r2","latitude":1,"longitude":2}"#, &large, r#"{"room":null,"site":{"a":1}}"#, r#"{"same":1}"#];
    let patches = texts.map(|text| MetaPatch::read(&parse(text).unwrap()).unwrap());
    let change = |device: DeviceRef, decided_in, which: &[usize]| MetaChange {
        permit: may(device),
        decided_in,
        patches: which.iter().map(|at| &patches[*at]).collect(),
    };
    let elsewhere = given::organization(r, None, "Other").await.id;
    let done = r
        .devices_patch(
            &[
                change(devices[0], home, &[0, 1, 2]),
                change(devices[1], elsewhere, &[0]),
                change(gone, home, &[0]),
                change(devices[2], home, &[3]),
            ],
            at(5),
        )
        .await
        .unwrap();
    let [Some(first), None, None, Some(last)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(first.refused, [None, Some("at most 65536 bytes"), None]);
    assert_eq!(first.device.meta.text(), r#"{"n":1.50,"latitude":1,"longitude":2,"site":{"a":1}}"#);
    for (device, now) in devices.iter().zip([Some(&first.device), None, Some(&last.device)]) {
        let kept = fetched(r, *device).await;
        assert!(now.is_none_or(|now| *now == kept), "{kept:?}");
        assert_eq!(kept.updated_at, if *device == devices[0] { at(5) } else { at(0) });
    }
    assert_eq!(labelled(r, "room", "r1").await, None);
    assert_eq!(labelled(r, "latitude", "1").await, Some(devices[0]));
}

/// Checks that a tag of a device beneath creates no device, and that a tag of a device above or elsewhere does.
pub async fn tag_without_a_device_is_provisioned(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let project = given::project(r, top.id, "p").await.id;
    let wanted = [tagged(project, "e1"), tagged(project, "e2")];
    let made = provision(r, low.id, &wanted).await;
    let [Provisioned::Made(first), Provisioned::Made(second)] = made[..] else { panic!("{made:?}") };
    assert_eq!((first.id, second.id), (wanted[0].device.id, wanted[1].device.id));
    let again = provision(r, low.id, &[tagged(project, "e2"), tagged(project, "e3")]).await;
    assert!(matches!(again[..], [Provisioned::Known(known), Provisioned::Made(_)] if known == second));
    assert!(matches!(provision(r, top.id, &[tagged(project, "e1")]).await[..], [Provisioned::Known(_)]));
    provision(r, top.id, &[tagged(project, "e4")]).await;
    assert!(matches!(provision(r, low.id, &[tagged(project, "e4")]).await[..], [Provisioned::Made(_)]));
    let device = fetched(r, first).await;
    assert_eq!((device.name.as_str(), device.meta.text()), ("e1", r#"{"eui":"e1","site":7}"#));
    assert_eq!(given::refetched(r, low.id).await.device_count, 4);
    assert_eq!(given::refetched(r, top.id).await.device_count, 5);
    assert_eq!(r.device_list(&lists_all(), &given::search("e3")).await.unwrap().total, 1);
    let nowhere = r.devices_provision(&may(OrganizationId(given::uuid())), given::tag("eui"), &wanted, at(1)).await;
    assert!(matches!(nowhere, Err(StoreError::Gone("organization"))));
}

/// Checks that devices beyond a limit or without a project are reported, and that the rest is created.
pub async fn provisioning_ends_at_the_device_limit(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let project = given::project(r, top.id, "p").await.id;
    super::limit(r, &top, 3.0).await;
    given::device(r, top.id, project, "a").await;
    let nobody = ProjectId(given::uuid());
    let wanted = [("e1", project), ("e2", nobody), ("e3", project), ("e4", project)];
    let wanted = wanted.map(|(value, project)| tagged(project, value));
    let made = provision(r, low.id, &wanted).await;
    let [Provisioned::Made(_), Provisioned::NoProject, Provisioned::Made(_), Provisioned::NoRoom] = made[..] else {
        panic!("{made:?}")
    };
    assert_eq!(given::refetched(r, top.id).await.device_count, 3);
}

/// Checks that concurrent deliveries create a device once.
pub async fn a_tag_is_provisioned_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let tasks: Vec<_> = (0..20)
        .map(|turn| {
            let r = r.clone();
            let wanted = [tagged(project, "same"), tagged(project, if turn % 2 == 0 { "even" } else { "odd" })];
            tokio::spawn(async move { provision(&r, home, &wanted).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap().iter().filter(|made| matches!(made, Provisioned::Made(_))).count();
    }
    assert_eq!((made, given::refetched(r, home).await.device_count), (3, 3));
}

/// Checks that a large delivery creates all its devices.
pub async fn a_thousand_devices_are_provisioned_at_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let wanted: Vec<NewTagged> = (0..1_000).map(|number| tagged(project, &format!("e{number}"))).collect();
    let made = provision(r, home, &wanted).await;
    let expected: Vec<_> = wanted.iter().map(|new| new.device.id).collect();
    let ids = made.iter().map(|made| match made {
        Provisioned::Made(device) => device.id,
        other => panic!("{other:?}"),
    });
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    let known = provision(r, home, &wanted).await;
    assert!(
        known.iter().zip(&made).all(|pair| matches!(pair, (Provisioned::Known(a), Provisioned::Made(b)) if a == b))
    );
}
