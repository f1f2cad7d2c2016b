//! Devices on a map.

use isobar_model::alarm::AlarmSeverity;
use isobar_model::device::{Location, PlacedDevice};
use isobar_model::map::MapBox;
use isobar_model::page::PageRequest;
use isobar_model::status::Status;

use super::alarm_counts::raises;
use super::given::{self, at, fetched, json, lists, lists_all, may};
use isobar_store::registry::{DeviceChange, DeviceReport, NewDevice, Registry};

const ALL: PageRequest = PageRequest::new(1, 100);

fn location(latitude: f64, longitude: f64) -> Option<Location> {
    Location::new(latitude, longitude)
}

async fn places(r: &Registry) -> Vec<Option<Location>> {
    let page = r.device_places(&lists_all(), &MapBox::WORLD, ALL).await.unwrap();
    page.items.iter().map(|device| Some(device.location)).collect()
}

/// Checks that a location of the design or a setting wins over that of the metadata, in either order.
pub async fn location_of_a_report_wins_over_metadata(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await;
    let permit = may(device.reference());
    assert_eq!(places(r).await, []);
    let change = |meta: &str| DeviceChange { meta: Some(json(meta)), ..given::unchanged(&device) };
    for (meta, expected) in [
        (r#"{"latitude":46.5,"longitude":-7}"#, location(46.5, -7.0)),
        (r#"{"latitude":-90,"longitude":1.8e2,"x":1}"#, location(-90.0, 180.0)),
        (r#"{"latitude":90.01,"longitude":1}"#, None),
        (r#"{"latitude":1,"longitude":-1e300}"#, None),
        (r#"{"latitude":"46","longitude":"7"}"#, None),
        (r#"{"latitude":46}"#, None),
        (r#"{"place":{"latitude":1,"longitude":1}}"#, None),
    ] {
        r.device_update(&permit, &change(meta), at(1)).await.unwrap();
        assert_eq!(places(r).await, expected.map(Some).into_iter().collect::<Vec<_>>(), "{meta}");
        assert_eq!(fetched(r, device.reference()).await.coordinates(), expected, "{meta}");
    }
    let labels = DeviceReport {
        meta: vec![("latitude".to_owned(), json("1")), ("longitude".to_owned(), json("2"))],
        ..DeviceReport::default()
    };
    given::reports(r, device.reference(), &labels, at(2)).await;
    assert_eq!(places(r).await, [location(1.0, 2.0)]);
    let moved = DeviceReport { location: location(3.0, 4.0), ..DeviceReport::default() };
    given::reports(r, device.reference(), &moved, at(3)).await;
    given::reports(r, device.reference(), &labels, at(4)).await;
    r.device_update(&permit, &change(r#"{"latitude":5,"longitude":6}"#), at(5)).await.unwrap();
    assert_eq!(places(r).await, [location(3.0, 4.0)]);
    r.device_update(&permit, &change("{}"), at(6)).await.unwrap();
    assert_eq!(places(r).await, [location(3.0, 4.0)]);
}

/// Checks that the list covers its part of the tree, and that its pages do not overlap.
pub async fn placed_devices_are_listed_by_page_and_place_in_the_tree(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let north = given::organization(r, Some(top.id), "North").await;
    let project = given::project(r, top.id, "p").await.id;
    let mut made = Vec::new();
    for number in 0..20 {
        let meta = if number % 3 == 0 { "{}".to_owned() } else { format!(r#"{{"latitude":{number},"longitude":0}}"#) };
        let new = NewDevice { meta: json(&meta), ..given::new_device(project, &format!("d{number}")) };
        let owner = if number % 2 == 0 { top.id } else { north.id };
        let device = r.device_create(&may(owner), new, at(0)).await.unwrap();
        if let Some(location) = device.coordinates() {
            made.push(PlacedDevice {
                id: device.id,
                name: device.name,
                organization: owner,
                location,
                status: Status::None,
                alarm: None,
            });
        }
    }
    let listed = async |base, levels, page| r.device_places(&lists(base, levels), &MapBox::WORLD, page).await.unwrap();
    let all = listed(&top.lineage, None, ALL).await;
    assert_eq!((all.total, &all.items), (13, &made));
    let own: Vec<_> = made.iter().filter(|device| device.organization == top.id).cloned().collect();
    assert_eq!(listed(&top.lineage, Some(1), ALL).await.items, own);
    let norths: Vec<_> = made.iter().filter(|device| device.organization == north.id).cloned().collect();
    assert_eq!(listed(&north.lineage, None, ALL).await.items, norths);
    let mut paged = Vec::new();
    for page in 1..=4 {
        let found = listed(&top.lineage, None, PageRequest::new(page, 5)).await;
        assert_eq!(found.total, 13);
        paged.extend(found.items);
    }
    assert_eq!(paged, made);
}

/// Checks that devices are counted by cells of the requested box, within their part of the tree, also across the date
/// line.
// Holds: c13.clusters
pub async fn clusters_count_devices_in_the_box(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let north = given::organization(r, Some(top.id), "North").await;
    let project = given::project(r, top.id, "p").await.id;
    let places = [
        ("a", top.id, 47.0, 8.0, Status::Good),
        ("b", top.id, 48.0, 9.0, Status::Missing),
        ("c", north.id, 47.5, 8.5, Status::Warning),
        ("east", top.id, 0.0, 179.5, Status::Good),
        ("west", top.id, 0.0, -179.5, Status::Good),
        ("pole", top.id, 90.0, 180.0, Status::Critical),
    ];
    let (mut ids, mut devices) = (Vec::new(), Vec::new());
    for (name, owner, latitude, longitude, status) in places {
        let meta = json(&format!(r#"{{"latitude":{latitude},"longitude":{longitude}}}"#));
        let new = NewDevice { meta, ..given::new_device(project, name) };
        let device = r.device_create(&may(owner), new, at(0)).await.unwrap();
        let report = DeviceReport { status: Some(status), ..DeviceReport::default() };
        given::reports(r, device.reference(), &report, at(1)).await;
        ids.push(device.id);
        devices.push(device);
    }
    raises(r, &devices[0], AlarmSeverity::Critical, 1, false).await;
    raises(r, &devices[2], AlarmSeverity::Warning, 2, false).await;
    raises(r, &devices[3], AlarmSeverity::Info, 1, true).await;
    let nowhere = given::device(r, top.id, project, "nowhere").await;
    assert_eq!(nowhere.coordinates(), None);
    let clusters = async |base, levels, edges: [f64; 4], cell| {
        r.device_clusters(&lists(base, levels), &MapBox::new(edges).unwrap(), cell).await.unwrap()
    };
    let world = [-180.0, -90.0, 180.0, 90.0];
    let all = clusters(&top.lineage, None, world, 10.0).await;
    let told: Vec<_> = all.iter().map(|cluster| (cluster.count(), cluster.status())).collect();
    let (good, warning) = (Status::Good, Status::Warning);
    assert_eq!(told, [(1, good), (1, good), (3, warning), (1, Status::Critical)]);
    let near = &all[2];
    assert_eq!((&near.by_status, near.only.clone()), (&[0, 1, 0, 1, 0, 1], None));
    assert_eq!(Some(near.middle), location(47.5, 8.5));
    assert_eq!(Some(near.bounds), MapBox::new([8.0, 47.0, 9.0, 48.0]));
    assert_eq!(all[0].only, Some((ids[4], "west".to_owned())));
    let alarms: Vec<_> = all.iter().map(|cluster| cluster.alarms).collect();
    assert_eq!(alarms, [None, None, Some((AlarmSeverity::Critical, 2)), None]);
    let places = r.device_places(&lists(&north.lineage, None), &MapBox::WORLD, ALL).await.unwrap();
    assert_eq!(places.items[0].alarm, Some(AlarmSeverity::Warning));
    let named = |clusters: Vec<isobar_model::map::DeviceCluster>| -> Vec<String> {
        clusters.into_iter().filter_map(|cluster| cluster.only).map(|(_, name)| name).collect()
    };
    // Edges belong to the box; another part of the tree does not.
    assert_eq!(named(clusters(&top.lineage, None, [8.0, 47.0, 9.0, 48.0], 0.4).await), ["a", "c", "b"]);
    assert_eq!(named(clusters(&top.lineage, Some(1), [8.0, 47.0, 9.0, 48.0], 0.4).await), ["a", "b"]);
    assert_eq!(named(clusters(&north.lineage, None, world, 90.0).await), ["c"]);
    assert_eq!(named(clusters(&top.lineage, None, [170.0, -10.0, -170.0, 10.0], 5.0).await), ["west", "east"]);
    assert_eq!(named(clusters(&top.lineage, None, [-179.0, -10.0, 179.0, 10.0], 5.0).await), [""; 0]);
    let listed = r.device_places(&lists_all(), &MapBox::new([170.0, -10.0, -170.0, 10.0]).unwrap(), ALL).await.unwrap();
    assert_eq!(listed.items.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["east", "west"]);
    assert_eq!(listed.total, 2);
}
