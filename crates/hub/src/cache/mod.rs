//! Caches the rows of the registry that calls need again and again, bounded in number and bytes. The next request sees
//! each change, because the code that changes a row marks its entries as outdated and removes them.

pub(crate) mod data_quota;
mod departures;
pub(crate) mod entries;
mod freshness;
pub(crate) mod held;
mod loading_cache;
pub(crate) mod plan_entry;
mod plans;
mod single_flight;
mod snapshots;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use isobar_design::DeviceView;
use isobar_model::access::{self, Caller, CanRead, Lineage};
use isobar_model::alarm::ListedAlarms;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId, SessionId, UserId};
use isobar_model::secret::Digest;
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::Standing;

use self::data_quota::Meters;
use self::departures::Departures;
use self::entries::{AccountEntry, ApiKeyEntry, DeviceEntry, SessionEntry, UNSETTLED};
use self::freshness::Freshness;
use self::loading_cache::LoadingCache;
use self::plan_entry::PlanEntry;
use self::single_flight::Load;
use self::snapshots::{SNAPSHOTS_BYTES_MAX, Snapshot};
use crate::env::Env;
use crate::outbox::Outbox;
use crate::support::bounded_jobs::BoundedJobs;

/// Cached devices, at most.
const DEVICES_MAX: usize = 200_000;
/// Bytes that cached devices may weigh, including their metadata and settings, and the gauges of both figures.
const DEVICES_BYTES_MAX: usize = 256 << 20;
const DEVICES_BYTES_GAUGES: [&str; 2] = ["isobar_device_cache_bytes", "isobar_device_cache_bytes_max"];
/// Bytes of metadata and settings of devices that one batch loads.
const LOADED_BYTES_AT_ONCE: usize = 8 << 20;
/// Cached compiled plans, at most.
const PLANS_MAX: usize = 4_096;
/// Bytes that cached plans may weigh, including the retention of their projects, and the gauges of both figures.
const PLANS_BYTES_MAX: usize = 256 << 20;
const PLANS_BYTES_GAUGES: [&str; 2] = ["isobar_plan_cache_bytes", "isobar_plan_cache_bytes_max"];
/// Name of the threads that compile the designs clients send.
const COMPILING_THREAD: &str = "isobar-compile";
/// Cached accounts, sessions and API keys, at most, each.
const ACCOUNTS_MAX: usize = 16_384;

/// Caches devices, plans, accounts, sessions, API keys and lineages. A load joins the registry's row with the changes
/// that wait in the outbox.
pub(crate) struct Caches {
    env: Arc<Env>,
    outbox: Arc<Outbox>,
    meters: Arc<Meters>,
    compile_jobs: BoundedJobs,
    devices: LoadingCache<DeviceId, Arc<DeviceEntry>>,
    device_tokens: LoadingCache<Digest, Arc<DeviceEntry>>,
    plans: LoadingCache<ProjectId, Arc<PlanEntry>>,
    accounts: LoadingCache<UserId, Arc<AccountEntry>>,
    sessions: LoadingCache<SessionId, Arc<SessionEntry>>,
    api_keys: LoadingCache<Digest, Arc<ApiKeyEntry>>,
    lineages: LoadingCache<OrganizationId, Lineage>,
    snapshots: LoadingCache<DeviceId, Snapshot>,
    departures: Departures,
    freshness: Freshness,
}

impl Caches {
    /// Makes the caches and starts the compiling threads.
    ///
    /// # Errors
    /// Returns an error if the system gives no more threads.
    pub(crate) fn new(env: Arc<Env>, outbox: Arc<Outbox>, meters: Arc<Meters>) -> Result<Self> {
        let compile_jobs = BoundedJobs::giving_way(COMPILING_THREAD, &isobar_quota::limits::DESIGN_COMPILATIONS)?;
        let freshness = Freshness::new(env.clock().clone(), env.config().has_other_nodes);
        Ok(Self {
            env,
            outbox,
            meters,
            compile_jobs,
            devices: LoadingCache::new(DEVICES_MAX, DEVICES_BYTES_MAX),
            device_tokens: LoadingCache::new(DEVICES_MAX, usize::MAX),
            plans: LoadingCache::new(PLANS_MAX, PLANS_BYTES_MAX),
            accounts: LoadingCache::new(ACCOUNTS_MAX, usize::MAX),
            sessions: LoadingCache::new(ACCOUNTS_MAX, usize::MAX),
            api_keys: LoadingCache::new(ACCOUNTS_MAX, usize::MAX),
            lineages: LoadingCache::new(ACCOUNTS_MAX, usize::MAX),
            snapshots: LoadingCache::new(usize::MAX, SNAPSHOTS_BYTES_MAX),
            departures: Departures::new(),
            freshness,
        })
    }

