//! Records when devices, users and API keys were last active: in memory at once, in the registry every few seconds, so
//! that an event costs no registry write.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use isobar_model::ids::{ApiKeyId, DeviceId, DeviceKey, DeviceRef, OrganizationId, UserId};
use isobar_model::time::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use super::key_uses::KeyUses;
use crate::cache::Caches;
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::supervisor::Shift;

/// Interval between two writes of the recorded activity.
const ACTIVITY_FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Devices written at a time. More would block other writers of the registry; they get a pause of the same length
/// between two writes. A smaller backlog waits for the next interval.
const DEVICES_A_FLUSH: usize = 5_000;

/// Records activity that is not yet written.
pub(crate) struct Activity {
    env: Arc<Env>,
    caches: Arc<Caches>,
    /// Entries with activity that is not yet in [`Activity::unwritten`], by tenant.
    devices: Mutex<FxHashMap<OrganizationId, Vec<Arc<DeviceEntry>>>>,
    unwritten: Mutex<Unwritten>,
    users: Mutex<HashMap<UserId, Timestamp>>,
    api_keys: KeyUses,
}

/// Collects the activity of devices until the registry has it: a few dozen bytes for each device, at most.
#[derive(Default)]
struct Unwritten {
    seen: FxHashMap<DeviceKey, SeenDevice>,
    /// The devices of each tenant that has any.
    of_tenants: FxHashMap<OrganizationId, FxHashSet<DeviceKey>>,
    /// The devices in the order in which they wait; each is there once.
    waiting: VecDeque<DeviceKey>,
}

/// The unwritten activity of a device.
struct SeenDevice {
    id: DeviceId,
    /// The device's tenant at that time.
    tenant: OrganizationId,
    at: Timestamp,
}

/// A device with the time of its activity.
type Seen = (DeviceKey, DeviceId, Timestamp);

impl Unwritten {
    fn add(&mut self, device: DeviceRef, tenant: OrganizationId, at: Timestamp) {
        let before = match self.seen.entry(device.key) {
            Entry::Occupied(mut seen) => {
                let seen = seen.get_mut();
                seen.at = at.max(seen.at);
                Some(std::mem::replace(&mut seen.tenant, tenant))
            }
            Entry::Vacant(vacant) => {
                vacant.insert(SeenDevice { id: device.id, tenant, at });
                self.waiting.push_back(device.key);
                None
            }
        };
        if before != Some(tenant) {
            before.into_iter().for_each(|before| self.leaves(before, device.key));
            self.of_tenants.entry(tenant).or_default().insert(device.key);
        }
    }

    fn leaves(&mut self, tenant: OrganizationId, device: DeviceKey) {
        if let Some(devices) = self.of_tenants.get_mut(&tenant) {
            devices.remove(&device);
            if devices.is_empty() {
                self.of_tenants.remove(&tenant);
            }
        }
    }

    /// Returns all devices of a tenant.
    fn of_tenant(&self, tenant: OrganizationId) -> Vec<(DeviceKey, Timestamp)> {
        let devices = self.of_tenants.get(&tenant).into_iter().flatten();
        devices.filter_map(|key| Some((*key, self.seen.get(key)?.at))).collect()
    }

    /// Returns the first devices in the queue, without removing them.
    fn first(&self, most: usize) -> Vec<Seen> {
        let seen = |key: &DeviceKey| self.seen.get(key).map(|seen| (*key, seen.id, seen.at));
        self.waiting.iter().take(most).filter_map(seen).collect()
    }

    /// Removes the first devices after they were written; those active again meanwhile join the end of the queue.
    fn written(&mut self, first: &[Seen]) {
        for (key, _, at) in first {
            self.waiting.pop_front();
            match self.seen.entry(*key) {
                Entry::Occupied(seen) if seen.get().at == *at => {
                    let SeenDevice { tenant, .. } = seen.remove();
                    self.leaves(tenant, *key);
                }
                _ => self.waiting.push_back(*key),
            }
        }
    }

    /// Moves the first devices to the end of the queue after a failed write, so that others have their turn.
    fn not_written(&mut self, first: usize) {
        self.waiting.rotate_left(first);
    }
}

