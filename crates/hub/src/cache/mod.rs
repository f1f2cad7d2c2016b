//! What the rooms above need of the registry again and again, in bounded caches. A change is felt by the next request:
//! whoever changes a thing marks its entries as outdated and removes them.

pub(crate) mod data_quota;
mod departures;
pub(crate) mod entries;
pub(crate) mod held;
mod loading_cache;
pub(crate) mod plan_entry;
mod plans;
pub(crate) mod shared_entries;
mod single_flight;
mod snapshots;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use isobar_design::DeviceView;
use isobar_model::access::{self, Caller, CanRead, Lineage};
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, SessionId, UserId};
use isobar_model::secret::Digest;
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;

use self::data_quota::Meters;
use self::departures::Departures;
use self::entries::{AccountEntry, ApiKeyEntry, DeviceEntry, SessionEntry};
use self::loading_cache::LoadingCache;
use self::plan_entry::PlanEntry;
use self::shared_entries::{EntryBounds, EntryLoad, SharedEntries, SharedEntry as _};
use self::snapshots::DeviceSnapshots;
use crate::env::Env;
use crate::outbox::Outbox;
use crate::support::bounded_jobs::BoundedJobs;

/// Devices whose entries are kept.
const DEVICES_MAX: usize = 200_000;
/// Bytes that these weigh, with the metadata and the settings of their devices; and how both are shown.
const DEVICES_BYTES_MAX: usize = 256 << 20;
const DEVICES_BYTES_GAUGES: [&str; 2] = ["isobar_device_cache_bytes", "isobar_device_cache_bytes_max"];
/// Bytes of metadata and settings of devices that are loaded together.
const LOADED_BYTES_AT_ONCE: usize = 8 << 20;
/// Compiled plans kept.
const PLANS_MAX: usize = 4_096;
/// Bytes that these weigh, with what is kept of the values of their projects' devices; and how both are shown.
const PLANS_BYTES_MAX: usize = 256 << 20;
const PLANS_BYTES_GAUGES: [&str; 2] = ["isobar_plan_cache_bytes", "isobar_plan_cache_bytes_max"];
/// What the threads are called that compile designs for somebody.
const COMPILING_THREAD: &str = "isobar-compile";
/// Designs that are compiled for somebody at the same time, and those that are under way or wait, of all tenants and of
/// one; beyond, 503.
const COMPILING_AT_ONCE: usize = 2;
const COMPILING_MAX: usize = 64;
const COMPILING_OF_ONE_MAX: usize = 32;
/// Accounts, sessions and API keys kept, each.
const ACCOUNTS_MAX: usize = 16_384;

/// The caches. They load what is missing, together with what the outbox still holds of it.
pub(crate) struct Caches {
    env: Arc<Env>,
    outbox: Arc<Outbox>,
    meters: Arc<Meters>,
    compile_jobs: BoundedJobs,
    devices: SharedEntries<DeviceEntry>,
    device_tokens: LoadingCache<Digest, Arc<DeviceEntry>>,
    plans: SharedEntries<PlanEntry>,
    accounts: LoadingCache<UserId, Arc<AccountEntry>>,
    sessions: LoadingCache<SessionId, Arc<SessionEntry>>,
    api_keys: LoadingCache<Digest, Arc<ApiKeyEntry>>,
    lineages: LoadingCache<OrganizationId, Lineage>,
    snapshots: DeviceSnapshots,
    departures: Departures,
}

impl Caches {
    /// # Errors
    /// The system gives no more resources.
    pub(crate) fn new(env: Arc<Env>, outbox: Arc<Outbox>, meters: Arc<Meters>) -> Result<Self> {
        let compile_jobs =
            BoundedJobs::giving_way(COMPILING_THREAD, COMPILING_AT_ONCE, COMPILING_MAX, COMPILING_OF_ONE_MAX)?;
        Ok(Self {
            env,
            outbox,
            meters,
            compile_jobs,
            devices: SharedEntries::new(EntryBounds { entries: DEVICES_MAX, bytes: DEVICES_BYTES_MAX }),
            device_tokens: LoadingCache::new(DEVICES_MAX),
            plans: SharedEntries::new(EntryBounds { entries: PLANS_MAX, bytes: PLANS_BYTES_MAX }),
            accounts: LoadingCache::new(ACCOUNTS_MAX),
            sessions: LoadingCache::new(ACCOUNTS_MAX),
            api_keys: LoadingCache::new(ACCOUNTS_MAX),
            lineages: LoadingCache::new(ACCOUNTS_MAX),
            snapshots: DeviceSnapshots::new(),
            departures: Departures::new(),
        })
    }