    /// Returns the time since which other nodes may have changed what is cached. What authenticates a caller looks at it
    /// first.
    pub(crate) fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Returns the counters of devices that have left a place.
    pub(crate) fn departures(&self) -> &Departures {
        &self.departures
    }

    /// Returns the device that a token belongs to.
    pub(crate) async fn device_by_token(&self, token: &Digest) -> Result<Arc<DeviceEntry>> {
        self.freshness.fresh().await?;
        if let Some(entry) = self.device_tokens.get(token) {
            entry.note_use();
            return Ok(entry);
        }
        let load = || async {
            let Some(id) = self.env.registry().device_by_token(token).await? else { return Ok(None) };
            self.device_entry(id).await
        };
        // An entry that was not installed has no state: the caller looks for a newer one.
        self.device_tokens.get_or_load(token, load).await?.ok_or(Error::Unauthenticated)
    }

    /// Returns true if the cache knows that the token still belongs to this device. False means that it ended, or that
    /// something else has changed.
    pub(crate) fn token_stands(&self, token: &Digest, entry: &Arc<DeviceEntry>) -> bool {
        let known = self.device_tokens.get(token);
        self.freshness.is_fresh() && known.is_some_and(|known| Arc::ptr_eq(&known, entry))
    }

    /// Returns true if the cache knows that the session still belongs to this caller. False means that it ended, or
    /// that something else has changed.
    pub(crate) fn session_stands(&self, session: SessionId, caller: &Arc<Caller>) -> bool {
        let known = self.sessions.get(&session);
        self.freshness.is_fresh()
            && known.is_some_and(|known| Arc::ptr_eq(&known.caller, caller) && known.account.stands())
    }

    /// Returns true if the cache knows that the API key still belongs to this caller. False means that it ended, or
    /// that something else has changed.
    pub(crate) fn api_key_stands(&self, key: &Digest, caller: &Arc<Caller>, now: Timestamp) -> bool {
        let known = self.api_keys.get(key);
        let stands = |known: Arc<ApiKeyEntry>| {
            Arc::ptr_eq(&known.caller, caller) && !known.has_ended(now) && known.account.stands()
        };
        self.freshness.is_fresh() && known.is_some_and(stands)
    }

    /// Returns the entry of a device, or `None` if there is no such device.
    pub(crate) async fn device_entry(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        if let Some(entry) = self.devices.get(&id) {
            return Ok(Some(entry));
        }
        let load = self.devices.begin(&id);
        Ok(Box::pin(self.load_device(id)).await?.map(|entry| self.devices.install(entry, &load)))
    }

    /// Returns a device's state: from this entry, or from a newer one if this one was retired. If that one was retired
    /// too, or the device changed during the load, the state is read from the registry.
    pub(crate) async fn device_view(&self, entry: &Arc<DeviceEntry>) -> Result<Arc<DeviceView>> {
        if self.is_newest(entry).await?
            && let Some(view) = entry.view()
        {
            return Ok(view);
        }
        let (id, missing) = (entry.device.id, Error::Missing("device"));
        let Some(newest) = self.device_entry(id).await? else { return Err(missing) };
        if let Some(view) = newest.view() {
            return Ok(view);
        }
        // An entry that is not installed keeps its state until this reference is dropped.
        self.load_device(id).await?.and_then(|found| found.view()).ok_or(missing)
    }

    /// Returns the revisions of devices that entries show which are loaded next, in a store that processes share; else 0. To
    /// be called before the registry is read.
    async fn revisions(&self, devices: &[DeviceKey]) -> Result<Vec<u64>> {
        let Some(shared) = self.env.telemetry().shared() else { return Ok(vec![0; devices.len()]) };
        let standings = shared.standings(devices).await?;
        for (device, standing) in devices.iter().zip(&standings) {
            if let Some(Standing { revision, pending: None }) = standing {
                self.outbox.forget_overtaken(*device, *revision);
            }
        }
        // While the database of a device does not answer, no run of it can commit.
        let revision = |standing: &Option<Standing>| match standing {
            Some(Standing { revision, pending: None }) => *revision,
            Some(_) | None => UNSETTLED,
        };
        Ok(standings.iter().map(revision).collect())
    }