impl Activity {
    pub(crate) fn new(env: Arc<Env>, caches: Arc<Caches>) -> Self {
        Self {
            env,
            caches,
            devices: Mutex::default(),
            unwritten: Mutex::default(),
            users: Mutex::default(),
            api_keys: KeyUses::default(),
        }
    }

    /// Records that a device sent an event.
    pub(crate) fn device(&self, entry: &Arc<DeviceEntry>, now: Timestamp) {
        if entry.active.swap(now.millis(), Ordering::Relaxed) == 0 {
            self.devices.lock().entry(entry.lineage.top()).or_default().push(Arc::clone(entry));
        }
    }

    /// Records that a user made a call.
    pub(crate) fn user(&self, user: UserId, now: Timestamp) {
        self.users.lock().insert(user, now);
    }

    /// Records that an API key was used.
    pub(crate) fn api_key(&self, key: ApiKeyId, now: Timestamp) {
        self.api_keys.note(key, now);
    }

    /// Returns the time of the user's last call, if the registry does not know it yet.
    pub(crate) fn of_user(&self, user: UserId) -> Option<Timestamp> {
        self.users.lock().get(&user).copied()
    }

    /// Returns the time of the API key's last use, if the registry does not know it yet.
    pub(crate) fn of_api_key(&self, key: ApiKeyId) -> Option<Timestamp> {
        self.api_keys.last(key)
    }

    /// Returns the time of the device's last activity, if the registry does not know it yet; `entry` is its cached
    /// entry.
    pub(crate) fn newest(&self, key: DeviceKey, entry: Option<&DeviceEntry>) -> Option<Timestamp> {
        // The entry is read first: a time that leaves it is collected under the lock taken next.
        let millis = entry.map_or(0, |entry| entry.active.load(Ordering::Acquire));
        let told = (millis > 0).then(|| Timestamp::from_millis(millis));
        told.max(self.unwritten.lock().seen.get(&key).map(|seen| seen.at))
    }

    /// Returns the time of the device's last activity by any entry, or `None` if the registry already knows it.
    pub(crate) fn of_device(&self, key: DeviceKey) -> Option<Timestamp> {
        self.gather_all().seen.get(&key).map(|seen| seen.at)
    }

    /// Returns the last activity of all devices of a tenant that the registry does not know yet, without collecting
    /// that of other tenants. A device that came from another tenant since its event is missing until it is written
    /// soon after.
    pub(crate) fn of_tenant(&self, tenant: OrganizationId) -> Vec<(DeviceKey, Timestamp)> {
        let gathered = self.gather(|devices| devices.remove(&tenant).unwrap_or_default());
        gathered.of_tenant(tenant)
    }

    /// Collects the activity of at most this many entries of any tenant.
    fn gather_some(&self, most: usize) -> MutexGuard<'_, Unwritten> {
        self.gather(|devices| {
            let mut some = Vec::new();
            devices.retain(|_, entries| {
                let rest = entries.len().saturating_sub(most - some.len());
                some.extend(entries.drain(rest..));
                !entries.is_empty()
            });
            some
        })
    }

    /// Collects the activity of all entries.
    fn gather_all(&self) -> MutexGuard<'_, Unwritten> {
        self.gather(|devices| std::mem::take(devices).into_values().flatten().collect())
    }

    /// Collects the activity of the entries that `taken` removes from the map.
    fn gather(
        &self,
        taken: impl FnOnce(&mut FxHashMap<OrganizationId, Vec<Arc<DeviceEntry>>>) -> Vec<Arc<DeviceEntry>>,
    ) -> MutexGuard<'_, Unwritten> {
        let mut unwritten = self.unwritten.lock();
        let told = taken(&mut self.devices.lock());
        for entry in told {
            let millis = entry.active.swap(0, Ordering::AcqRel);
            unwritten.add(entry.device, entry.lineage.top(), Timestamp::from_millis(millis));
        }
        unwritten
    }
}

/// Removes written activity, unless there was newer activity meanwhile.
fn forget<K: Copy + Eq + std::hash::Hash>(seen: &Mutex<HashMap<K, Timestamp>>, written: &[(K, Timestamp)]) {
    let mut seen = seen.lock();
    for (key, at) in written {
        if seen.get(key) == Some(at) {
            seen.remove(key);
        }
    }
}

