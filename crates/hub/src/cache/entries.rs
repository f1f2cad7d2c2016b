//! Defines the cached entries of devices, accounts, sessions and API keys, and tells if they are still current.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use isobar_design::{DeviceView, Plan};
use isobar_model::access::{Caller, Lineage, RestrictedKey};
use isobar_model::alarm::ListedAlarms;
use isobar_model::device::Device;
use isobar_model::ids::{ApiKeyId, DeviceId, DeviceRef, OrganizationId, SessionId, UserId};
use isobar_model::secret::Digest;
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;
use isobar_quota::LruPlace;
use isobar_store::registry::KeyRecord;

use super::data_quota::DataQuota;
use super::held::{Held, InRun, Weighed};
use super::loading_cache::CacheValue;
use super::plan_entry::PlanEntry;
use crate::designs::{HeldByRun, ProjectRuns};
use crate::support::body_reader::READ_HERE_BYTES_MAX;

/// Revision of an entry that was loaded while the registry lacked work of a run, or a change was announced: it is good to be
/// read, and for no run but one for which all others wait.
pub(crate) const UNSETTLED: u64 = u64::MAX;

/// Memory of a listed alarm of a device in addition to its element and key, in bytes.
const LISTED_ALARM_BYTES: usize = 64;

/// Caches a device with all that a run of its design needs.
pub(crate) struct DeviceEntry {
    pub device: DeviceRef,
    pub lineage: Lineage,
    pub plan: Arc<PlanEntry>,
    /// The state of the device that expressions see; a run that changes the state replaces it here.
    held: Held<DeviceView>,
    /// Time of the newest event, in milliseconds; 0 if the registry already knows the newest one.
    pub active: AtomicI64,
    /// Time of the newest event that ran by this entry, in milliseconds; 0 if none did.
    pub heard: AtomicI64,
    /// The number of the status to restore when a missing device reports again.
    pub before_missing: AtomicU8,
    /// The data limits of the organizations above the device.
    pub quota: DataQuota,
    /// Bytes that the device has stored since the entry was loaded, and how many of them the registry knows.
    pub stored: AtomicU64,
    pub written: AtomicU64,
    /// True if the registry does not yet know all bytes that the device has stored.
    pub uncounted: AtomicBool,
    /// Version of the device's row in the registry, which grows when the row changes while the entry stays installed.
    pub row: AtomicU64,
    /// The revision of the device that the entry shows, in a store that processes share; else 0.
    revision: AtomicU64,
}

/// Saves the entry's state before a run, so that it can be restored if the run is not committed.
pub(crate) struct EntryState {
    view: Arc<DeviceView>,
    before_missing: u8,
}

impl DeviceEntry {
    /// Makes an entry of a device read from the registry. The entry is not installed yet.
    pub fn new(
        (device, lineage): (DeviceRef, Lineage),
        found: Device,
        (settings, alarms): (Vec<SettingRecord>, ListedAlarms),
        (plan, revision): (Arc<PlanEntry>, u64),
        quota: DataQuota,
    ) -> Arc<Self> {
        let own = settings.into_iter().filter_map(|record| Some((Arc::from(record.name), record.value?))).collect();
        let view = DeviceView {
            id: device.id,
            name: found.name,
            organization: found.organization,
            meta: found.meta,
            status: found.status,
            settings: own,
            alarms: Arc::new(alarms),
        };
        Arc::new(Self {
            device,
            lineage,
            plan,
            held: Held::new(view),
            active: AtomicI64::new(0),
            heard: AtomicI64::new(0),
            before_missing: AtomicU8::new(found.status_before.number()),
            quota,
            stored: AtomicU64::new(0),
            written: AtomicU64::new(0),
            uncounted: AtomicBool::new(false),
            row: AtomicU64::new(0),
            revision: AtomicU64::new(revision),
        })
    }

    /// Returns the compiled design of the device's project, or `None` if this plan entry was evicted or replaced.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.plan.plan()
    }

    /// Returns true if a run on a payload of this size is long: it runs code, or may take longer than a millisecond on the
    /// thread that serves the call, or runs of its project lately have.
    pub fn is_long_run(&self, payload_bytes: usize) -> bool {
        // A run without a plan finds that its entry is outdated.
        let Some(plan) = self.plan() else { return false };
        plan.runs_code()
            || payload_bytes > READ_HERE_BYTES_MAX
            || self.plan.has_run_long()
            || plan.may_take_long(payload_bytes)
    }

    /// Returns the project that the device's long runs are of.
    pub fn project_runs(&self) -> ProjectRuns {
        self.plan.project_runs()
    }

    /// Returns the memory that a long run on a payload of this size occupies while it waits and runs, including the
    /// device's metadata and settings.
    pub fn held_by_run(&self, payload_bytes: usize) -> HeldByRun {
        let says = self.view().map_or(0, |view| view.meta.bytes().len() + view.settings_bytes());
        let bytes = payload_bytes + says;
        HeldByRun { tenant: self.lineage.top(), bytes }
    }

    /// Returns the device's state, or `None` if this entry was retired and a newer one has the state.
    pub fn view(&self) -> Option<Arc<DeviceView>> {
        self.held.get()
    }

    /// Returns true if this entry is the installed one of its device and its project has no newer design.
    pub fn is_current(&self) -> bool {
        self.held.is_installed() && self.plan.is_current()
    }

    /// Returns the revision of the device that the entry shows.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns true if the entry shows this revision of the device.
    pub fn is_at(&self, revision: u64) -> bool {
        self.revision() == revision
    }

    /// Notes the revision that a run by this entry has made. Where changes may have been announced since it was loaded, the
    /// entry is good for no other run.
    pub fn reaches(&self, revision: u64) {
        if !self.is_at(UNSETTLED) {
            self.revision.store(revision, Ordering::Release);
        }
    }

    /// Notes a use of the entry, which delays its eviction.
    pub fn note_use(&self) {
        self.held.note_use();
    }

    /// Returns the entry's place in the cache, or `None` if it was never installed.
    pub fn place(&self) -> Option<&LruPlace> {
        self.held.place()
    }

    /// Begins a run and returns the device's state, or `None` if the entry was retired. The caller holds the device's
    /// lock.
    pub fn begin_run(&self) -> Option<(Arc<DeviceView>, InRun<'_, DeviceView>)> {
        self.held.begin_run()
    }

    /// Changes the device's state in this entry.
    pub fn change_view(&self, change: impl FnOnce(&mut DeviceView)) {
        self.held.change(change);
    }

    /// Saves the present state, for [`DeviceEntry::restore`]; `view` is the entry's view. The caller holds the device's
    /// lock.
    pub fn state(&self, view: Arc<DeviceView>) -> EntryState {
        EntryState { view, before_missing: self.before_missing.load(Ordering::Relaxed) }
    }

    /// Restores the state from before a run that is not committed.
    pub fn restore(&self, before: EntryState) {
        self.held.restore(before.view);
        self.before_missing.store(before.before_missing, Ordering::Relaxed);
    }
}