    /// Returns true if no other process has changed the device since its entry was loaded; else the entry is retired.
    async fn is_newest(&self, entry: &DeviceEntry) -> Result<bool> {
        let Some(shared) = self.env.telemetry().shared() else { return Ok(true) };
        let standing = shared.standing(entry.device.key).await?;
        let is_newest = entry.is_at(standing.revision);
        if !is_newest {
            self.device_changed(entry.device.id);
        }
        Ok(is_newest)
    }

    /// Notes that a run has changed a device's state in its entry: other entries are evicted if the cache has grown too
    /// large.
    pub(crate) fn view_changed(&self, entry: &DeviceEntry) {
        if let Some(place) = entry.place() {
            self.devices.settle(place);
        }
    }

    /// Publishes the weights of cached devices and compiled designs, and the age of all caches, as gauges.
    pub(crate) fn measure(&self) {
        let devices = DEVICES_BYTES_GAUGES.into_iter().zip([self.devices.weight(), DEVICES_BYTES_MAX]);
        let plans = PLANS_BYTES_GAUGES.into_iter().zip([self.plans.weight(), PLANS_BYTES_MAX]);
        for (gauge, bytes) in devices.chain(plans) {
            metrics::gauge!(gauge).set(bytes as f64);
        }
        self.freshness.measure();
    }

    /// Loads an entry from the registry and the pending changes of the device's runs, without installing it.
    pub(crate) async fn load_device(&self, id: DeviceId) -> Result<Option<Arc<DeviceEntry>>> {
        let registry = self.env.registry();
        let Some((device, lineage)) = registry.device_placement(id).await? else { return Ok(None) };
        let revision = self.revisions(&[device.key]).await?.pop().unwrap_or_default();
        // Read before the registry: a pending change may move into the registry between the two reads.
        let pending = self.outbox.pending_committed(device.key).await?;
        let permit = access::system(device, "the main road runs the device's design").reading();
        let Some(mut found) = registry.device_fetch(&permit).await? else { return Ok(None) };
        let mut settings = registry.settings_of(&permit).await?;
        pending.apply_to(&mut found);
        pending.apply_to_settings(device.id, &mut settings);
        let plan = self.plan_entry(found.project).await?;
        let mut alarms = match plan.may_raise_alarms() {
            true => registry.alarms_listed(&[permit]).await?.remove(&device.key).unwrap_or_default(),
            false => ListedAlarms::default(),
        };
        pending.apply_to_alarms(&mut alarms);
        let quota = self.meters.quota_of(&lineage);
        Ok(Some(DeviceEntry::new((device, lineage), found, (settings, alarms), (plan, revision), quota)))
    }

    /// Returns the entries of many devices, with one query of each kind for each batch that fits in memory. `permit`
    /// decides which devices the caller may see; the others are left out.
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

    /// Loads the entries of some devices; each of `loads` began before any row was read.
    async fn load_piece(
        &self,
        placed: &[(CanRead<DeviceRef>, Lineage)],
        loads: &HashMap<DeviceId, Load<'_, DeviceId>>,
        entries: &mut Vec<Arc<DeviceEntry>>,
    ) -> Result<()> {
        let registry = self.env.registry();
        let keys: Vec<DeviceKey> = placed.iter().map(|(permit, _)| permit.target().key).collect();
        let revisions = match self.revisions(&keys).await {
            // A single one of many calls is refused by itself, as one among several devices is.
            Err(_) if keys.len() == 1 => vec![UNSETTLED],
            revisions => revisions?,
        };
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
        let mut plans = HashMap::with_capacity(1);
        for device in found.values() {
            if let Entry::Vacant(plan) = plans.entry(device.project) {
                plan.insert(self.plan_entry(device.project).await?);
            }
        }
        let mut listed = match plans.values().any(|plan| plan.may_raise_alarms()) {
            true => registry.alarms_listed(&permits).await?,
            false => HashMap::new(),
        };
        for ((permit, lineage), revision) in placed.iter().zip(revisions) {
            let device = *permit.target();
            let (Some(mut found), Some(load)) = (found.remove(&device.id), loads.get(&device.id)) else { continue };
            let Some(plan) = plans.get(&found.project).map(Arc::clone) else { continue };
            let (mut own, quota) = (settings.remove(&device.id).unwrap_or_default(), self.meters.quota_of(lineage));
            let mut alarms = listed.remove(&device.key).unwrap_or_default();
            if let Some(pending) = pending.get(&device.id) {
                pending.apply_to(&mut found);
                pending.apply_to_settings(device.id, &mut own);
                pending.apply_to_alarms(&mut alarms);
            }
            let entry = DeviceEntry::new((device, lineage.clone()), found, (own, alarms), (plan, revision), quota);
            entries.push(self.devices.install(entry, load));
        }
        Ok(())
    }

