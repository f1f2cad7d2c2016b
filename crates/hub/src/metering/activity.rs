//! When devices, users and keys were last seen: kept in memory, written to the registry now and then, so that
//! an event costs no registry write.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use isobar_model::ids::{ApiKeyId, DeviceId, DeviceKey, DeviceRef, UserId};
use isobar_model::time::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::cache::Caches;
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::supervisor::Shift;

/// How often what was seen is written.
const ACTIVITY_FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Devices written at a time: more would hold the registry's writer from others.
const DEVICES_A_FLUSH: usize = 5_000;

/// What was seen and is not yet written.
pub(crate) struct Activity {
    env: Arc<Env>,
    caches: Arc<Caches>,
    /// Those that have something to say which stands in [`Activity::unwritten`] not yet.
    devices: Mutex<Vec<Arc<DeviceEntry>>>,
    unwritten: Mutex<Unwritten>,
    users: Mutex<HashMap<UserId, Timestamp>>,
    api_keys: Mutex<HashMap<ApiKeyId, Timestamp>>,
}

/// What is gathered of devices until the registry has it: a few dozen bytes of each device that there is, at most.
#[derive(Default)]
struct Unwritten {
    seen: FxHashMap<DeviceKey, (DeviceId, Timestamp)>,
    /// Each of them once, in the order in which they wait.
    waiting: VecDeque<DeviceKey>,
}

/// A device, and when it was seen.
type Seen = (DeviceKey, DeviceId, Timestamp);

impl Unwritten {
    fn add(&mut self, device: DeviceRef, at: Timestamp) {
        match self.seen.entry(device.key) {
            Entry::Occupied(mut seen) => seen.get_mut().1 = at.max(seen.get().1),
            Entry::Vacant(vacant) => {
                vacant.insert((device.id, at));
                self.waiting.push_back(device.key);
            }
        }
    }

    /// The first that wait. They stay.
    fn first(&self, most: usize) -> Vec<Seen> {
        let seen = |key: &DeviceKey| self.seen.get(key).map(|(id, at)| (*key, *id, *at));
        self.waiting.iter().take(most).filter_map(seen).collect()
    }

    /// The first were written: they go, but for those that were seen again meanwhile, which wait anew.
    fn written(&mut self, first: &[Seen]) {
        for (key, _, at) in first {
            self.waiting.pop_front();
            match self.seen.entry(*key) {
                Entry::Occupied(seen) if seen.get().1 == *at => drop(seen.remove()),
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
            api_keys: Mutex::default(),
        }
    }

    /// A device sent an event.
    pub(crate) fn device(&self, entry: &Arc<DeviceEntry>, now: Timestamp) {
        if entry.active.swap(now.millis(), Ordering::Relaxed) == 0 {
            self.devices.lock().push(Arc::clone(entry));
        }
    }

    /// A user made a call.
    pub(crate) fn user(&self, user: UserId, now: Timestamp) {
        self.users.lock().insert(user, now);
    }

    /// An API key was used.
    pub(crate) fn api_key(&self, key: ApiKeyId, now: Timestamp) {
        self.api_keys.lock().insert(key, now);
    }

    /// When the user last made a call, if the registry does not know it yet.
    pub(crate) fn of_user(&self, user: UserId) -> Option<Timestamp> {
        self.users.lock().get(&user).copied()
    }

    /// When the API key was last used, if the registry does not know it yet.
    pub(crate) fn of_api_key(&self, key: ApiKeyId) -> Option<Timestamp> {
        self.api_keys.lock().get(&key).copied()
    }

    /// When the device was last active, if the registry does not know it yet; `entry` is what is cached of it.
    pub(crate) fn newest(&self, key: DeviceKey, entry: Option<&DeviceEntry>) -> Option<Timestamp> {
        // First the entry: what leaves it is gathered before anybody can look for it there.
        let millis = entry.map_or(0, |entry| entry.active.load(Ordering::Acquire));
        let told = (millis > 0).then(|| Timestamp::from_millis(millis));
        told.max(self.unwritten.lock().seen.get(&key).map(|(_, at)| *at))
    }

    /// When the device was last active, whatever entry it had then; none: the registry knows it already.
    pub(crate) fn of_device(&self, key: DeviceKey) -> Option<Timestamp> {
        self.gather(usize::MAX).seen.get(&key).map(|(_, at)| *at)
    }

    /// Gathers what entries have to say, of so many.
    fn gather(&self, most: usize) -> MutexGuard<'_, Unwritten> {
        let mut unwritten = self.unwritten.lock();
        let told: Vec<_> = {
            let mut devices = self.devices.lock();
            let count = devices.len().min(most);
            devices.drain(..count).collect()
        };
        for entry in told {
            let millis = entry.active.swap(0, Ordering::AcqRel);
            unwritten.add(entry.device, Timestamp::from_millis(millis));
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
            let stopping = shift.pause(ACTIVITY_FLUSH_EVERY).await;
            self.flush_activity(if stopping { usize::MAX } else { DEVICES_A_FLUSH }).await;
            shift.well();
            if stopping {
                return;
            }
        }
    }

