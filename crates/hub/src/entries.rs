//! What the main road needs of the registry, in bounded caches. A change is felt by the next request:
//! whoever changes a thing marks its entries stale and removes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use isobar_design::{DeviceView, LONG_RUN_UNITS, Plan};
use isobar_model::access::{self, Caller, Lineage};
use isobar_model::device::Device;
use isobar_model::error::{Error, Fault, Result};
use isobar_model::ids::{ApiKeyId, DeviceId, DeviceRef, OrganizationId, ProjectId, SessionId, UserId};
use isobar_model::json::RawJson;
use isobar_model::secret::Digest;
use isobar_model::setting::SettingRecord;
use parking_lot::Mutex;

use crate::code::Line;
use crate::error::Told as _;
use crate::event_input::READ_HERE_BYTES_MAX;
use crate::fresh::{Fresh, Kept};
use crate::in_force::DeviceEntries;
use crate::usage::Quota;
use crate::{Hub, turns};

/// Devices whose entries are kept.
const DEVICES_MAX: usize = 200_000;
/// Compiled plans kept.
const PLANS_MAX: usize = 4_096;
/// Designs that are compiled for somebody at the same time, and those that are under way or wait, of all tenants and of
/// one; beyond, 503.
const COMPILING_AT_ONCE: usize = 2;
const COMPILING_MAX: usize = 64;
const COMPILING_OF_ONE_MAX: usize = 32;
/// Accounts, sessions and API keys kept, each.
const ACCOUNTS_MAX: usize = 16_384;

/// A device as the main road needs it.
pub(crate) struct DeviceEntry {
    pub device: DeviceRef,
    pub lineage: Lineage,
    pub plan: Arc<PlanEntry>,
    /// What expressions see of it; a run that changes it puts the changed one here.
    pub view: Mutex<Arc<DeviceView>>,
    /// When its newest event came, in milliseconds; 0: nothing that the registry does not know.
    pub active: AtomicI64,
    /// When the newest event ran by this entry, in milliseconds; 0: none did.
    pub heard: AtomicI64,
    /// Whether its newest run took longer than those may who wait for the same thread: its last values, or the states of its
    /// elements, are large.
    pub runs_long: AtomicBool,
    /// The number of the status that a missing device gets back.
    pub before_missing: AtomicU8,
    /// What the organizations above it may still store.
    pub quota: Quota,
    /// Bytes that it has stored since it was loaded, and how many of them the registry knows.
    pub stored: AtomicU64,
    pub written: AtomicU64,
    /// Whether the registry does not know yet what the device has stored.
    pub uncounted: AtomicBool,
    /// Grows when the device's row in the registry changes beneath the entry.
    pub row: AtomicU64,
    /// The one entry of its device that runs go by.
    in_force: AtomicBool,
}

/// What an entry said of its device before a run.
pub(crate) struct Before {
    view: Arc<DeviceView>,
    before_missing: u8,
}

impl DeviceEntry {
    /// Whether a run on a payload of so many bytes leaves the thread that serves calls: it runs code, or may take longer than a
    /// millisecond.
    pub fn runs_aside(&self, payload_bytes: usize) -> bool {
        let plan = &self.plan.plan;
        plan.runs_code()
            || payload_bytes > READ_HERE_BYTES_MAX
            || self.runs_long.load(Ordering::Relaxed)
            || plan.may_take_long(payload_bytes)
    }

    /// A run has taken so many units.
    pub fn note_run(&self, units: u64) {
        let is_long = units > LONG_RUN_UNITS;
        if is_long != self.runs_long.load(Ordering::Relaxed) {
            self.runs_long.store(is_long, Ordering::Relaxed);
        }
    }

    /// What it says now, seen by whoever runs the device's design: `view` is what it has.
    pub fn before(&self, view: Arc<DeviceView>) -> Before {
        Before { view, before_missing: self.before_missing.load(Ordering::Relaxed) }
    }

    /// The run has never been.
    pub fn put_back(&self, before: Before) {
        *self.view.lock() = before.view;
        self.before_missing.store(before.before_missing, Ordering::Relaxed);
    }

