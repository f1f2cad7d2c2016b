//! Lists: pages, orders, searches.

use std::cmp::Ordering;
use std::collections::HashSet;

use isobar_model::access::CanList;
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::organization::Organization;
use isobar_model::page::{ListRequest, Page, PageRequest, SortKey};
use isobar_model::role::Role;
use isobar_model::status::Status;
use isobar_model::user::User;
use uuid::Uuid;

use super::given::{self, at, fetched, json, lists, lists_all, may, page, search, sorted, uuid};
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceReport, NewDevice, NewTagged, Provisioned, Registry};

/// More devices than a search takes at once, so that both of its ways are used.
const MANY_DEVICES: usize = 560;

/// Creates a tree of six organizations, one of which has most of the devices, and returns both.
pub(super) async fn fleet(r: &Registry, devices: usize) -> (Vec<Organization>, Vec<Device>) {
    let top = given::organization(r, None, "Top").await;
    let mut tree = vec![top.clone()];
    for (name, parent) in [("A", 0), ("B", 0), ("AA", 1), ("AB", 1), ("BA", 2)] {
        let parent: Option<&Organization> = tree.get(parent);
        tree.push(given::organization(r, parent.map(|parent| parent.id), name).await);
    }
    let project = given::project(r, top.id, "p").await.id;
    let mut made = Vec::new();
    let mut touched = Vec::new();
    for number in 0..devices {
        let mut new = given::new_device(project, ["pump", "Pump", "über", "fan", "zone"][number * 7 % 5]);
        new.description = [None, Some(""), Some("old"), Some("new")][number * 3 % 4].map(str::to_owned);
        new.meta = json(&metadata(number));
        let place = if number % 4 == 0 { number / 4 % 6 } else { 4 };
        let now = at((number * 31 % 17) as i64);
        let device = r.device_create(&may(tree[place].id), new, now).await.unwrap();
        if number % 3 == 0 {
            let status = Status::ALL[number / 3 % 6];
            let report = DeviceReport { status: Some(status), ..DeviceReport::default() };
            given::reports(r, device.reference(), &report, at(100 + (number % 5) as i64)).await;
        }
        if number % 2 == 0 {
            touched.push((device.key, at((number % 7) as i64)));
        }
        made.push(device.reference());
    }
    r.devices_touch(&touched).await.unwrap();
    let mut devices = Vec::new();
    for device in made {
        devices.push(fetched(r, device).await);
    }
    (tree, devices)
}