impl Activity {
    /// Writes the recorded activity every few seconds, and once more at the end.
    pub(crate) async fn run_activity(self: Arc<Self>, mut shift: Shift) {
        loop {
            self.env.reaches("activity");
            let mut stopping = shift.pause(ACTIVITY_FLUSH_EVERY).await;
            loop {
                let begun = self.env.clock().instant();
                let many_wait = self.flush_activity(stopping).await;
                if stopping || !many_wait {
                    break;
                }
                shift.well();
                stopping = shift.pause(self.env.clock().elapsed(begun)).await;
            }
            shift.well();
            if stopping {
                return;
            }
        }
    }

    /// Writes the recorded activity of some devices, of all users, and of the keys not written in the last minute; at
    /// the end all of it. Activity that cannot be written stays in memory, where the check for missing devices and
    /// readers find it. Returns true if the write succeeded and a full batch is already pending.
    pub(crate) async fn flush_activity(&self, is_end: bool) -> bool {
        let registry = self.env.registry();
        let most = if is_end { usize::MAX } else { DEVICES_A_FLUSH };
        let (mut failed, now) = (None, self.env.now());
        let seen = self.gather_some(most).first(most);
        if !seen.is_empty() {
            // Times in the future, recorded by a clock that was ahead, are moved to now.
            let moments: Vec<_> = seen.iter().map(|(key, _, at)| (*key, (*at).min(now))).collect();
            let written = registry.devices_touch(&moments).await;
            // Done even after a failure, because the write may have succeeded.
            seen.iter().for_each(|(_, id, _)| self.caches.device_row_changed(*id));
            let mut unwritten = self.unwritten.lock();
            match written {
                Ok(()) => unwritten.written(&seen),
                Err(error) => {
                    unwritten.not_written(seen.len());
                    failed = Some(error);
                }
            }
        }
        let users: Vec<_> = self.users.lock().iter().map(|(user, at)| (*user, *at)).collect();
        match registry.users_touch(&users).await {
            Ok(()) => forget(&self.users, &users),
            Err(error) => failed = Some(error),
        }
        let keys = self.api_keys.due(now, is_end);
        match registry.api_keys_touch(&keys).await {
            Ok(()) => self.api_keys.written(&keys, now),
            Err(error) => failed = Some(error),
        }
        if let Some(error) = failed {
            tracing::warn!(%error, "last activity could not be written and is tried again");
            return false;
        }
        let gathered = self.unwritten.lock().waiting.len();
        gathered + self.devices.lock().values().map(Vec::len).sum::<usize>() >= DEVICES_A_FLUSH
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::device::Device;
    use isobar_model::status::Status;
    use isobar_model::user::ApiKeyInput;

    use super::*;
    use crate::stage::{Stage, until};
    use crate::{Accepts, Credentials, TreeQuery};

    const WATCHED: &str = r#"{
        "reading": {"type": "deviceEvent"},
        "state": {"type": "deviceMeta", "properties": {"missingAfterMinutes": 5}}
    }"#;

    #[test]
    fn pending_activity_keeps_its_order_until_written() {
        let (mut unwritten, at) = (Unwritten::default(), Timestamp::from_millis);
        let device = |key: u64| DeviceRef { id: DeviceId(uuid::Uuid::from_u128(key.into())), key: DeviceKey(key) };
        let tenant = |number: u128| OrganizationId(uuid::Uuid::from_u128(number));
        (1..=4).for_each(|key| unwritten.add(device(key), tenant(1), at(10)));
        unwritten.add(device(1), tenant(1), at(5));
        let keys = |unwritten: &Unwritten| unwritten.first(9).iter().map(|(key, ..)| key.0).collect::<Vec<_>>();
        let first = unwritten.first(2);
        assert_eq!(first.iter().map(|(key, _, at)| (key.0, at.millis())).collect::<Vec<_>>(), [(1, 10), (2, 10)]);
        unwritten.not_written(2);
        assert_eq!(keys(&unwritten), [3, 4, 1, 2]);
        let first = unwritten.first(3);
        unwritten.add(device(4), tenant(1), at(20));
        unwritten.written(&first);
        assert_eq!(keys(&unwritten), [2, 4]);
        assert_eq!(unwritten.seen.len(), 2);
    }

