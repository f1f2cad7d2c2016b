//! Filters of devices, their counts, and devices that are created in bulk.

use std::collections::HashMap;

use isobar_model::access::{CanList, Scope};
use isobar_model::device::{Device, Location};
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId};
use isobar_model::page::{ListRequest, PageRequest};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use super::given::{self, at, fetched, json, lists, lists_all, may, sorted};
use super::lists::{expected, fleet, hold_following, ids_of};
use isobar_store::registry::{
    ActiveDevices, DeviceCreation, DeviceField, DeviceFilter, DeviceSelection, DeviceSummary, NewDevice, NewDevices,
    Registry, UnwrittenDevices,
};
use isobar_store::telemetry::{Operand, Operator};

type Fits = Box<dyn Fn(&Device) -> bool>;

fn filter(field: DeviceField, operator: Operator, operands: &[Operand]) -> DeviceFilter {
    DeviceFilter { field, operator, operands: operands.to_vec() }
}

fn selection(filters: &[&DeviceFilter]) -> DeviceSelection {
    DeviceSelection { filters: filters.iter().copied().cloned().collect(), ..DeviceSelection::default() }
}

fn text(text: &str) -> Operand {
    Operand::Text(text.to_owned())
}

fn number(text: &str) -> Operand {
    Operand::Number(text.to_owned())
}