    /// Whether what it says still holds.
    pub fn fresh(&self) -> bool {
        self.in_force.load(Ordering::Acquire) && !self.plan.stale.load(Ordering::Acquire)
    }

    pub fn put_in_force(&self) {
        self.in_force.store(true, Ordering::Release);
    }

    pub fn retire(&self) {
        self.in_force.store(false, Ordering::Release);
    }
}

/// A project's compiled design.
pub(crate) struct PlanEntry {
    pub plan: Plan,
    /// Where its runs with code stand in line.
    pub line: Line,
    stale: AtomicBool,
}

/// A user as the gate needs it.
pub(crate) struct AccountEntry {
    /// As a caller, without a session.
    pub caller: Arc<Caller>,
    pub disabled: bool,
    stale: AtomicBool,
}

impl AccountEntry {
    /// Whether what it says still holds, and its user may call.
    fn stands(&self) -> bool {
        !self.disabled && !self.stale.load(Ordering::Acquire)
    }
}

/// A session as the gate needs it.
pub(crate) struct SessionEntry {
    pub caller: Arc<Caller>,
    pub account: Arc<AccountEntry>,
}

impl Kept for Arc<PlanEntry> {
    fn let_go(&self) {
        self.stale.store(true, Ordering::Release);
    }
}

impl Kept for Arc<AccountEntry> {
    fn let_go(&self) {
        self.stale.store(true, Ordering::Release);
    }
}

// Those that show by themselves whether they hold, or that nobody keeps.
impl Kept for Arc<DeviceEntry> {}
impl Kept for Arc<SessionEntry> {}
impl Kept for (ApiKeyId, UserId) {}
impl Kept for Lineage {}

/// The turns of those who bring a design.
pub(crate) fn compiling() -> turns::Turns {
    turns::Turns::shared(COMPILING_AT_ONCE, COMPILING_MAX, COMPILING_OF_ONE_MAX)
}

impl Hub {
    /// Compiles a design that somebody brings, on a thread that may block: a large one takes longer than other calls should
    /// wait. Only a few at a time, for its code takes what time it may.
    pub(crate) async fn compiled(
        &self,
        caller: &Caller,
        planes: RawJson,
    ) -> Result<std::result::Result<Plan, Vec<Fault>>> {
        self.0.compiling.take_of(&caller.lineage, move || Plan::compile(&planes.tree())).await
    }
}

/// Compiles a stored design; those that events wait for stand in no queue.
async fn compiled(planes: RawJson) -> Result<std::result::Result<Plan, Vec<Fault>>> {
    tokio::task::spawn_blocking(move || Plan::compile_stored(&planes.tree())).await.map_err(Error::internal)
}

/// The caches.
pub(crate) struct Entries {
    pub(crate) devices: DeviceEntries,
    tokens: Fresh<Digest, Arc<DeviceEntry>>,
    plans: Fresh<ProjectId, Arc<PlanEntry>>,
    accounts: Fresh<UserId, Arc<AccountEntry>>,
    sessions: Fresh<SessionId, Arc<SessionEntry>>,
    api_keys: Fresh<Digest, (ApiKeyId, UserId)>,
    lineages: Fresh<OrganizationId, Lineage>,
}

impl Entries {
    pub(crate) fn new() -> Self {
        Self {
            devices: DeviceEntries::new(DEVICES_MAX),
            tokens: Fresh::new(DEVICES_MAX),
            plans: Fresh::new(PLANS_MAX),
            accounts: Fresh::new(ACCOUNTS_MAX),
            sessions: Fresh::new(ACCOUNTS_MAX),
            api_keys: Fresh::new(ACCOUNTS_MAX),
            lineages: Fresh::new(ACCOUNTS_MAX),
        }
    }
}