    /// Returns the account of a user, or `None` if there is no such user.
    pub(crate) async fn account_entry(&self, user: UserId) -> Result<Option<Arc<AccountEntry>>> {
        self.freshness.fresh().await?;
        let load = || async {
            let Some(account) = self.env.registry().account(user).await? else { return Ok(None) };
            let caller = Caller { user, role: account.role, lineage: account.lineage, session: None, key: None };
            Ok(Some(Arc::new(AccountEntry::new(caller, account.disabled))))
        };
        self.accounts.get_or_load(&user, load).await
    }

    /// Returns the session of a JWT, if it is still open.
    pub(crate) async fn session_entry(&self, session: SessionId, user: UserId) -> Result<Arc<SessionEntry>> {
        self.freshness.fresh().await?;
        let load = || async {
            let open = self.env.registry().session(session).await?;
            if open.is_none_or(|open| open.user != user) {
                return Ok::<_, Error>(None);
            }
            let Some(account) = self.account_entry(user).await? else { return Ok(None) };
            let caller = Arc::new(Caller { session: Some(session), ..(*account.caller).clone() });
            Ok(Some(Arc::new(SessionEntry { caller, account })))
        };
        self.sessions.get_or_load(&session, load).await?.ok_or(Error::Unauthenticated)
    }

    /// Returns an API key by its digest, even if it has expired.
    pub(crate) async fn api_key_entry(&self, key: &Digest) -> Result<Arc<ApiKeyEntry>> {
        self.freshness.fresh().await?;
        let load = || async {
            let Some(record) = self.env.registry().api_key_by_digest(key).await? else {
                return Ok::<_, Error>(None);
            };
            let Some(account) = self.account_entry(record.user).await? else { return Ok(None) };
            Ok(Some(Arc::new(ApiKeyEntry::new(record, account))))
        };
        self.api_keys.get_or_load(key, load).await?.ok_or(Error::Unauthenticated)
    }

    /// Returns the lineage of an organization, or `None` if there is no such organization.
    pub(crate) async fn lineage_of(&self, organization: OrganizationId) -> Result<Option<Lineage>> {
        let load = || async { Ok(self.env.registry().organization_lineage(organization).await?) };
        self.lineages.get_or_load(&organization, load).await
    }

    /// Retires a changed device's entry, so that its next event sees the change.
    pub(crate) fn device_changed(&self, id: DeviceId) {
        self.device_tokens.discard_loads();
        self.devices.invalidate(&id);
    }

    /// Retires a project's changed design, so that the next event of each of its devices runs the new one.
    pub(crate) fn design_changed(&self, project: ProjectId) {
        self.device_tokens.discard_loads();
        self.devices.discard_loads();
        self.plans.invalidate(&project);
    }

    /// Removes a changed user's account, so that its next call sees the change, whatever credentials it uses.
    pub(crate) fn account_changed(&self, user: UserId) {
        // A load of a session or a key may have read the user before the change.
        self.sessions.discard_loads();
        self.api_keys.discard_loads();
        self.accounts.invalidate(&user);
    }

    /// Removes all API keys after one was deleted: keys are cached by digest, and the caller does not know the digest.
    pub(crate) fn api_keys_changed(&self) {
        self.api_keys.clear();
    }

    /// Removes the entries of an organization and of everything beneath it, after it was moved or removed or its limits
    /// changed.
    pub(crate) fn organization_changed(&self, id: OrganizationId) {
        self.lineages.clear();
        self.sessions.discard_loads();
        self.api_keys.discard_loads();
        self.accounts.forget_if(|account| account.caller.lineage.contains(id));
        self.device_tokens.discard_loads();
        self.devices.forget_if(|entry| entry.lineage.contains(id));
    }

    /// Removes all entries, when it is unknown what has changed.
    pub(crate) fn forget_everything(&self) {
        self.lineages.clear();
        self.accounts.clear();
        self.sessions.clear();
        self.api_keys.clear();
        self.plans.clear();
        self.device_tokens.clear();
        self.devices.clear();
        self.snapshots.clear();
        self.departures.note_all();
    }

    /// Returns the entry of a device, if it is cached.
    pub(crate) fn cached_device(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.devices.get(&id)
    }
}
