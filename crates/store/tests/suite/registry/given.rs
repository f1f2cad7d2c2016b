//! The initial data of scenes.

#![allow(dead_code, reason = "each test that has this module uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests: a broken promise ends them"
)]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use isobar_model::access::{self, Action, Actor, Caller, CanList, CanRead, CanWrite, Lineage};
use isobar_model::check::Patch;
use isobar_model::device::Device;
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::json::RawJson;
use isobar_model::organization::Organization;
use isobar_model::page::{ListRequest, PageRequest, SortKey};
use isobar_model::project::{Project, empty_object};
use isobar_model::role::Role;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;
use isobar_model::user::User;
use uuid::Uuid;

use isobar_store::error::StoreError;
use isobar_store::registry::{
    DeviceChange, DeviceReport, Findings, NewDevice, NewOrganization, NewProject, NewUserRow, Registry, SettingWrite,
    Tag, TagCase, UserChange,
};

/// Time at which scenes begin: 2026-01-01T00:00:00Z.
pub const START: i64 = 1_767_225_600_000;

static IDS: AtomicU64 = AtomicU64::new(1);

/// Returns a tag whose values are compared as they are written.
pub fn tag(label: &str) -> Tag<'_> {
    Tag { label, case: TagCase::Sensitive }
}

/// Returns the moment this many milliseconds into the scene.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// Makes a UUIDv7; later ones are larger.
pub fn uuid() -> Uuid {
    let number = IDS.fetch_add(1, Ordering::Relaxed);
    Uuid::from_u64_pair((START as u64) << 16 | 0x7000, 1 << 63 | number)
}

/// Parses a text as JSON.
pub fn json(text: &str) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// Returns the digest of a secret of its own.
pub fn digest() -> Digest {
    Digest::of(uuid().as_bytes())
}

/// Returns a permit to change a resource.
pub fn may<T>(target: T) -> CanWrite<T> {
    access::system(target, "a scene")
}

/// Returns a permit to see a resource.
pub fn sees<T: Clone>(target: T) -> CanRead<T> {
    may(target).reading()
}

/// Returns a user's permit to change a resource.
pub fn user_may<T>(user: UserId, target: T) -> CanWrite<T> {
    let caller = admin(user);
    let permit = access::write(&caller, Action::SettingUpdate, target, &caller.lineage).unwrap();
    assert_eq!(permit.actor(), Actor::User(user));
    permit
}

fn admin(user: UserId) -> Caller {
    let organization = OrganizationId(uuid());
    Caller { user, role: Role::SystemAdmin, lineage: Lineage::new([], organization), session: None, key: None }
}

/// Returns a permit to list from an organization down.
pub fn lists(base: &Lineage, levels: Option<u32>) -> CanList {
    access::list(&admin(UserId(uuid())), Action::DeviceRead, base, levels).unwrap()
}

/// Returns a permit to list everything.
pub fn lists_all() -> CanList {
    access::system_list("a scene")
}

/// Requests a page of this many items.
pub fn page(page: u64, limit: u32) -> ListRequest {
    ListRequest { page: PageRequest::new(page, limit), ..ListRequest::default() }
}

/// Requests the first page in an order: `-field` descends.
pub fn sorted(by: &[&str]) -> ListRequest {
    let key = |text: &&str| match text.strip_prefix('-') {
        Some(field) => SortKey { field: field.to_owned(), descending: true },
        None => SortKey { field: (*text).to_owned(), descending: false },
    };
    ListRequest { sort: by.iter().map(key).collect(), ..ListRequest::default() }
}

/// Requests the first page of a search.
pub fn search(text: &str) -> ListRequest {
    ListRequest { search: Some(text.to_owned()), ..ListRequest::default() }
}

/// Returns the input of a new organization.
pub fn new_organization(name: &str) -> NewOrganization {
    NewOrganization {
        id: OrganizationId(uuid()),
        name: name.to_owned(),
        description: None,
        children_inherit_dashboard: false,
        device_table: None,
    }
}

/// Creates an organization.
pub async fn organization(r: &Registry, parent: Option<OrganizationId>, name: &str) -> Organization {
    r.organization_create(&may(parent), new_organization(name), at(0)).await.unwrap()
}