    /// Counts the devices of tenants that leave their place.
    pub(crate) fn departures(&self) -> &Departures {
        &self.departures
    }

    /// The device that a token belongs to.
    pub(crate) async fn device_by_token(&self, token: &Digest) -> Result<Arc<DeviceEntry>> {
        if let Some(entry) = self.device_tokens.get(token) {
            if entry.is_current() {
                entry.held().note_use();
                return Ok(entry);
            }
            self.device_tokens.invalidate(token);
        }
        let load = || async {
            let Some(id) = self.env.registry().device_by_token(token).await? else { return Ok(None) };
            self.device_entry(id).await
        };
        let entry = self.device_tokens.get_or_load(token, load).await?.ok_or(Error::Unauthenticated)?;
        // One that was not installed says nothing: whoever asked looks for a newer one.
        if !entry.is_current() {
            self.device_tokens.invalidate(token);
        }
        Ok(entry)
    }

    /// Whether a token is known to be this device's still. No: it has ended, or something else has changed.
    pub(crate) fn token_stands(&self, token: &Digest, entry: &Arc<DeviceEntry>) -> bool {
        let known = self.device_tokens.get(token);
        known.is_some_and(|known| Arc::ptr_eq(&known, entry) && known.is_current())
    }

    /// Whether a session is known to be this caller's still. No: it has ended, or something else has changed.
    pub(crate) fn session_stands(&self, session: SessionId, caller: &Arc<Caller>) -> bool {
        let known = self.sessions.get(&session);
        known.is_some_and(|known| Arc::ptr_eq(&known.caller, caller) && known.account.stands())
    }

    /// Whether an API key is known to be this caller's still. No: it has ended, or something else has changed.
    pub(crate) fn api_key_stands(&self, key: &Digest, caller: &Arc<Caller>, now: Timestamp) -> bool {
        let known = self.api_keys.get(key);
        known.is_some_and(|known| Arc::ptr_eq(&known.caller, caller) && !known.has_ended(now) && known.account.stands())
    }

    /// The entry of a device; none when there is no such device.
    pub(crate) async fn device_entry(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        if let Some(entry) = self.devices.get(id) {
            return Ok(Some(entry));
        }
        let load = self.devices.begin(&id);
        Ok(Box::pin(self.load_device(id)).await?.map(|entry| self.devices.install(entry, &load)))
    }

    /// What is known of a device: by this entry, or by a newer one where this one has been retired. Where that one was too, or the
    /// device changed while it was loaded, what a look at the registry finds.
    pub(crate) async fn device_view(&self, entry: &Arc<DeviceEntry>) -> Result<Arc<DeviceView>> {
        if let Some(view) = entry.view() {
            return Ok(view);
        }
        let (id, missing) = (entry.device.id, Error::Missing("device"));
        let Some(newest) = self.device_entry(id).await? else { return Err(missing) };
        if let Some(view) = newest.view() {
            return Ok(view);
        }
        // One that is not installed says what it found until this lets it go.
        self.load_device(id).await?.and_then(|found| found.view()).ok_or(missing)
    }

    /// What a run has changed of a device stands in its entry: others make room for it where it has grown.
    pub(crate) fn view_changed(&self, entry: &DeviceEntry) {
        self.devices.changed(entry);
    }

    /// Shows how much entries of devices weigh, and compiled designs.
    pub(crate) fn measure(&self) {
        let devices = DEVICES_BYTES_GAUGES.into_iter().zip([self.devices.weight(), DEVICES_BYTES_MAX]);
        let plans = PLANS_BYTES_GAUGES.into_iter().zip([self.plans.weight(), PLANS_BYTES_MAX]);
        for (gauge, bytes) in devices.chain(plans) {
            metrics::gauge!(gauge).set(bytes as f64);
        }
    }

