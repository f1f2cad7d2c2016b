//! The entries of the caches: devices, plans, accounts and sessions, and whether what they say still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use isobar_design::{DeviceView, Plan};
use isobar_model::access::{Caller, Lineage, RestrictedKey};
use isobar_model::device::Device;
use isobar_model::ids::{ApiKeyId, DeviceId, DeviceRef, OrganizationId};
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;
use isobar_store::registry::KeyRecord;
use uuid::Uuid;

use super::data_quota::DataQuota;
use super::held::{Held, InRun, Weighed};
use super::loading_cache::CacheValue;
use super::plan_entry::PlanEntry;
use super::shared_entries::SharedEntry;
use crate::code::HeldByRun;
use crate::support::body_reader::READ_HERE_BYTES_MAX;

/// Runs that leave the thread that serves calls after one of the device that was long, the next long one among them: what is lost
/// on that thread until a run turns out to be long, a millisecond, is a hundredth of that for each run.
pub(crate) const RUNS_ASIDE: u32 = 100;

/// A device as the main road needs it.
pub(crate) struct DeviceEntry {
    pub device: DeviceRef,
    pub lineage: Lineage,
    pub plan: Arc<PlanEntry>,
    /// What expressions see of it; a run that changes it puts the changed one here.
    held: Held<DeviceView>,
    /// When its newest event came, in milliseconds; 0: nothing that the registry does not know.
    pub active: AtomicI64,
    /// When the newest event ran by this entry, in milliseconds; 0: none did.
    pub heard: AtomicI64,
    /// Runs that still leave the thread that serves calls, for one has taken longer, or left more, than those may who wait for
    /// that thread: last values, settings or the states of its elements are large.
    runs_aside: AtomicU32,
    /// The number of the status that a missing device gets back.
    pub before_missing: AtomicU8,
    /// What the organizations above it may still store.
    pub quota: DataQuota,
    /// Bytes that it has stored since it was loaded, and how many of them the registry knows.
    pub stored: AtomicU64,
    pub written: AtomicU64,
    /// Whether the registry does not know yet what the device has stored.
    pub uncounted: AtomicBool,
    /// Grows when the device's row in the registry changes beneath the entry.
    pub row: AtomicU64,
}

/// What an entry said of its device before a run, to be restored if the run is not committed.
pub(crate) struct EntryState {
    view: Arc<DeviceView>,
    before_missing: u8,
}

impl EntryState {
    /// What the entry said.
    pub fn view(&self) -> Arc<DeviceView> {
        Arc::clone(&self.view)
    }
}