/// Returns the input of a new user; its e-mail address is made of its name.
pub fn new_user(name: &str) -> NewUserRow {
    NewUserRow {
        id: UserId(uuid()),
        username: name.to_owned(),
        email: format!("{name}@example.org"),
        role: Role::BasicUser,
        first_name: "First".to_owned(),
        last_name: "Last".to_owned(),
        company: "Company".to_owned(),
        password_hash: None,
        tos_hash: None,
        language: None,
        verified: false,
        welcome: None,
    }
}

/// Creates a user.
pub async fn user(r: &Registry, organization: OrganizationId, name: &str) -> User {
    r.user_create(&may(organization), new_user(name), at(0)).await.unwrap()
}

/// Returns a change of a user that changes nothing.
pub fn unchanged_user(user: &User) -> UserChange {
    UserChange {
        role: user.role,
        organization: user.organization,
        tos_hash: user.tos_hash.clone(),
        first_name: user.first_name.clone(),
        last_name: user.last_name.clone(),
        company: user.company.clone(),
        job_title: user.job_title.clone(),
        language: user.language.clone(),
        preferences: user.preferences.clone(),
        disabled: user.disabled,
        reason: None,
        password: None,
    }
}

/// Reads a user again.
pub async fn user_fetched(r: &Registry, id: UserId) -> User {
    r.user_fetch(&sees(id)).await.unwrap().unwrap()
}

/// Changes a user to these values, whatever its current ones are.
pub async fn user_update(
    r: &Registry,
    permit: &CanWrite<UserId>,
    change: &UserChange,
    now: Timestamp,
) -> Result<User, StoreError> {
    r.user_update(permit, |_| Ok::<_, Infallible>(change.clone()), now).await.map(|Ok(changed)| changed)
}

/// Creates a project.
pub async fn project(r: &Registry, organization: OrganizationId, name: &str) -> Project {
    let new = NewProject { id: ProjectId(uuid()), name: name.to_owned(), created_by: None };
    r.project_create(&may(organization), new, at(0)).await.unwrap()
}

/// Returns the input of a new device.
pub fn new_device(project: ProjectId, name: &str) -> NewDevice {
    NewDevice {
        id: DeviceId(uuid()),
        project,
        name: name.to_owned(),
        version: None,
        protocol: None,
        protocols: Vec::new(),
        meta: empty_object(),
        description: None,
        street_address: None,
        created_by: None,
        token: digest(),
    }
}

/// Creates a device.
pub async fn device(r: &Registry, organization: OrganizationId, project: ProjectId, name: &str) -> Device {
    r.device_create(&may(organization), new_device(project, name), at(0)).await.unwrap()
}

/// Returns a change of a device that changes nothing.
pub fn unchanged(device: &Device) -> DeviceChange {
    DeviceChange {
        decided_in: (device.project, device.organization),
        name: device.name.clone(),
        project: device.project,
        organization: None,
        version: Patch::Keep,
        protocol: Patch::Keep,
        protocols: None,
        meta: None,
        description: Patch::Keep,
        street_address: Patch::Keep,
    }
}

/// Reads a device again.
pub async fn fetched(r: &Registry, device: DeviceRef) -> Device {
    r.device_fetch(&sees(device)).await.unwrap().unwrap()
}

/// Reads an organization again.
pub async fn refetched(r: &Registry, organization: OrganizationId) -> Organization {
    r.organization_fetch(&sees(organization)).await.unwrap().unwrap()
}

/// Writes a report of a device's design, at this moment.
pub async fn reports(r: &Registry, device: DeviceRef, report: &DeviceReport, now: Timestamp) {
    let findings = Findings { reports: vec![(may(device), report, now)], ..Findings::default() };
    assert!(r.findings_write(&findings, now).await.unwrap().is_empty());
}

/// Changes settings, in this order.
pub async fn sets(r: &Registry, changes: &[(CanWrite<DeviceRef>, SettingWrite)]) {
    let findings = Findings { settings: changes.to_vec(), ..Findings::default() };
    assert!(r.findings_write(&findings, at(0)).await.unwrap().is_empty());
}