/// Returns metadata with every kind of value.
fn metadata(number: usize) -> String {
    let level = ["1", "1.0", "-2.5e0", "12345678901234567890123", "\"1\"", "null", "true", "{\"in\":3}", "[7,8]"];
    let level = level.get(number % 11).map(|value| format!(r#","level":{value}"#)).unwrap_or_default();
    let site = ["east", "EAST", "a\\u0000b", "", "ü"][number % 5];
    format!(r#"{{"serial":"S-{number}","site":"{site}"{level}}}"#)
}

fn by_field(field: &str, a: &Device, b: &Device) -> Ordering {
    match field {
        "name" => a.name.cmp(&b.name),
        "description" => a.description.as_deref().unwrap_or("").cmp(b.description.as_deref().unwrap_or("")),
        "createdAt" => a.created_at.cmp(&b.created_at),
        "updatedAt" => a.updated_at.cmp(&b.updated_at),
        "lastActive" => a.last_active.cmp(&b.last_active),
        _ => a.status.cmp(&b.status),
    }
}

/// Returns true if ids descend among equal items, as the last key does unless it is named before.
fn ids_descend(keys: &[SortKey]) -> bool {
    let is_new = |&at: &usize| keys[..at].iter().all(|before| before.field != keys[at].field);
    (0..keys.len()).rfind(is_new).is_some_and(|at| keys[at].descending)
}

/// Returns the expected items of a list, computed in the simple way.
pub(super) fn expected<'d>(
    devices: &'d [Device],
    request: &ListRequest,
    fits: impl Fn(&Device) -> bool,
) -> Vec<&'d Device> {
    let mut list: Vec<_> = devices.iter().filter(|device| fits(device)).collect();
    list.sort_by(|a, b| {
        let by_keys = request.sort.iter().map(|key| {
            let order = by_field(&key.field, a, b);
            if key.descending { order.reverse() } else { order }
        });
        let by_id = if ids_descend(&request.sort) { b.id.cmp(&a.id) } else { a.id.cmp(&b.id) };
        by_keys.fold(Ordering::Equal, Ordering::then).then(by_id)
    });
    list
}

async fn check_pages(r: &Registry, permit: &CanList, request: &ListRequest, expected: &[&Device], limit: u32) {
    if request.is_by_creation() {
        let wanted: Vec<Uuid> = expected.iter().map(|device| device.id.0).collect();
        let list = async |request| ids_of(r.device_list(permit, &request).await.unwrap(), |device| device.id.0);
        hold_following(request, (&wanted, limit), list).await;
    }
    let pages = expected.chunks(limit as usize).chain([&[][..]]);
    for (number, wanted) in (1..).zip(pages) {
        let request = ListRequest { page: PageRequest::new(number, limit), ..request.clone() };
        let page = r.device_list(permit, &request).await.unwrap();
        assert_eq!(page.total, expected.len() as u64, "{request:?}");
        let (found, wanted): (Vec<_>, Vec<_>) =
            (page.items.iter().map(|device| device.id).collect(), wanted.iter().map(|device| device.id).collect());
        assert_eq!(found, wanted, "{request:?}");
        assert!(page.items.iter().zip(wanted).all(|(device, id)| expected.iter().any(|e| e.id == id && *e == device)));
    }
}

/// The ids of a page, the length of its list, and the item that the next page follows.
type ListedPage = (Vec<Uuid>, u64, Option<Option<Uuid>>);

/// Returns what identifies a page.
pub(super) fn ids_of<T>(page: Page<T>, id: impl Fn(&T) -> Uuid) -> ListedPage {
    (page.items.iter().map(id).collect(), page.total, page.next)
}

/// Checks that the pages of a list by creation that follow an item are its parts, and that each names the next one.
pub(super) async fn hold_following(
    whole: &ListRequest,
    (wanted, limit): (&[Uuid], u32),
    list: impl AsyncFn(ListRequest) -> ListedPage,
) {
    let (total, mut after, mut left) = (wanted.len() as u64, None, wanted.len());
    for part in wanted.chunks(limit as usize).chain([&[][..]]) {
        let page = PageRequest { after, ..PageRequest::new(1, limit) };
        let found = list(ListRequest { page, ..whole.clone() }).await;
        left -= part.len();
        let next = part.last().copied().filter(|_| left > 0);
        assert_eq!(found, (part.to_vec(), total, Some(next)), "{limit} after {after:?}, {whole:?}");
        after = part.last().copied().or(after);
        if after.is_none() {
            return;
        }
    }
}

/// Checks that a page follows no item outside the part of the tree that is listed, wherever that is.
pub async fn pages_follow_items_of_their_list_alone(r: &Registry) {
    let tree = crowd(r).await;
    let (here, there) = (lists(&tree[1].lineage, None), lists(&tree[2].lineage, None));
    let after = |id| ListRequest { page: PageRequest { after: Some(id), ..page(1, 5).page }, ..sorted(&["createdAt"]) };
    let refused = |found: Option<StoreError>| assert!(matches!(found, Some(StoreError::NotListed)), "{found:?}");
    let user = r.user_list(&there, &page(1, 1)).await.unwrap().items[0].id.0;
    let project = r.project_list(&there, None, &page(1, 1)).await.unwrap().items[0].id.0;
    for id in [user, project, uuid(), Uuid::nil(), Uuid::max()] {
        refused(r.user_list(&here, &after(id)).await.err());
        refused(r.project_list(&here, None, &after(id)).await.err());
        refused(r.organization_list(&here, true, &after(id)).await.err());
        refused(r.device_list(&here, &after(id)).await.err());
        refused(r.alarm_list(&here, &after(id), &[]).await.err());
    }
    refused(r.organization_list(&here, true, &after(tree[2].id.0)).await.err());
    assert!(r.user_list(&there, &after(user)).await.is_ok());
    assert!(r.project_list(&there, None, &after(project)).await.is_ok());
}

/// Checks that every page of every order, from every organization, equals that of a plain sort.
pub async fn device_pages_are_exact_in_every_order(r: &Registry) {
    let (tree, devices) = fleet(r, 60).await;
    let orders: [&[&str]; 15] = [
        &["name"],
        &["-name"],
        &["description"],
        &["-description"],
        &["createdAt"],
        &["-createdAt"],
        &["updatedAt"],
        &["-updatedAt"],
        &["lastActive"],
        &["-lastActive"],
        &["statusInt"],
        &["-statusInt"],
        &["-statusInt", "name", "-createdAt"],
        &["lastActive", "-description"],
        &["name", "-name"],
    ];
    for order in orders {
        let request = sorted(order);
        let all = expected(&devices, &request, |_| true);
        check_pages(r, &lists_all(), &request, &all, 7).await;
        for base in &tree {
            let beneath = expected(&devices, &request, |device| device.lineage.contains(base.id));
            check_pages(r, &lists(&base.lineage, None), &request, &beneath, 9).await;
        }
    }
    let request = sorted(&["name"]);
    for base in &tree {
        let own = expected(&devices, &request, |device| device.organization == base.id);
        check_pages(r, &lists(&base.lineage, Some(1)), &request, &own, 10).await;
        let two = expected(&devices, &request, |device| {
            device.lineage.contains(base.id) && device.lineage.level() <= base.lineage.level() + 1
        });
        check_pages(r, &lists(&base.lineage, Some(2)), &request, &two, 10).await;
    }
    check_pages(r, &lists_all(), &request, &expected(&devices, &request, |_| true), 10_000).await;
}

/// Checks that a search is exact if it finds a few devices, more than it takes at once, or none, in the whole tree or
/// in a small part.
pub async fn device_searches_of_many_matches_are_exact(r: &Registry) {
    let (tree, devices) = fleet(r, MANY_DEVICES).await;
    for (text, limit) in [("s-5", 50), ("S-", 200), ("PUMP", 90), ("nothing of this", 10)] {
        for order in [&["-createdAt"][..], &["lastActive"], &["description", "-name"]] {
            let request = ListRequest { search: Some(text.to_owned()), ..sorted(order) };
            let folded = text.to_lowercase();
            let fits = |device: &Device| {
                device.name.to_lowercase().contains(&folded) || device.meta.text().to_lowercase().contains(&folded)
            };
            check_pages(r, &lists_all(), &request, &expected(&devices, &request, fits), limit).await;
            for base in &tree[..3] {
                let beneath = expected(&devices, &request, |device| device.lineage.contains(base.id) && fits(device));
                check_pages(r, &lists(&base.lineage, None), &request, &beneath, limit).await;
            }
        }
    }
}

/// Checks that a search is literal: no wildcards, no case, in any alphabet, in any field.
pub async fn a_search_is_literal_and_without_case(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let project = given::project(r, home.id, "p").await.id;
    let odd = given::device(r, home.id, project, r"50%_of\ ÄÖÜ'--").await;
    let mut new = given::new_device(project, "plain");
    new.description = Some("ΟΔΟΣ".to_owned());
    new.meta = json(r#"{"key":"Wert","deep":{"list":[12.50,true,"Ж"]},"quote":"a\"b"}"#);
    let plain = r.device_create(&may(home.id), new, at(0)).await.unwrap();
    let found = |text: String| async move {
        let page = r.device_list(&lists_all(), &search(&text)).await.unwrap();
        assert_eq!(page.total, page.items.len() as u64);
        page.items.into_iter().map(|device| device.id).collect::<Vec<_>>()
    };
    for text in ["50%", "%_O", r"F\ ", "äöü", "'--", "of\\"] {
        assert_eq!(found(text.to_owned()).await, [odd.id], "{text}");
    }
    for text in ["PLAIN", "οδοσ", "οδο", "wERT", "12.50", "TRUE", "ж", "a\"b", &plain.id.to_string().to_uppercase()]
    {
        assert_eq!(found(text.to_owned()).await, [plain.id], "{text}");
    }
    for text in ["5_%", "key", "deep", "%%", "null", "plain\u{1f}", "wert12"] {
        let nothing = found(text.to_owned()).await;
        assert!(nothing.is_empty() || text.contains('\u{1f}'), "{text}");
    }
    assert_eq!(found(String::new()).await.len(), 2);
}

/// Checks that identifiers restrict a list to visible devices, and that invalid ones find nothing.
pub async fn list_can_be_limited_to_identifiers(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let other = given::organization(r, None, "Other").await;
    let project = given::project(r, home.id, "p").await.id;
    let [a, b] = [given::device(r, home.id, project, "a").await, given::device(r, home.id, project, "b").await];
    let c = given::device(r, other.id, project, "c").await;
    let ids = [&a, &c].map(|device| device.id.to_string().to_uppercase()).to_vec();
    let request = ListRequest {
        ids: Some([ids.clone(), vec!["'; DROP TABLE".to_owned(), ids[0].clone()]].concat()),
        ..sorted(&["-name"])
    };
    let all = r.device_list(&lists_all(), &request).await.unwrap();
    assert_eq!((all.total, all.items.iter().map(|device| device.id).collect::<Vec<_>>()), (2, vec![c.id, a.id]));
    assert_eq!(r.device_list(&lists(&home.lineage, None), &request).await.unwrap().items, std::slice::from_ref(&a));
    let both = ListRequest {
        search: Some("B".to_owned()),
        ids: Some(vec![a.id.to_string(), b.id.to_string()]),
        ..sorted(&[])
    };
    // "b" is a hexadecimal digit too, but these ids have none.
    let found = r.device_list(&lists_all(), &both).await.unwrap();
    assert!(found.items.contains(&b));
    let none = ListRequest { ids: Some(Vec::new()), ..sorted(&[]) };
    assert_eq!(r.device_list(&lists_all(), &none).await.unwrap().total, 0);
    let one = ListRequest { ids: Some(vec![home.id.to_string()]), ..sorted(&[]) };
    assert_eq!(r.organization_list(&lists_all(), true, &one).await.unwrap().total, 1);
}

/// Checks that each device beneath an organization is found once, with its data, however they are distributed.
pub async fn all_devices_beneath_are_listed(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let large = given::organization(r, Some(top.id), "Large").await;
    let small = given::organization(r, Some(large.id), "Small").await;
    given::organization(r, Some(small.id), "Empty").await;
    let other = given::organization(r, None, "Other").await;
    let project = given::project(r, top.id, "p").await.id;
    // More than are read at a time, many of the same name.
    let tagged = |number: usize| NewTagged {
        value: number.to_string(),
        device: NewDevice { id: DeviceId(given::uuid()), ..given::new_device(project, ["a", "b", "c"][number / 900]) },
    };
    let wanted: Vec<_> = (0..2_100).map(tagged).collect();
    let mut devices = Vec::new();
    for made in r.devices_provision(&may(large.id), given::tag("tag"), &wanted, at(0)).await.unwrap() {
        let Provisioned::Made(device) = made else { panic!("{made:?}") };
        devices.push((large.lineage.clone(), device));
    }
    for (organization, name) in [(&top, "t"), (&small, "s"), (&small, "s"), (&other, "o")] {
        let device = given::device(r, organization.id, project, name).await.reference();
        devices.push((organization.lineage.clone(), device));
    }
    for beneath in [&top, &large, &small, &other] {
        let found = r.devices_beneath(&lists(&beneath.lineage, None)).await.unwrap();
        let found = found.into_iter().flat_map(|(of, devices)| devices.into_iter().map(move |it| (of.clone(), it)));
        let mut found: Vec<_> = found.collect();
        let mut expected: Vec<_> = devices.iter().filter(|(of, _)| of.contains(beneath.id)).cloned().collect();
        found.sort_by_key(|(_, device)| device.key);
        expected.sort_by_key(|(_, device)| device.key);
        assert!(found == expected, "{}: {} instead of {}", beneath.name, found.len(), expected.len());
    }
}

/// Checks that devices of a part of the tree, or of a project in it, are listed by identifier, unless there are more
/// than requested.
pub async fn device_list_beneath_is_bounded(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let low = given::organization(r, Some(top.id), "Low").await;
    let other = given::organization(r, None, "Other").await;
    let (one, two) = (given::project(r, top.id, "1").await.id, given::project(r, top.id, "2").await.id);
    let mut devices = Vec::new();
    for (of, project) in [(&top, one), (&low, two), (&low, one), (&other, one), (&low, one)] {
        let device = given::device(r, of.id, project, "d").await.reference();
        devices.push((device, of.lineage.clone(), project));
    }
    devices.sort_by_key(|(device, ..)| device.id);
    for (base, levels) in [(&top, None), (&top, Some(1)), (&low, None), (&other, None)] {
        for project in [None, Some(one), Some(two)] {
            let expected: Vec<_> = devices
                .iter()
                .filter(|(_, of, _)| if levels.is_some() { of.own() == base.id } else { of.contains(base.id) })
                .filter(|(.., its)| project.is_none_or(|project| project == *its))
                .map(|(device, of, _)| (*device, of.clone()))
                .collect();
            let (permit, count) = (lists(&base.lineage, levels), expected.len() as u32);
            assert_eq!(r.devices_up_to(&permit, project, count).await.unwrap(), Some(expected));
            if count > 0 {
                assert_eq!(r.devices_up_to(&permit, project, count - 1).await.unwrap(), None);
            }
        }
    }
}

/// Checks that an unknown field is an error, and never becomes SQL.
pub async fn unknown_sort_key_is_refused(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    given::user(r, home.id, "ana").await;
    for field in ["token", "d.token", "name; DROP TABLE users", "1", ""] {
        let request = sorted(&[field]);
        assert!(matches!(r.device_list(&lists_all(), &request).await, Err(StoreError::Unavailable(_))), "{field}");
        assert!(matches!(r.user_list(&lists_all(), &request).await, Err(StoreError::Unavailable(_))), "{field}");
    }
    let far = ListRequest { page: PageRequest::new(u64::MAX, 10_000), ..sorted(&[]) };
    let page = r.user_list(&lists_all(), &far).await.unwrap();
    assert_eq!((page.total, page.items.len()), (1, 0));
    let page = r.organization_list(&lists_all(), true, &far).await.unwrap();
    assert_eq!((page.total, page.items.len()), (1, 0));
    let page = r.device_list(&lists_all(), &far).await.unwrap();
    assert_eq!((page.total, page.items.len()), (0, 0));
}

/// Checks that U+0000, which one dialect cannot store, is removed by both.
pub async fn text_with_a_zero_character_is_stored(r: &Registry) {
    let home = given::organization(r, None, "Ho\0me").await;
    assert_eq!(home.name, "Home");
    assert!(r.login_by_name("\0").await.unwrap().is_none());
    assert_eq!(r.user_list(&lists_all(), &search("a\0")).await.unwrap().total, 0);
}

/// More rows than are read at once.
const MANY_THINGS: usize = 130;

/// Creates a tree with similar users and projects. Nearly all are in one branch, where it is cheaper to follow an
/// index; so few are in another that only the ends of its list are read.
async fn crowd(r: &Registry) -> Vec<Organization> {
    let top = given::organization(r, None, "Top").await;
    let mut tree = vec![top.clone()];
    for (name, parent) in [("A", 0), ("B", 0), ("AA", 1)] {
        let parent: Option<&Organization> = tree.get(parent);
        tree.push(given::organization(r, parent.map(|parent| parent.id), name).await);
    }
    for number in 0..MANY_THINGS {
        let place = tree[*[2, 0, 1].get(number % 13).unwrap_or(&3)].id;
        let mut new = given::new_user(&format!("user {:03}", number * 37 % MANY_THINGS));
        new.company = format!("company {}", number % 3);
        new.role = [Role::BasicUser, Role::Manager][number % 2];
        r.user_create(&may(place), new, at((number * 31 % 17) as i64)).await.unwrap();
        given::project(r, place, &format!("project {}", number % 11)).await;
        if number % 4 == 0 {
            given::organization(r, Some(place), &format!("leaf {}", number % 9)).await;
        }
    }
    tree
}

/// Checks that every page of users in every order, ascending or descending, equals that of a plain sort, for few and
/// for many equal keys.
pub async fn user_pages_are_exact_in_every_order(r: &Registry) {
    let tree = crowd(r).await;
    let branches = [lists_all(), lists(&tree[3].lineage, None)];
    let everybody = r.user_list(&branches[0], &page(1, 10_000)).await.unwrap().items;
    let active = everybody.iter().step_by(5).zip(0..);
    let touched: Vec<_> = active.map(|(user, number)| (user.id, at(number % 4))).collect();
    r.users_touch(&touched).await.unwrap();
    type Compare = fn(&User, &User) -> Ordering;
    let orders: [(&str, &str, Compare); 9] = [
        ("username", "-username", |a, b| a.username.cmp(&b.username)),
        ("email", "-email", |a, b| a.email.cmp(&b.email)),
        ("firstName", "-firstName", |a, b| a.first_name.cmp(&b.first_name)),
        ("lastName", "-lastName", |a, b| a.last_name.cmp(&b.last_name)),
        ("company", "-company", |a, b| a.company.cmp(&b.company)),
        ("role", "-role", |a, b| a.role.cmp(&b.role)),
        ("createdAt", "-createdAt", |a, b| a.created_at.cmp(&b.created_at)),
        ("updatedAt", "-updatedAt", |a, b| a.updated_at.cmp(&b.updated_at)),
        ("lastActive", "-lastActive", |a, b| a.last_active.cmp(&b.last_active)),
    ];
    for permit in &branches {
        let mut users = r.user_list(permit, &page(1, 10_000)).await.unwrap().items;
        assert!(!users.is_empty());
        for (up, down, order) in orders {
            users.sort_by(|a, b| order(a, b).then(a.id.cmp(&b.id)));
            hold_pages(r, permit, up, &users).await;
            users.sort_by(|a, b| order(b, a).then(b.id.cmp(&a.id)));
            hold_pages(r, permit, down, &users).await;
        }
    }
}

/// Checks the pages of an order in two sizes: one that divides equal items, and one that hardly does.
async fn hold_pages(r: &Registry, permit: &CanList, order: &str, users: &[User]) {
    for limit in [9, 50] {
        for (page, wanted) in (1..).zip(users.chunks(limit as usize)) {
            let request = ListRequest { page: PageRequest::new(page, limit), ..sorted(&[order]) };
            let found = r.user_list(permit, &request).await.unwrap();
            assert_eq!(found.total, users.len() as u64);
            assert_eq!(found.items, wanted, "page {page} of {limit}, {order}");
        }
    }
}

/// Checks that pages of any size, found from either end, are parts of the page that holds everything.
async fn hold_together(whole: &ListRequest, list: impl AsyncFn(ListRequest) -> ListedPage) {
    let part = |page, limit| list(ListRequest { page: PageRequest::new(page, limit), ..whole.clone() });
    let (all, total, _) = part(1, 10_000).await;
    let distinct: HashSet<_> = all.iter().collect();
    assert!(!all.is_empty() && distinct.len() == all.len() && total == all.len() as u64, "{whole:?}");
    for limit in [1, 7, 50] {
        if whole.is_by_creation() {
            hold_following(whole, (&all, limit), &list).await;
        }
        let pages = all.chunks(limit as usize).chain([&[][..]]);
        // Of the smallest pages, those at the ends and some in between suffice.
        let is_told = |page: usize| limit > 1 || page < 3 || page.is_multiple_of(16) || page + 3 > all.len();
        for (page, wanted) in (1..).zip(pages).filter(|(page, _)| is_told(*page as usize)) {
            let (found, counted, _) = part(page, limit).await;
            assert_eq!((found.as_slice(), counted), (wanted, total), "page {page} of {limit}, {whole:?}");
        }
    }
}

/// Checks that pages of users, projects and organizations are the same from either end of their list, of the whole tree
/// and of a part, with and without a search.
pub async fn pages_are_the_same_from_either_end(r: &Registry) {
    let tree = crowd(r).await;
    let users =
        [&["username"][..], &["-company"], &["createdAt"], &["-createdAt"], &["-lastActive"], &["role", "-email"]];
    let things = [&["name"][..], &["-name"], &["-updatedAt", "name"], &["createdAt"], &["-createdAt"]];
    let branches = [(0, None), (1, Some(2)), (2, None)].map(|(base, levels)| lists(&tree[base].lineage, levels));
    for permit in branches.into_iter().chain([lists_all()]) {
        let of_users = async |request| ids_of(r.user_list(&permit, &request).await.unwrap(), |user| user.id.0);
        for order in users {
            hold_together(&sorted(order), of_users).await;
        }
        hold_together(&ListRequest { search: Some("1".to_owned()), ..sorted(&["email"]) }, of_users).await;
        for order in things.map(sorted) {
            hold_together(&order, async |request| {
                ids_of(r.project_list(&permit, Some("api"), &request).await.unwrap(), |project| project.id.0)
            })
            .await;
            hold_together(&order, async |request| {
                ids_of(r.organization_list(&permit, false, &request).await.unwrap(), |organization| organization.id.0)
            })
            .await;
        }
    }
}