/// Returns the metadata's member `level` as written.
fn level(device: &Device) -> Option<String> {
    let level = device.meta.text().split_once(r#""level":"#)?.1;
    level.strip_suffix('}').map(str::to_owned)
}

fn is_level(device: &Device, levels: &[&str]) -> bool {
    level(device).is_some_and(|level| levels.contains(&level.as_str()))
}

fn site(device: &Device) -> String {
    device.meta.tree().get("site").unwrap().scalar_text().unwrap().into_owned()
}

/// Returns filters on columns, with their meaning.
fn of_columns() -> Vec<(DeviceFilter, Fits)> {
    use DeviceField::{CreatedAt, LastActive, Name, Status as StatusInt, UpdatedAt};
    let time = |millis| Operand::Time(at(millis));
    vec![
        (filter(Name, Operator::Eq, &[text("pump")]), Box::new(|d| d.name == "pump")),
        (filter(Name, Operator::Ne, &[text("pump")]), Box::new(|d| d.name != "pump")),
        (filter(Name, Operator::Gte, &[text("pump")]), Box::new(|d| d.name.as_str() >= "pump")),
        (filter(Name, Operator::Lt, &[text("a")]), Box::new(|d| d.name.as_str() < "a")),
        (filter(Name, Operator::In, &[text("über"), text("fan")]), Box::new(|d| d.name == "über" || d.name == "fan")),
        (filter(Name, Operator::Nin, &[text("über"), text("fan")]), Box::new(|d| d.name != "über" && d.name != "fan")),
        (filter(StatusInt, Operator::Eq, &[number("3")]), Box::new(|d| d.status == Status::Warning)),
        (filter(StatusInt, Operator::Gt, &[number("3")]), Box::new(|d| d.status > Status::Warning)),
        (filter(StatusInt, Operator::Lte, &[number("-1")]), Box::new(|_| false)),
        (
            filter(StatusInt, Operator::Nin, &[number("0"), number("5")]),
            Box::new(|d| !matches!(d.status.number(), 0 | 5)),
        ),
        (filter(CreatedAt, Operator::Gte, &[time(9)]), Box::new(|d| d.created_at >= at(9))),
        (filter(CreatedAt, Operator::Eq, &[time(9)]), Box::new(|d| d.created_at == at(9))),
        (filter(UpdatedAt, Operator::Lt, &[time(100)]), Box::new(|d| d.updated_at < at(100))),
        (filter(LastActive, Operator::Eq, &[Operand::Null]), Box::new(|d| d.last_active.is_none())),
        (filter(LastActive, Operator::Ne, &[Operand::Null]), Box::new(|d| d.last_active.is_some())),
        (filter(LastActive, Operator::Gt, &[Operand::Null]), Box::new(|_| false)),
        (filter(LastActive, Operator::Lt, &[time(3)]), Box::new(|d| d.last_active.is_some_and(|heard| heard < at(3)))),
        (
            filter(LastActive, Operator::Gte, &[time(3)]),
            Box::new(|d| d.last_active.is_some_and(|heard| heard >= at(3))),
        ),
        (filter(LastActive, Operator::Ne, &[time(3)]), Box::new(|d| d.last_active != Some(at(3)))),
        (
            filter(LastActive, Operator::Gt, &[Operand::Time(Timestamp::from_millis(-5))]),
            Box::new(|d| d.last_active.is_some()),
        ),
        (
            filter(LastActive, Operator::In, &[Operand::Null, time(4)]),
            Box::new(|d| d.last_active.is_none_or(|heard| heard == at(4))),
        ),
    ]
}

/// Returns filters on metadata, with their meaning, which is the same for every kind of value in both databases.
fn of_metadata() -> Vec<(DeviceFilter, Fits)> {
    let meta = |path: &str| DeviceField::Meta(path.split('.').map(str::to_owned).collect());
    let of_level = |operator, operand: Operand, levels: &'static [&'static str]| -> (DeviceFilter, Fits) {
        (filter(meta("level"), operator, &[operand]), Box::new(move |d| is_level(d, levels)))
    };
    const HUGE: &str = "12345678901234567890123";
    vec![
        of_level(Operator::Eq, number("1"), &["1", "1.0"]),
        of_level(Operator::Gt, number("0"), &["1", "1.0", HUGE]),
        of_level(Operator::Lte, number("-2.5"), &["-2.5e0"]),
        of_level(Operator::Gte, number(HUGE), &[HUGE]),
        of_level(Operator::Eq, number("12345678901234567890122"), &[]),
        of_level(Operator::Eq, text("1"), &["\"1\""]),
        of_level(Operator::Eq, Operand::Null, &["null"]),
        of_level(Operator::Eq, Operand::Bool(true), &["true"]),
        of_level(Operator::Lt, Operand::Bool(true), &[]),
        (filter(meta("level"), Operator::Ne, &[number("1")]), Box::new(|d| !is_level(d, &["1", "1.0"]))),
        (filter(meta("level"), Operator::Ne, &[Operand::Null]), Box::new(|d| !is_level(d, &["null"]))),
        (
            filter(meta("level"), Operator::Nin, &[Operand::Null, Operand::Bool(true), text("1")]),
            Box::new(|d| !is_level(d, &["null", "true", "\"1\""])),
        ),
        (
            filter(meta("level"), Operator::In, &[Operand::Bool(true), text("1")]),
            Box::new(|d| is_level(d, &["true", "\"1\""])),
        ),
        (filter(meta("level.in"), Operator::Eq, &[number("3")]), Box::new(|d| is_level(d, &[r#"{"in":3}"#]))),
        (filter(meta("level.1"), Operator::Gte, &[number("8")]), Box::new(|d| is_level(d, &["[7,8]"]))),
        (filter(meta("level.1"), Operator::Ne, &[number("8")]), Box::new(|d| !is_level(d, &["[7,8]"]))),
        (filter(meta("nowhere"), Operator::Lt, &[number("8")]), Box::new(|_| false)),
        (filter(meta("site"), Operator::Eq, &[text("east")]), Box::new(|d| site(d) == "east")),
        (filter(meta("site"), Operator::Lt, &[text("a")]), Box::new(|d| site(d).as_str() < "a")),
        (filter(meta("site"), Operator::Gt, &[text("z")]), Box::new(|d| site(d).as_str() > "z")),
        (filter(meta("site"), Operator::Eq, &[text("a\0b")]), Box::new(|d| site(d) == "a\0b")),
        (
            filter(meta("site"), Operator::In, &[text(""), text("ü"), text("a\0b")]),
            Box::new(|d| matches!(site(d).as_str(), "" | "ü" | "a\0b")),
        ),
    ]
}

async fn holds(r: &Registry, permit: &CanList, request: &ListRequest, asked: &DeviceSelection, wanted: &[&Device]) {
    let wanted: Vec<DeviceId> = wanted.iter().map(|device| device.id).collect();
    let all = r.device_ids_selected(permit, request, asked).await.unwrap();
    assert_eq!(all, wanted, "{:?} {:?}", asked.filters, request.sort);
    if request.is_by_creation() {
        let ids: Vec<_> = wanted.iter().map(|id| id.0).collect();
        let list =
            async |request| ids_of(r.devices_selected(permit, &request, asked).await.unwrap(), |device| device.id.0);
        hold_following(request, (&ids, 13), list).await;
    }
    for (number, page) in (1..).zip(wanted.chunks(13).chain([&[][..]])) {
        let request = ListRequest { page: PageRequest::new(number, 13), ..request.clone() };
        let found = r.devices_selected(permit, &request, asked).await.unwrap();
        let ids: Vec<_> = found.items.iter().map(|device| device.id).collect();
        assert_eq!((found.total, ids.as_slice()), (wanted.len() as u64, page), "{:?} {request:?}", asked.filters);
    }
}

/// Checks that every page of every filter in every order, from every organization, equals that of a plain scan.
pub async fn device_filters_are_exact_in_every_order(r: &Registry) {
    let (tree, devices) = fleet(r, 60).await;
    let orders: [&[&str]; 6] =
        [&["name"], &["-createdAt"], &["lastActive"], &["-lastActive"], &["statusInt"], &["-description", "name"]];
    for (at, (asked, fits)) in of_columns().into_iter().chain(of_metadata()).enumerate() {
        // Each filter meets every order somewhere.
        for (order, base) in orders.iter().zip((at..).map(|at| &tree[at % tree.len()])) {
            let request = sorted(order);
            let beneath = |device: &Device| device.lineage.contains(base.id) && fits(device);
            let wanted = expected(&devices, &request, beneath);
            holds(r, &lists(&base.lineage, None), &request, &selection(&[&asked]), &wanted).await;
        }
        let request = sorted(orders[at % orders.len()]);
        holds(r, &lists_all(), &request, &selection(&[&asked]), &expected(&devices, &request, &fits)).await;
    }
}

/// Checks that several filters combine, also with a search and with identifiers.
pub async fn filters_narrow_each_other(r: &Registry) {
    let (tree, devices) = fleet(r, 60).await;
    let (columns, metadata) = (of_columns(), of_metadata());
    let everybody = lists(&tree[0].lineage, None);
    for (at, (one, fits_one)) in columns.iter().enumerate() {
        let (two, fits_two) = &metadata[at % metadata.len()];
        let (three, fits_three) = &columns[(at + 5) % columns.len()];
        let fits = |device: &Device| fits_one(device) && fits_two(device) && fits_three(device);
        let asked = selection(&[one, two, three]);
        let request = sorted(&["-createdAt"]);
        holds(r, &everybody, &request, &asked, &expected(&devices, &request, fits)).await;
        let searching = ListRequest { search: Some("PUMP".to_owned()), ..sorted(&["lastActive"]) };
        let found = |device: &Device| fits(device) && device.name.to_lowercase() == "pump";
        holds(r, &everybody, &searching, &asked, &expected(&devices, &searching, found)).await;
        let some: Vec<_> = devices.iter().step_by(2).map(|device| device.id).collect();
        let held = ListRequest { ids: Some(some.iter().map(ToString::to_string).collect()), ..sorted(&["name"]) };
        let found = |device: &Device| fits(device) && some.contains(&device.id);
        holds(r, &everybody, &held, &asked, &expected(&devices, &held, found)).await;
    }
}

/// Checks that metadata of any size is searched, some devices at a time, and that none is skipped.
pub async fn much_metadata_is_searched(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let new = |number: usize| {
        let filling = "x".repeat(if number.is_multiple_of(7) { 1_000 } else { 1 });
        let meta = json(&format!(r#"{{"filling":"{filling}","n":{number}}}"#));
        NewDevice { meta, ..given::new_device(project, &format!("d{number:04}")) }
    };
    let group = NewDevices { permit: may(home.id), devices: (0..700).map(new).collect() };
    r.devices_create(&[group], at(0)).await.unwrap();
    let meta = DeviceField::Meta(vec!["n".to_owned()]);
    let asked = selection(&[&filter(meta, Operator::Gte, &[number("250")])]);
    let page = r.devices_selected(&lists_all(), &given::page(2, 100), &asked).await.unwrap();
    assert_eq!((page.total, page.items[0].name.as_str(), page.items[99].name.as_str()), (450, "d0350", "d0449"));
    let permit = lists(&home.lineage, Some(1));
    assert_eq!(r.device_summary(&permit, &asked, at(1)).await.unwrap().total, 450);
}

/// Makes the findings of runs that the registry does not have yet.
fn unwritten(changed: &[Device]) -> UnwrittenDevices {
    let changed: HashMap<DeviceId, Device> = changed.iter().map(|device| (device.id, device.clone())).collect();
    UnwrittenDevices {
        devices: changed.keys().copied().collect(),
        apply: Box::new(move |device| {
            if let Some(newer) = changed.get(&device.id) {
                (device.status, device.meta, device.location, device.updated_at) =
                    (newer.status, newer.meta.clone(), newer.location, newer.updated_at);
            }
        }),
    }
}

/// Checks that filters and counts use the newest state of devices, even if it is not written yet.
pub async fn unwritten_reports_decide_in_filters(r: &Registry) {
    let (tree, mut devices) = fleet(r, 60).await;
    let (mut changed, mut heard) = (Vec::new(), Vec::new());
    for (number, device) in devices.iter_mut().enumerate() {
        if number % 5 == 0 {
            device.status = Status::ALL[(number / 5) % 6];
            device.meta = json(r#"{"site":"east","level":1}"#);
            device.location = Location::new(1.0, 2.0);
            device.updated_at = at(1_000);
            changed.push(device.clone());
        }
        if number % 3 == 0 {
            // The time is later than that in the registry.
            let later = device.last_active.map_or(at(4), |heard| heard.max(at(4)));
            device.last_active = Some(later);
            heard.push((device.key, later));
        }
    }
    for (asked, fits) in of_columns().into_iter().chain(of_metadata()) {
        let asked =
            DeviceSelection { heard: heard.clone(), unwritten: Some(unwritten(&changed)), ..selection(&[&asked]) };
        for base in [&tree[0], &tree[2]] {
            let request = sorted(&["createdAt"]);
            let beneath = |device: &Device| device.lineage.contains(base.id) && fits(device);
            let (permit, wanted) = (lists(&base.lineage, None), expected(&devices, &request, beneath));
            holds(r, &permit, &request, &asked, &wanted).await;
            assert_eq!(r.device_summary(&permit, &asked, at(5)).await.unwrap(), summed(r, &wanted, at(5)).await);
        }
    }
    let asked = DeviceSelection { heard, unwritten: Some(unwritten(&changed)), ..DeviceSelection::default() };
    for base in &tree {
        let beneath: Vec<_> = devices.iter().filter(|device| device.lineage.contains(base.id)).collect();
        let summary = r.device_summary(&lists(&base.lineage, None), &asked, at(5)).await.unwrap();
        assert_eq!(summary, summed(r, &beneath, at(5)).await);
    }
}

/// Counts a summary device by device. There is one project.
async fn summed(r: &Registry, devices: &[&Device], now: Timestamp) -> DeviceSummary {
    let mut summary = DeviceSummary::default();
    let age = |device: &Device| device.last_active.map(|heard| now.millis() - heard.millis());
    let active = &mut summary.active;
    for device in devices {
        summary.by_status[usize::from(device.status.number())] += 1;
        summary.located += u64::from(device.coordinates().is_some());
        match age(device) {
            None => active.never += 1,
            Some(age) => {
                active.hour += u64::from(age <= 3_600_000);
                active.day += u64::from(age <= 86_400_000);
                active.week += u64::from(age <= 604_800_000);
            }
        }
    }
    summary.total = devices.len() as u64;
    if let Some(first) = devices.first() {
        let project = r.project_fetch(&given::sees(first.project)).await.unwrap().unwrap();
        summary.by_project.push(isobar_store::registry::ProjectDevices {
            project: project.id,
            name: project.name,
            lineage: r.project_placement(first.project).await.unwrap().unwrap(),
            count: summary.total,
        });
    }
    summary
}

/// Checks that each device is counted once, by its newest state, in its part of the tree.
pub async fn a_summary_counts_each_device_once(r: &Registry) {
    let (tree, mut devices) = fleet(r, 60).await;
    // Hours, days and weeks ago; each limit belongs to the shorter time.
    let ages = [0, 3_599_999, 3_600_000, 3_600_001, 86_400_000, 86_400_001, 604_800_000, 604_800_001];
    let now = at(1_000_000_000);
    let touched = devices.iter().step_by(2).zip(ages.into_iter().cycle());
    let touched: Vec<_> =
        touched.map(|(device, age)| (device.key, Timestamp::from_millis(now.millis() - age))).collect();
    r.devices_touch(&touched).await.unwrap();
    for device in &mut devices {
        *device = fetched(r, device.reference()).await;
    }
    let none = DeviceSelection::default();
    for base in &tree {
        for levels in [None, Some(1), Some(2)] {
            let permit = lists(&base.lineage, levels);
            let Scope::Beneath { base: of, .. } = permit.scope() else { panic!("a part") };
            let deepest = levels.map_or(u32::MAX, |levels| of.level() as u32 + levels - 1);
            let beneath =
                |device: &&Device| device.lineage.contains(base.id) && device.lineage.level() as u32 <= deepest;
            let beneath: Vec<_> = devices.iter().filter(beneath).collect();
            assert_eq!(r.device_summary(&permit, &none, now).await.unwrap(), summed(r, &beneath, now).await);
        }
    }
    let everything: Vec<_> = devices.iter().collect();
    let summary = r.device_summary(&lists_all(), &none, now).await.unwrap();
    assert_eq!(summary, summed(r, &everything, now).await);
    let ActiveDevices { hour, day, week, never } = summary.active;
    assert!(0 < hour && hour < day && day < week && never == 30 && week < 30, "{:?}", summary.active);
    let empty = given::organization(r, None, "Empty").await;
    let summary = r.device_summary(&lists(&empty.lineage, None), &none, now).await.unwrap();
    assert_eq!(summary, DeviceSummary::default());
}

/// Checks the counts by age: most devices were active within an hour, then within a day, a week, and before that; one
/// was never active. One age is never counted but derived from the others, and which one that is changes meanwhile.
pub async fn summary_derives_the_commonest_age_from_the_others(r: &Registry) {
    const HOUR: i64 = 3_600_000;
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let mut devices = Vec::new();
    for number in 0..9 {
        devices.push(given::device(r, home.id, project, &format!("d{number}")).await);
    }
    let touched: Vec<_> = devices[1..].iter().map(|device| (device.key, at(HOUR))).collect();
    r.devices_touch(&touched).await.unwrap();
    for device in &mut devices {
        *device = fetched(r, device.reference()).await;
    }
    let all: Vec<_> = devices.iter().collect();
    for hours in [1, 2, 24, 200, 2_000, 30, 1] {
        let now = at(HOUR + hours * HOUR - 1);
        for _ in 0..2 {
            for permit in [lists_all(), lists(&home.lineage, None)] {
                let summary = r.device_summary(&permit, &DeviceSelection::default(), now).await.unwrap();
                assert_eq!(summary, summed(r, &all, now).await, "{hours}");
            }
        }
    }
}

fn group(organization: OrganizationId, project: ProjectId, count: usize) -> NewDevices {
    let devices = (0..count).map(|number| given::new_device(project, &format!("d{number}"))).collect();
    NewDevices { permit: may(organization), devices }
}

/// Checks that of many devices the valid ones are created, and that the others do not prevent that.
pub async fn each_device_of_many_is_created_separately(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let project = given::project(r, top.id, "p").await.id;
    let mut mixed = group(low.id, project, 3);
    mixed.devices[1].project = ProjectId(given::uuid());
    let gone = group(OrganizationId(given::uuid()), project, 1);
    let outcomes = r.devices_create(&[group(top.id, project, 1), mixed, gone], at(0)).await.unwrap();
    use DeviceCreation::{Made, NoOrganization, NoProject, NoRoom};
    assert_eq!(outcomes, [vec![Made], vec![Made, NoProject, Made], vec![NoOrganization]]);
    assert_eq!(given::refetched(r, top.id).await.device_count, 3);
    super::limit(r, &top, 5.0).await;
    assert_eq!(
        r.devices_left(std::slice::from_ref(&low.lineage)).await.unwrap().iter().map(|room| room.left).sum::<u64>(),
        2
    );
    let outcomes = r.devices_create(&[group(top.id, project, 1), group(low.id, project, 3)], at(0)).await.unwrap();
    assert_eq!(outcomes, [vec![Made], vec![Made, NoRoom, NoRoom]]);
    assert_eq!(r.device_list(&lists_all(), &given::page(1, 10)).await.unwrap().total, 5);
    assert_eq!(given::refetched(r, top.id).await.device_count, 5);
}

/// Checks that a limit is met exactly by concurrent bulks in any organizations.
pub async fn limit_holds_for_concurrent_bulks(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let mut low = Vec::new();
    for name in ["A", "B", "C"] {
        low.push(given::organization(r, Some(top.id), name).await);
    }
    low.sort_by_key(|organization| organization.lineage.to_string());
    let project = given::project(r, top.id, "p").await.id;
    super::limit(r, &top, 57.0).await;
    let makes = (0..9).map(|number| {
        let groups =
            low.iter().skip(number % 3).map(|organization| group(organization.id, project, 5)).collect::<Vec<_>>();
        async move { r.devices_create(&groups, at(0)).await.unwrap() }
    });
    let outcomes: Vec<_> = futures::future::join_all(makes).await.into_iter().flatten().flatten().collect();
    assert_eq!(outcomes.len(), 90);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == DeviceCreation::Made).count(), 57);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, DeviceCreation::Made | DeviceCreation::NoRoom)));
    assert_eq!(given::refetched(r, top.id).await.device_count, 57);
    assert_eq!(r.device_list(&lists_all(), &given::page(1, 100)).await.unwrap().total, 57);
}