impl Weighed for DeviceView {
    /// Includes the cache entry of the device's token.
    const ENTRY_BYTES: usize = 768;

    fn weight(&self) -> usize {
        let alarms = self.alarms.bytes() + self.alarms.count() * LISTED_ALARM_BYTES;
        self.name.len() + self.meta.bytes().len() + self.settings_bytes() + alarms
    }
}

impl CacheValue<DeviceId> for Arc<DeviceEntry> {
    fn tenant(&self) -> OrganizationId {
        self.lineage.top()
    }

    fn weight(&self) -> usize {
        self.held.weight()
    }

    fn is_valid(&self) -> bool {
        self.is_current()
    }

    fn install(&self, place: &Arc<LruPlace>) {
        self.held.install(place);
    }

    fn leave(&self) -> bool {
        self.held.leave()
    }

    fn retire(&self) {
        self.held.retire();
    }
}

/// The token of a device leads to its entry, which stays when the token leaves the cache.
impl CacheValue<Digest> for Arc<DeviceEntry> {
    fn tenant(&self) -> OrganizationId {
        self.lineage.top()
    }

    fn is_valid(&self) -> bool {
        self.is_current()
    }
}

/// Caches a user for authentication.
pub(crate) struct AccountEntry {
    /// The user as a caller, without a session.
    pub caller: Arc<Caller>,
    pub disabled: bool,
    outdated: AtomicBool,
}

impl AccountEntry {
    pub fn new(caller: Caller, disabled: bool) -> Self {
        Self { caller: Arc::new(caller), disabled, outdated: AtomicBool::new(false) }
    }

    /// Returns true if the user has not changed since the entry was loaded.
    pub fn is_current(&self) -> bool {
        !self.outdated.load(Ordering::Acquire)
    }

    /// Returns true if the entry is current and its user is not disabled.
    pub fn stands(&self) -> bool {
        !self.disabled && self.is_current()
    }
}

/// Caches a session for authentication.
pub(crate) struct SessionEntry {
    pub caller: Arc<Caller>,
    pub account: Arc<AccountEntry>,
}

/// Caches an API key for authentication.
pub(crate) struct ApiKeyEntry {
    pub id: ApiKeyId,
    /// The key's user, with the lower of the user's role and the key's role.
    pub caller: Arc<Caller>,
    pub account: Arc<AccountEntry>,
    expires_at: Option<Timestamp>,
}

impl ApiKeyEntry {
    pub fn new(record: KeyRecord, account: Arc<AccountEntry>) -> Self {
        let KeyRecord { id, role, expires_at, .. } = record;
        let user = &account.caller;
        let key = RestrictedKey { id, has_role: role.is_some(), has_end: expires_at.is_some() };
        let caller = if key.has_role || key.has_end {
            let role = role.map_or(user.role, |role| role.min(user.role));
            Arc::new(Caller { role, key: Some(key), ..(**user).clone() })
        } else {
            Arc::clone(user)
        };
        Self { id, caller, account, expires_at }
    }

    /// Returns true if the key has expired.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

impl CacheValue<UserId> for Arc<AccountEntry> {
    fn tenant(&self) -> OrganizationId {
        self.caller.lineage.top()
    }

    fn retire(&self) {
        self.outdated.store(true, Ordering::Release);
    }
}

impl CacheValue<SessionId> for Arc<SessionEntry> {
    fn tenant(&self) -> OrganizationId {
        self.caller.lineage.top()
    }

    fn is_valid(&self) -> bool {
        self.account.is_current()
    }
}

impl CacheValue<Digest> for Arc<ApiKeyEntry> {
    fn tenant(&self) -> OrganizationId {
        self.caller.lineage.top()
    }

    fn is_valid(&self) -> bool {
        self.account.is_current()
    }
}

impl CacheValue<OrganizationId> for Lineage {
    fn tenant(&self) -> OrganizationId {
        self.top()
    }
}