    /// An entry of what the registry says of a device and what its runs have found out since; it is not installed.
    pub(crate) async fn load_device(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        let registry = self.env.registry();
        let Some((device, lineage)) = registry.device_placement(id).await? else { return Ok(None) };
        // Before the registry is asked: what its design found out earlier may come to be there in between.
        let pending = self.outbox.pending_committed(device.key).await?;
        let permit = access::system(device, "the main road runs the device's design").reading();
        let Some(mut found) = registry.device_fetch(&permit).await? else { return Ok(None) };
        let mut settings = registry.settings_of(&permit).await?;
        pending.apply_to(&mut found);
        pending.apply_to_settings(device.id, &mut settings);
        let plan = self.plan_entry(found.project).await?;
        let quota = self.meters.quota_of(&lineage);
        Ok(Some(DeviceEntry::new((device, lineage), found, settings, plan, quota)))
    }

    /// The entries of many devices, with one question of each kind for as many of them as may lie in memory together. `permit`
    /// says which of them the caller may see; the others are left out.
    pub(crate) async fn device_entries(
        &self,
        ids: &[DeviceId],
        permit: impl Fn(DeviceRef, &Lineage) -> Option<CanRead<DeviceRef>>,
    ) -> Result<Vec<Arc<DeviceEntry>>> {
        let registry = self.env.registry();
        let loads: HashMap<_, _> = ids.iter().map(|id| (*id, self.devices.begin(id))).collect();
        let placed = registry.device_placements(ids).await?.into_iter();
        let placed: Vec<_> =
            placed.filter_map(|(device, lineage)| Some((permit(device, &lineage)?, lineage))).collect();
        let mut entries = Vec::with_capacity(placed.len());
        let mut left = placed.as_slice();
        while !left.is_empty() {
            let permits: Vec<_> = left.iter().map(|(permit, _)| permit.clone()).collect();
            let together = registry.devices_that_take(&permits, LOADED_BYTES_AT_ONCE).await?;
            let (piece, later) = left.split_at(together.min(left.len()));
            self.load_piece(piece, &loads, &mut entries).await?;
            left = later;
        }
        Ok(entries)
    }

    /// Loads the entries of some devices; `loads` began before anything of them was read.
    async fn load_piece(
        &self,
        placed: &[(CanRead<DeviceRef>, Lineage)],
        loads: &HashMap<DeviceId, EntryLoad<'_, DeviceId>>,
        entries: &mut Vec<Arc<DeviceEntry>>,
    ) -> Result<()> {
        let registry = self.env.registry();
        let mut pending = HashMap::with_capacity(placed.len());
        for (permit, _) in placed {
            pending.insert(permit.target().id, self.outbox.pending_committed(permit.target().key).await?);
        }
        let permits: Vec<_> = placed.iter().map(|(permit, _)| permit.clone()).collect();
        let found = registry.devices_fetch(&permits).await?;
        let mut found: HashMap<DeviceId, Device> = found.into_iter().map(|device| (device.id, device)).collect();
        let mut settings = HashMap::<DeviceId, Vec<SettingRecord>>::new();
        for record in registry.settings_of_many(&permits).await? {
            settings.entry(record.device).or_default().push(record);
        }
        for (permit, lineage) in placed {
            let device = *permit.target();
            let (Some(mut found), Some(load)) = (found.remove(&device.id), loads.get(&device.id)) else { continue };
            let plan = self.plan_entry(found.project).await?;
            let (mut own, quota) = (settings.remove(&device.id).unwrap_or_default(), self.meters.quota_of(lineage));
            if let Some(pending) = pending.get(&device.id) {
                pending.apply_to(&mut found);
                pending.apply_to_settings(device.id, &mut own);
            }
            let entry = DeviceEntry::new((device, lineage.clone()), found, own, plan, quota);
            entries.push(self.devices.install(entry, load));
        }
        Ok(())
    }