    /// Writes what was seen of so many devices, and of all users and keys. What cannot be written stays until it can:
    /// whether a device is silent, and what is shown of it, goes by memory as long as the registry does not know.
    pub(crate) async fn flush_activity(&self, most: usize) {
        let registry = &self.env.registry;
        let mut failed = None;
        let seen = self.gather(most).first(most);
        if !seen.is_empty() {
            let moments: Vec<_> = seen.iter().map(|(key, _, at)| (*key, *at)).collect();
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
        let keys: Vec<_> = self.api_keys.lock().iter().map(|(key, at)| (*key, *at)).collect();
        match registry.api_keys_touch(&keys).await {
            Ok(()) => forget(&self.api_keys, &keys),
            Err(error) => failed = Some(error),
        }
        if let Some(error) = failed {
            tracing::warn!(%error, "last activity could not be written and is tried again");
        }
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::status::Status;

    use super::*;
    use crate::stage::{Stage, until};

    const WATCHED: &str = r#"{
        "reading": {"type": "deviceEvent"},
        "state": {"type": "deviceMeta", "properties": {"missingAfterMinutes": 5}}
    }"#;

    #[test]
    fn what_waits_is_kept_in_its_order_until_it_is_written() {
        let (mut unwritten, at) = (Unwritten::default(), Timestamp::from_millis);
        let device = |key: u64| DeviceRef { id: DeviceId(uuid::Uuid::from_u128(key.into())), key: DeviceKey(key) };
        (1..=4).for_each(|key| unwritten.add(device(key), at(10)));
        unwritten.add(device(1), at(5));
        let keys = |unwritten: &Unwritten| unwritten.first(9).iter().map(|(key, ..)| key.0).collect::<Vec<_>>();
        let first = unwritten.first(2);
        assert_eq!(first.iter().map(|(key, _, at)| (key.0, at.millis())).collect::<Vec<_>>(), [(1, 10), (2, 10)]);
        unwritten.not_written(2);
        assert_eq!(keys(&unwritten), [3, 4, 1, 2]);
        let first = unwritten.first(3);
        unwritten.add(device(4), at(20));
        unwritten.written(&first);
        assert_eq!(keys(&unwritten), [2, 4]);
        assert_eq!(unwritten.seen.len(), 2);
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
            stage.hub.0.activity.flush_activity(DEVICES_A_FLUSH).await;
            // By whatever entry: another one knows nothing of what ran before it.
            stage.hub.0.caches.device_changed(device.id);
            assert_eq!(stage.shows(&device).await.last_active, seen);
        }
        let permit = isobar_model::access::system(stage.entry(&device).await.device, "a test looks").reading();
        let written = async || stage.hub.0.env.registry.device_fetch(&permit).await.unwrap().unwrap().last_active;
        assert_eq!(written().await, None);
        stage.takes_again().await;
        stage.hub.0.activity.flush_activity(DEVICES_A_FLUSH).await;
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
        stage.hub.0.activity.flush_activity(DEVICES_A_FLUSH).await;
        assert_eq!(stage.hub.0.activity.of_user(user), Some(now));
        stage.takes_again().await;
        stage.hub.0.activity.flush_activity(DEVICES_A_FLUSH).await;
        assert_eq!(stage.hub.0.activity.of_user(user), None);
        assert_eq!(stage.hub.user_current(&stage.admin).await.unwrap().last_active, Some(now));
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
        stage.hub.0.activity.flush_activity(DEVICES_A_FLUSH).await;
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