impl DeviceEntry {
    /// An entry of what the registry says of a device. It is not installed yet.
    pub fn new(
        (device, lineage): (DeviceRef, Lineage),
        found: Device,
        settings: Vec<SettingRecord>,
        plan: Arc<PlanEntry>,
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
        };
        Arc::new(Self {
            device,
            lineage,
            plan,
            held: Held::new(view),
            active: AtomicI64::new(0),
            heard: AtomicI64::new(0),
            runs_aside: AtomicU32::new(0),
            before_missing: AtomicU8::new(found.status_before.number()),
            quota,
            stored: AtomicU64::new(0),
            written: AtomicU64::new(0),
            uncounted: AtomicBool::new(false),
            row: AtomicU64::new(0),
        })
    }

    /// Its project's design; none: another entry says it.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.plan.plan()
    }

    /// Whether a run on a payload of so many bytes leaves the thread that serves calls: it runs code, or may take longer than a
    /// millisecond.
    pub fn runs_aside(&self, payload_bytes: usize) -> bool {
        // Whoever runs it without one finds that it is outdated.
        let Some(plan) = self.plan() else { return false };
        plan.runs_code()
            || payload_bytes > READ_HERE_BYTES_MAX
            || self.has_run_long()
            || plan.may_take_long(payload_bytes)
    }

    /// What a run on a payload of so many bytes holds while it waits in its project's queue and then runs: what the entry says
    /// of the device too.
    pub fn held_by_run(&self, payload_bytes: usize) -> HeldByRun {
        let says = self.view().map_or(0, |view| view.meta.bytes().len() + view.settings_bytes());
        let bytes = payload_bytes + says;
        HeldByRun { tenant: self.lineage.top(), bytes }
    }

    /// Whether one of its newest runs took longer, or left more, than it may on a thread that serves calls.
    pub fn has_run_long(&self) -> bool {
        self.runs_aside.load(Ordering::Relaxed) > 0
    }

    /// A run was long, or one was not. Of those that are told at once one may not be counted.
    pub fn note_run(&self, is_long: bool) {
        let still = self.runs_aside.load(Ordering::Relaxed);
        if is_long {
            self.runs_aside.store(RUNS_ASIDE, Ordering::Relaxed);
        } else if still > 0 {
            self.runs_aside.store(still - 1, Ordering::Relaxed);
        }
    }

    /// What it says of its device; none: it was retired, and a newer entry says it.
    pub fn view(&self) -> Option<Arc<DeviceView>> {
        self.held.get()
    }

    /// A run of the device begins: what the entry says. None: it was retired. To be asked while the device is locked.
    pub fn begin_run(&self) -> Option<(Arc<DeviceView>, InRun<'_, DeviceView>)> {
        self.held.begin_run()
    }

    /// Changes what it says of its device.
    pub fn change_view(&self, change: impl FnOnce(&mut DeviceView)) {
        self.held.change(change);
    }

    /// What it says now; `view` is the one that it has. To be asked while the device is locked.
    pub fn state(&self, view: Arc<DeviceView>) -> EntryState {
        EntryState { view, before_missing: self.before_missing.load(Ordering::Relaxed) }
    }

    /// The run is not committed: the entry says again what it said before.
    pub fn restore(&self, before: EntryState) {
        self.held.restore(before.view);
        self.before_missing.store(before.before_missing, Ordering::Relaxed);
    }
}

impl Weighed for DeviceView {
    /// With the entry's token.
    const ENTRY_BYTES: usize = 768;

    fn weight(&self) -> usize {
        self.name.len() + self.meta.bytes().len() + self.settings_bytes()
    }
}

impl SharedEntry for DeviceEntry {
    type Key = DeviceId;
    type Says = DeviceView;

    fn key(&self) -> DeviceId {
        self.device.id
    }

    fn minted(key: DeviceId) -> Uuid {
        key.0
    }

    fn tenant(&self) -> OrganizationId {
        self.lineage.top()
    }

    fn held(&self) -> &Held<DeviceView> {
        &self.held
    }

    /// Whether it is the installed one of its device, and its project has no newer design.
    fn is_current(&self) -> bool {
        self.held.is_installed() && self.plan.is_current()
    }
}

/// A user as authentication needs it.
pub(crate) struct AccountEntry {
    /// As a caller, without a session.
    pub caller: Arc<Caller>,
    pub disabled: bool,
    outdated: AtomicBool,
}

impl AccountEntry {
    pub fn new(caller: Caller, disabled: bool) -> Self {
        Self { caller: Arc::new(caller), disabled, outdated: AtomicBool::new(false) }
    }

    /// Whether what it says still holds.
    pub fn is_current(&self) -> bool {
        !self.outdated.load(Ordering::Acquire)
    }

    /// Whether what it says still holds, and its user may call.
    pub fn stands(&self) -> bool {
        !self.disabled && self.is_current()
    }
}

/// A session as authentication needs it.
pub(crate) struct SessionEntry {
    pub caller: Arc<Caller>,
    pub account: Arc<AccountEntry>,
}

/// An API key as authentication needs it.
pub(crate) struct ApiKeyEntry {
    pub id: ApiKeyId,
    /// Its user, with the lower of the two roles.
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

    /// Whether its time is over.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

impl CacheValue for Arc<AccountEntry> {
    fn evicted(&self) {
        self.outdated.store(true, Ordering::Release);
    }
}

// These show by themselves whether they are current, or nobody holds them for long.
impl CacheValue for Arc<DeviceEntry> {}
impl CacheValue for Arc<SessionEntry> {}
impl CacheValue for Arc<ApiKeyEntry> {}
impl CacheValue for Lineage {}