    /// The account of a user; none when there is no such user.
    pub(crate) async fn account_entry(&self, user: UserId) -> Result<Option<Arc<AccountEntry>>> {
        let load = || async {
            let Some(account) = self.env.registry().account(user).await? else { return Ok(None) };
            let caller = Caller { user, role: account.role, lineage: account.lineage, session: None, key: None };
            Ok(Some(Arc::new(AccountEntry::new(caller, account.disabled))))
        };
        self.accounts.get_or_load(&user, load).await
    }

    /// The session of a jwt, if it is still open.
    pub(crate) async fn session_entry(&self, session: SessionId, user: UserId) -> Result<Arc<SessionEntry>> {
        let sessions = &self.sessions;
        if let Some(entry) = sessions.get(&session) {
            if entry.account.is_current() {
                return Ok(entry);
            }
            sessions.invalidate(&session);
        }
        let load = || async {
            let open = self.env.registry().session(session).await?;
            if open.is_none_or(|open| open.user != user) {
                return Ok::<_, Error>(None);
            }
            let Some(account) = self.account_entry(user).await? else { return Ok(None) };
            let caller = Arc::new(Caller { session: Some(session), ..(*account.caller).clone() });
            Ok(Some(Arc::new(SessionEntry { caller, account })))
        };
        sessions.get_or_load(&session, load).await?.ok_or(Error::Unauthenticated)
    }

    /// An API key by its digest, also one that has ended.
    pub(crate) async fn api_key_entry(&self, key: &Digest) -> Result<Arc<ApiKeyEntry>> {
        let api_keys = &self.api_keys;
        if let Some(entry) = api_keys.get(key) {
            if entry.account.is_current() {
                return Ok(entry);
            }
            api_keys.invalidate(key);
        }
        let load = || async {
            let Some(record) = self.env.registry().api_key_by_digest(key).await? else {
                return Ok::<_, Error>(None);
            };
            let Some(account) = self.account_entry(record.user).await? else { return Ok(None) };
            Ok(Some(Arc::new(ApiKeyEntry::new(record, account))))
        };
        api_keys.get_or_load(key, load).await?.ok_or(Error::Unauthenticated)
    }

    /// The lineage of an organization; none when there is no such organization.
    pub(crate) async fn lineage_of(&self, organization: OrganizationId) -> Result<Option<Lineage>> {
        let load = || async { Ok(self.env.registry().organization_lineage(organization).await?) };
        self.lineages.get_or_load(&organization, load).await
    }

    /// The device changed: its next event sees the change.
    pub(crate) fn device_changed(&self, id: DeviceId) {
        self.device_tokens.discard_loads();
        self.devices.retire(id);
    }

    /// The project's design changed: the next event of each of its devices runs the new one.
    pub(crate) fn design_changed(&self, project: ProjectId) {
        self.device_tokens.discard_loads();
        self.devices.discard_loads();
        self.plans.retire(project);
    }

    /// The user changed, or its sessions did: its next call sees it, whatever credentials it comes with.
    pub(crate) fn account_changed(&self, user: UserId) {
        // A load of a session or a key may have seen the user as it was.
        self.sessions.discard_loads();
        self.api_keys.discard_loads();
        self.accounts.invalidate(&user);
    }

    /// An API key was deleted. Keys are cached by digest, which nobody knows any more: all are forgotten.
    pub(crate) fn api_keys_changed(&self) {
        self.api_keys.clear();
    }

    /// An organization was moved or removed, or its limits were changed: whatever is cached of it and of what lies
    /// beneath it is found out again.
    pub(crate) fn organization_changed(&self, id: OrganizationId) {
        self.lineages.clear();
        self.sessions.discard_loads();
        self.api_keys.discard_loads();
        self.accounts.forget_if(|account| account.caller.lineage.contains(id));
        self.device_tokens.discard_loads();
        self.devices.retire_if(|entry| entry.lineage.contains(id));
    }

    /// The entry of a device, if it is cached.
    pub(crate) fn cached_device(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.devices.get(id)
    }
}