    #[test]
    fn pending_activity_is_grouped_by_tenant_and_moves_with_devices() {
        let (mut unwritten, at) = (Unwritten::default(), Timestamp::from_millis);
        let device = |key: u64| DeviceRef { id: DeviceId(uuid::Uuid::from_u128(key.into())), key: DeviceKey(key) };
        let tenant = |number: u128| OrganizationId(uuid::Uuid::from_u128(number));
        for (key, owner, moment) in [(1, 1, 10), (2, 1, 20), (3, 2, 30), (1, 1, 40), (2, 2, 15)] {
            unwritten.add(device(key), tenant(owner), at(moment));
        }
        let of = |unwritten: &Unwritten, number: u128| {
            let mut of: Vec<_> =
                unwritten.of_tenant(tenant(number)).into_iter().map(|(key, at)| (key.0, at.millis())).collect();
            of.sort_unstable();
            of
        };
        assert_eq!(of(&unwritten, 1), [(1, 40)]);
        assert_eq!(of(&unwritten, 2), [(2, 20), (3, 30)]);
        assert!(of(&unwritten, 3).is_empty());
        unwritten.written(&unwritten.first(3));
        assert!(unwritten.of_tenants.is_empty() && unwritten.seen.is_empty());
    }

    #[tokio::test]
    async fn summary_collects_activity_of_its_own_tenant_only() {
        let stage = Stage::set().await;
        let (own, other) = (stage.device(WATCHED).await, stage.device_of_another_tenant(WATCHED).await);
        for device in [&own, &other] {
            stage.posts(device, "1").await;
        }
        let activity = &stage.hub.0.activity;
        let waits = |device: &Device| {
            let waiting = activity.devices.lock();
            waiting.values().flatten().filter(|entry| entry.device.id == device.id).count()
        };
        assert_eq!((waits(&own), waits(&other)), (1, 1));
        let tree = TreeQuery { organization: None, depth: isobar_model::page::Depth::All };
        let summary = stage.hub.device_summary(&stage.admin, tree, Vec::new()).await.unwrap();
        assert_eq!((waits(&own), waits(&other)), (0, 1), "only its own were gathered");
        assert!(summary.active.hour >= 1);
        assert_eq!(activity.of_tenant(own.lineage.top()), [(own.key, stage.clock.now())]);
        assert_eq!(activity.of_tenant(other.lineage.top()), [(other.key, stage.clock.now())]);
        stage.over().await;
    }

