//! When devices, users and keys were last seen: kept in memory, written to the registry now and then, so that
//! an event costs no registry write.

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

/// How often what was seen is written.
const ACTIVITY_FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Devices written at a time: more would hold the registry's writer from others, who have it for as long in between. Where
/// fewer wait, they wait for the next time.
const DEVICES_A_FLUSH: usize = 5_000;

/// What was seen and is not yet written.
pub(crate) struct Activity {
    env: Arc<Env>,
    caches: Arc<Caches>,
    /// Those that have something to say which stands in [`Activity::unwritten`] not yet, by tenant.
    devices: Mutex<FxHashMap<OrganizationId, Vec<Arc<DeviceEntry>>>>,
    unwritten: Mutex<Unwritten>,
    users: Mutex<HashMap<UserId, Timestamp>>,
    api_keys: KeyUses,
}

/// What is gathered of devices until the registry has it: a few dozen bytes of each device that there is, at most.
#[derive(Default)]
struct Unwritten {
    seen: FxHashMap<DeviceKey, SeenDevice>,
    /// Those of each tenant that has any.
    of_tenants: FxHashMap<OrganizationId, FxHashSet<DeviceKey>>,
    /// Each of them once, in the order in which they wait.
    waiting: VecDeque<DeviceKey>,
}

/// What is known of a device until it is written.
struct SeenDevice {
    id: DeviceId,
    /// Whose it was then.
    tenant: OrganizationId,
    at: Timestamp,
}

/// A device, and when it was seen.
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

    /// All of a tenant.
    fn of_tenant(&self, tenant: OrganizationId) -> Vec<(DeviceKey, Timestamp)> {
        let devices = self.of_tenants.get(&tenant).into_iter().flatten();
        devices.filter_map(|key| Some((*key, self.seen.get(key)?.at))).collect()
    }

    /// The first that wait. They stay.
    fn first(&self, most: usize) -> Vec<Seen> {
        let seen = |key: &DeviceKey| self.seen.get(key).map(|seen| (*key, seen.id, seen.at));
        self.waiting.iter().take(most).filter_map(seen).collect()
    }

    /// The first were written: they go, but for those that were seen again meanwhile, which wait anew.
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

    /// So many of the first were not: the others have their turn before them.
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

    /// A device sent an event.
    pub(crate) fn device(&self, entry: &Arc<DeviceEntry>, now: Timestamp) {
        if entry.active.swap(now.millis(), Ordering::Relaxed) == 0 {
            self.devices.lock().entry(entry.lineage.top()).or_default().push(Arc::clone(entry));
        }
    }

    /// A user made a call.
    pub(crate) fn user(&self, user: UserId, now: Timestamp) {
        self.users.lock().insert(user, now);
    }

    /// An API key was used.
    pub(crate) fn api_key(&self, key: ApiKeyId, now: Timestamp) {
        self.api_keys.note(key, now);
    }

    /// When the user last made a call, if the registry does not know it yet.
    pub(crate) fn of_user(&self, user: UserId) -> Option<Timestamp> {
        self.users.lock().get(&user).copied()
    }

    /// When the API key was last used, if the registry does not know it yet.
    pub(crate) fn of_api_key(&self, key: ApiKeyId) -> Option<Timestamp> {
        self.api_keys.last(key)
    }

    /// When the device was last active, if the registry does not know it yet; `entry` is what is cached of it.
    pub(crate) fn newest(&self, key: DeviceKey, entry: Option<&DeviceEntry>) -> Option<Timestamp> {
        // First the entry: what leaves it is gathered before anybody can look for it there.
        let millis = entry.map_or(0, |entry| entry.active.load(Ordering::Acquire));
        let told = (millis > 0).then(|| Timestamp::from_millis(millis));
        told.max(self.unwritten.lock().seen.get(&key).map(|seen| seen.at))
    }

    /// When the device was last active, whatever entry it had then; none: the registry knows it already.
    pub(crate) fn of_device(&self, key: DeviceKey) -> Option<Timestamp> {
        self.gather_all().seen.get(&key).map(|seen| seen.at)
    }

    /// When devices of a tenant were last active, of all of which the registry does not know it yet. What others have to say is
    /// not touched. One that came from another tenant since it was heard is not among them; it is written soon.
    pub(crate) fn of_tenant(&self, tenant: OrganizationId) -> Vec<(DeviceKey, Timestamp)> {
        let gathered = self.gather(|devices| devices.remove(&tenant).unwrap_or_default());
        gathered.of_tenant(tenant)
    }

    /// Gathers what so many entries have to say, whoever's they are.
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

    /// Gathers what all entries have to say.
    fn gather_all(&self) -> MutexGuard<'_, Unwritten> {
        self.gather(|devices| std::mem::take(devices).into_values().flatten().collect())
    }

    /// Gathers what entries have to say: those that are taken here from all that have.
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