/// An entry of what the registry says of a device. It is not in force yet.
pub(crate) fn entry_of(
    (device, lineage): (DeviceRef, Lineage),
    found: Device,
    settings: Vec<SettingRecord>,
    plan: Arc<PlanEntry>,
    quota: Quota,
) -> Arc<DeviceEntry> {
    let own = settings.into_iter().filter_map(|record| Some((Arc::from(record.name), record.value?))).collect();
    let view = DeviceView {
        id: device.id,
        name: found.name,
        organization: found.organization,
        meta: found.meta,
        status: found.status,
        settings: own,
    };
    Arc::new(DeviceEntry {
        device,
        lineage,
        plan,
        view: Mutex::new(Arc::new(view)),
        active: AtomicI64::new(0),
        heard: AtomicI64::new(0),
        runs_long: AtomicBool::new(false),
        before_missing: AtomicU8::new(found.status_before.number()),
        quota,
        stored: AtomicU64::new(0),
        written: AtomicU64::new(0),
        uncounted: AtomicBool::new(false),
        row: AtomicU64::new(0),
        in_force: AtomicBool::new(false),
    })
}

impl Hub {
    /// The device that a token belongs to.
    pub(crate) async fn device_by_token(&self, token: &Digest) -> Result<Arc<DeviceEntry>> {
        let entries = &self.0.entries;
        if let Some(entry) = entries.tokens.get(token) {
            if entry.fresh() {
                return Ok(entry);
            }
            entries.tokens.invalidate(token);
        }
        let load = || async {
            let Some(id) = self.0.registry.device_by_token(token).await.told()? else { return Ok(None) };
            self.device_entry(id).await
        };
        entries.tokens.get_or_load(token, load).await?.ok_or(Error::Unauthenticated)
    }

    /// Whether a token is known to be this device's still. No: it has ended, or something else has changed.
    pub(crate) fn token_stands(&self, token: &Digest, entry: &Arc<DeviceEntry>) -> bool {
        let known = self.0.entries.tokens.get(token);
        known.is_some_and(|known| Arc::ptr_eq(&known, entry) && known.fresh())
    }

    /// Whether a session is known to be this caller's still. No: it has ended, or something else has changed.
    pub(crate) fn session_stands(&self, session: SessionId, caller: &Arc<Caller>) -> bool {
        let known = self.0.entries.sessions.get(&session);
        known.is_some_and(|known| Arc::ptr_eq(&known.caller, caller) && known.account.stands())
    }

    /// The same of an API key.
    pub(crate) fn api_key_stands(&self, key: &Digest, caller: &Arc<Caller>) -> bool {
        let user = self.0.entries.api_keys.get(key).map(|(_, user)| user);
        let known = user.and_then(|user| self.0.entries.accounts.get(&user));
        known.is_some_and(|known| Arc::ptr_eq(&known.caller, caller) && known.stands())
    }

    /// The entry of a device; none when there is no such device.
    pub(crate) async fn device_entry(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        let devices = &self.0.entries.devices;
        if let Some(entry) = devices.get(id) {
            return Ok(Some(entry));
        }
        let load = devices.begin(&id);
        Ok(Box::pin(self.load_device(id)).await?.map(|entry| devices.install(entry, &load)))
    }

    pub(crate) async fn load_device(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        let registry = &self.0.registry;
        let Some((device, lineage)) = registry.device_placement(id).await.told()? else { return Ok(None) };
        // Before the registry is asked: what its design found out earlier may come to be there in between.
        let untold = self.0.outbox.untold_whole(device.key).await?;
        let pass = access::system(device, "the main road runs the device's design").reading();
        let Some(mut found) = registry.device_fetch(&pass).await.told()? else { return Ok(None) };
        let mut settings = registry.settings_of(&pass).await.told()?;
        untold.over(&mut found);
        untold.over_settings(device.id, &mut settings);
        let plan = self.plan_entry(found.project).await?;
        let quota = self.0.usage.quota_of(&lineage);
        Ok(Some(entry_of((device, lineage), found, settings, plan, quota)))
    }

    /// The compiled design of a project. A stored specification was checked when it was written; one that no longer
    /// compiles (an older release wrote it) runs nothing, and says so in the log.
    pub(crate) async fn plan_entry(&self, project: ProjectId) -> Result<Arc<PlanEntry>> {
        let load = || async {
            let pass = access::system(project, "the main road compiles the project's design").reading();
            let Some(specification) = self.0.registry.specification_fetch(&pass).await.told()? else { return Ok(None) };
            let plan = compiled(specification.planes).await?.map_err(|faults| {
                Error::internal(format!("the stored design of project {project} does not compile: {faults:?}"))
            })?;
            Ok(Some(Arc::new(PlanEntry { plan, line: Line::default(), stale: AtomicBool::new(false) })))
        };
        self.0.entries.plans.get_or_load(&project, load).await?.ok_or(Error::Missing("project"))
    }