    #[tokio::test]
    async fn flush_returns_true_while_a_full_batch_is_pending() {
        let stage = Stage::set().await;
        let activity = &stage.hub.0.activity;
        let tenant = OrganizationId(uuid::Uuid::from_u128(7));
        for key in 0..2 * DEVICES_A_FLUSH as u64 + 1 {
            let device = DeviceRef { id: DeviceId(uuid::Uuid::from_u128(key.into())), key: DeviceKey(1_000 + key) };
            activity.unwritten.lock().add(device, tenant, stage.clock.now());
        }
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let many_wait = activity.flush_activity(false).await;
            waiting.push((many_wait, activity.of_tenant(tenant).len()));
        }
        assert_eq!(waiting, [(true, DEVICES_A_FLUSH + 1), (false, 1), (false, 0)]);
        stage.over().await;
    }

    #[tokio::test]
    async fn unwritten_activity_is_shown_and_written_later() {
        let stage = Stage::set().await;
        let device = stage.device(WATCHED).await;
        stage.clock.advance_seconds(60);
        stage.posts(&device, "1").await;
        let seen = Some(stage.clock.now());
        stage.refuses("UPDATE", "device_activity").await;
        for _ in 0..2 {
            stage.hub.0.activity.flush_activity(false).await;
            // The time does not depend on the entry: a new one does not know of earlier runs.
            stage.hub.0.caches.device_changed(device.id);
            assert_eq!(stage.shows(&device).await.last_active, seen);
        }
        let permit = isobar_model::access::system(stage.entry(&device).await.device, "a test looks").reading();
        let written = async || stage.hub.0.env.registry().device_fetch(&permit).await.unwrap().unwrap().last_active;
        assert_eq!(written().await, None);
        stage.takes_again().await;
        stage.hub.0.activity.flush_activity(false).await;
        assert_eq!(written().await, seen);
        assert_eq!(stage.hub.0.activity.of_device(device.key), None);
        stage.over().await;
    }

    #[tokio::test]
    async fn unwritten_activity_of_users_is_shown() {
        let stage = Stage::set().await;
        let (user, now) = (stage.admin.user, stage.clock.now());
        stage.hub.0.activity.user(user, now);
        stage.refuses("UPDATE", "users").await;
        stage.hub.0.activity.flush_activity(false).await;
        assert_eq!(stage.hub.0.activity.of_user(user), Some(now));
        stage.takes_again().await;
        stage.hub.0.activity.flush_activity(false).await;
        assert_eq!(stage.hub.0.activity.of_user(user), None);
        assert_eq!(stage.hub.user_current(&stage.admin).await.unwrap().last_active, Some(now));
        stage.over().await;
    }

    // Holds: c13.keyUse
    #[tokio::test]
    async fn key_use_is_shown_at_once_and_written_once_a_minute() {
        let stage = Stage::set().await;
        let (hub, admin) = (&stage.hub, &stage.admin);
        let input = ApiKeyInput { name: "k".to_owned(), role: None, expires_at: None };
        let (key, secret) = hub.api_key_create(admin, admin.user, input).await.unwrap();
        let page = isobar_model::page::PageRequest::default();
        let permit = isobar_model::access::own(admin);
        let uses = async || {
            let shown = hub.api_key_list(admin, admin.user, page).await.unwrap().items[0].last_used_at;
            let written = hub.0.env.registry().api_key_list(&permit, page).await.unwrap().items[0].last_used_at;
            (shown, written)
        };
        assert_eq!((key.last_used_at, uses().await), (None, (None, None)));
        let use_it = async || {
            let credentials =
                Credentials { api_auth_token: Some(secret.reveal().as_bytes()), ..Credentials::default() };
            hub.authenticate(&credentials, Accepts::User).await.unwrap();
            Some(stage.clock.now())
        };
        let first = use_it().await;
        assert_eq!(uses().await, (first, None));
        hub.0.activity.flush_activity(false).await;
        assert_eq!(uses().await, (first, first));
        stage.clock.advance_seconds(59);
        let second = use_it().await;
        hub.0.activity.flush_activity(false).await;
        assert_eq!(uses().await, (second, first));
        stage.clock.advance_seconds(1);
        hub.0.activity.flush_activity(false).await;
        assert_eq!(uses().await, (second, second));
        // All activity is written at the end.
        stage.clock.advance_seconds(1);
        let last = use_it().await;
        hub.0.activity.flush_activity(false).await;
        assert_eq!(uses().await, (last, second));
        hub.0.activity.flush_activity(true).await;
        assert_eq!(uses().await, (last, last));
        stage.over().await;
    }

    #[tokio::test]
    async fn device_with_unwritten_activity_is_not_missing() {
        let stage = Stage::set().await;
        let device = stage.device(WATCHED).await;
        let silent = stage.another(&format!(r#"{{"name":"e","projectUuid":"{}"}}"#, device.project)).await;
        stage.refuses("UPDATE", "device_activity").await;
        stage.clock.advance_seconds(240);
        stage.posts(&device, "1").await;
        stage.hub.0.activity.flush_activity(false).await;
        // The device has a new entry from now on.
        stage.hub.0.caches.device_changed(device.id);
        stage.clock.advance_seconds(60);
        stage.hub.employ_all();
        until("the silent one is missing", async || stage.shows(&silent).await.status == Status::Missing).await;
        assert_ne!(stage.shows(&device).await.status, Status::Missing);
        // The device sends nothing more: five minutes after its event it is missing too.
        stage.clock.advance_seconds(240);
        until("it is missing", async || stage.shows(&device).await.status == Status::Missing).await;
        stage.over().await;
    }
}