/// Forgets what was written, unless it was seen again meanwhile.
fn forget<K: Copy + Eq + std::hash::Hash>(seen: &Mutex<HashMap<K, Timestamp>>, written: &[(K, Timestamp)]) {
    let mut seen = seen.lock();
    for (key, at) in written {
        if seen.get(key) == Some(at) {
            seen.remove(key);
        }
    }
}

impl Activity {
    /// Writes what was seen, every few seconds and once more at the end.
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

    /// Writes what was seen of some devices, of all users, and of the keys that were not written in the last minute; at the end
    /// all of it. What cannot be written stays until it can: whether a device is silent, and what is shown of it, goes by
    /// memory as long as the registry does not know. Whether it was taken, and more waits than is worth the next time.
    pub(crate) async fn flush_activity(&self, is_end: bool) -> bool {
        let registry = self.env.registry();
        let most = if is_end { usize::MAX } else { DEVICES_A_FLUSH };
        let (mut failed, now) = (None, self.env.now());
        let seen = self.gather_some(most).first(most);
        if !seen.is_empty() {
            // What a clock that was ahead of now has noted was by now.
            let moments: Vec<_> = seen.iter().map(|(key, _, at)| (*key, (*at).min(now))).collect();
            let written = registry.devices_touch(&moments).await;
            // Even if it failed: it may have been done.
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
    fn what_waits_is_kept_in_its_order_until_it_is_written() {
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
    fn what_waits_is_told_by_tenant_and_goes_with_a_device() {
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
    async fn a_summary_takes_what_its_own_tenant_has_to_say_and_nothing_of_others() {
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
    async fn a_flush_says_whether_many_wait_still() {
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
    async fn what_could_not_be_written_is_kept_shown_and_written_later() {
        let stage = Stage::set().await;
        let device = stage.device(WATCHED).await;
        stage.clock.advance_seconds(60);
        stage.posts(&device, "1").await;
        let seen = Some(stage.clock.now());
        stage.refuses("UPDATE", "device_activity").await;
        for _ in 0..2 {
            stage.hub.0.activity.flush_activity(false).await;
            // By whatever entry: another one knows nothing of what ran before it.
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
    async fn users_whose_activity_could_not_be_written_stay_seen() {
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

    #[tokio::test]
    async fn the_use_of_a_key_is_shown_at_once_and_written_once_a_minute() {
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
        // At the end nothing is kept back.
        stage.clock.advance_seconds(1);
        let last = use_it().await;
        hub.0.activity.flush_activity(false).await;
        assert_eq!(uses().await, (last, second));
        hub.0.activity.flush_activity(true).await;
        assert_eq!(uses().await, (last, last));
        stage.over().await;
    }

    #[tokio::test]
    async fn a_device_that_talks_is_not_missing_while_nothing_can_be_written_of_it() {
        let stage = Stage::set().await;
        let device = stage.device(WATCHED).await;
        let silent = stage.another(&format!(r#"{{"name":"e","projectUuid":"{}"}}"#, device.project)).await;
        stage.refuses("UPDATE", "device_activity").await;
        stage.clock.advance_seconds(240);
        stage.posts(&device, "1").await;
        stage.hub.0.activity.flush_activity(false).await;
        // From here on there is another entry of it.
        stage.hub.0.caches.device_changed(device.id);
        stage.clock.advance_seconds(60);
        stage.hub.employ_all();
        until("the silent one is missing", async || stage.shows(&silent).await.status == Status::Missing).await;
        assert_ne!(stage.shows(&device).await.status, Status::Missing);
        // It is no longer heard: five minutes after its event it is missing too.
        stage.clock.advance_seconds(240);
        until("it is missing", async || stage.shows(&device).await.status == Status::Missing).await;
        stage.over().await;
    }
}