    /// The account of a user; none when there is no such user.
    pub(crate) async fn account_entry(&self, user: UserId) -> Result<Option<Arc<AccountEntry>>> {
        let load = || async {
            let Some(account) = self.0.registry.account(user).await.told()? else { return Ok(None) };
            let caller = Caller { user, role: account.role, lineage: account.lineage, session: None };
            let disabled = account.disabled;
            Ok(Some(Arc::new(AccountEntry { caller: Arc::new(caller), disabled, stale: AtomicBool::new(false) })))
        };
        self.0.entries.accounts.get_or_load(&user, load).await
    }

    /// The session of a jwt, if it is still open.
    pub(crate) async fn session_entry(&self, session: SessionId, user: UserId) -> Result<Arc<SessionEntry>> {
        let sessions = &self.0.entries.sessions;
        if let Some(entry) = sessions.get(&session) {
            if !entry.account.stale.load(Ordering::Acquire) {
                return Ok(entry);
            }
            sessions.invalidate(&session);
        }
        let load = || async {
            let open = self.0.registry.session(session).await.told()?;
            if open.is_none_or(|open| open.user != user) {
                return Ok(None);
            }
            let Some(account) = self.account_entry(user).await? else { return Ok(None) };
            let caller = Arc::new(Caller { session: Some(session), ..(*account.caller).clone() });
            Ok(Some(Arc::new(SessionEntry { caller, account })))
        };
        sessions.get_or_load(&session, load).await?.ok_or(Error::Unauthenticated)
    }

    /// The user that an API key belongs to, by the key's digest.
    pub(crate) async fn user_by_api_key(&self, key: &Digest) -> Result<(ApiKeyId, UserId)> {
        let load = || async { self.0.registry.user_by_api_key(key).await.told() };
        self.0.entries.api_keys.get_or_load(key, load).await?.ok_or(Error::Unauthenticated)
    }

    /// The lineage of an organization; none when there is no such organization.
    pub(crate) async fn lineage_of(&self, organization: OrganizationId) -> Result<Option<Lineage>> {
        let load = || async { self.0.registry.organization_lineage(organization).await.told() };
        self.0.entries.lineages.get_or_load(&organization, load).await
    }

    /// The device changed: its next event sees the change.
    pub(crate) fn device_changed(&self, id: DeviceId) {
        let entries = &self.0.entries;
        entries.tokens.distrust_loads();
        entries.devices.retire(id);
    }

    /// The project's design changed: the next event of each of its devices runs the new one.
    pub(crate) fn design_changed(&self, project: ProjectId) {
        let entries = &self.0.entries;
        entries.tokens.distrust_loads();
        entries.devices.distrust_loads();
        entries.plans.invalidate(&project);
    }

    /// The user changed, or its sessions did: its next call sees it, whatever credentials it comes with.
    pub(crate) fn account_changed(&self, user: UserId) {
        let entries = &self.0.entries;
        // A load of a session may have seen the user as it was.
        entries.sessions.distrust_loads();
        entries.accounts.invalidate(&user);
    }

    /// An API key was deleted. Keys are cached by digest, which nobody knows any more: all are forgotten.
    pub(crate) fn api_keys_changed(&self) {
        self.0.entries.api_keys.clear();
    }
}

impl Hub {
    /// An organization was moved or removed, or its limits were changed: whatever is cached of it and of what lies
    /// beneath it is found out again.
    pub(crate) fn organization_changed(&self, id: OrganizationId) {
        let entries = &self.0.entries;
        entries.lineages.clear();
        entries.sessions.distrust_loads();
        entries.accounts.forget_those(|account| account.caller.lineage.contains(id));
        entries.tokens.distrust_loads();
        entries.devices.retire_those(|entry| entry.lineage.contains(id));
    }

    /// The entry of a device, if it is cached.
    pub(crate) fn cached_device(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.0.entries.devices.get(id)
    }
}
