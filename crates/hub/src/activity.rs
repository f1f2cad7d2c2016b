//! When devices, users and keys were last seen: kept in memory, written to the registry now and then, so that
//! an event costs no registry write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use isobar_model::ids::{ApiKeyId, UserId};
use isobar_model::time::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::entries::DeviceEntry;
use crate::{Hub, pause};

/// How often what was seen is written.
const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Devices written at a time: more would hold the registry's writer from others.
const DEVICES_A_FLUSH: usize = 5_000;

/// What was seen and is not yet written.
#[derive(Default)]
pub(crate) struct Activity {
    devices: Mutex<Vec<Arc<DeviceEntry>>>,
    users: Mutex<HashMap<UserId, Timestamp>>,
    api_keys: Mutex<HashMap<ApiKeyId, Timestamp>>,
}

impl Activity {
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

    /// Devices to be written. What was seen of them stays until [`Activity::devices_written`]: no read finds less
    /// than the one before it.
    fn take_devices(&self, most: usize) -> Vec<(Arc<DeviceEntry>, i64)> {
        let mut waiting = self.devices.lock();
        let count = waiting.len().min(most);
        let seen = |entry: Arc<DeviceEntry>| {
            let millis = entry.active.load(Ordering::Relaxed);
            (entry, millis)
        };
        waiting.drain(..count).map(seen).collect()
    }

    /// The registry knows them. One that was seen again meanwhile waits for the next time.
    fn devices_written(&self, written: Vec<(Arc<DeviceEntry>, i64)>) {
        let newer = |(entry, millis): &(Arc<DeviceEntry>, i64)| {
            entry.active.compare_exchange(*millis, 0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        };
        let again = written.into_iter().filter(newer).map(|(entry, _)| entry).collect::<Vec<_>>();
        self.devices.lock().extend(again);
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

impl Hub {
    /// When the device was last active, if the registry does not know it yet.
    pub(crate) fn newest_activity(entry: &DeviceEntry) -> Option<Timestamp> {
        let millis = entry.active.load(Ordering::Relaxed);
        (millis > 0).then(|| Timestamp::from_millis(millis))
    }

    /// Writes what was seen, every few seconds and once more at the end.
    pub(crate) async fn run_activity(self, mut stop: watch::Receiver<bool>) {
        loop {
            let stopping = pause(&mut stop, FLUSH_EVERY).await;
            self.flush_activity(if stopping { usize::MAX } else { DEVICES_A_FLUSH }).await;
            if stopping {
                return;
            }
        }
    }

    /// Writes what was seen of so many devices, and of all users and keys.
    pub(crate) async fn flush_activity(&self, devices: usize) {
        let activity = &self.0.activity;
        let seen = activity.take_devices(devices);
        let users: Vec<_> = activity.users.lock().iter().map(|(user, at)| (*user, *at)).collect();
        let keys: Vec<_> = activity.api_keys.lock().iter().map(|(key, at)| (*key, *at)).collect();
        let registry = &self.0.registry;
        // Losing a moment of activity to a registry that is down harms nobody: the next event brings a newer one.
        let written = async {
            if !seen.is_empty() {
                let moment =
                    |(entry, millis): &(Arc<DeviceEntry>, i64)| (entry.device.key, Timestamp::from_millis(*millis));
                let written = registry.devices_touch(&seen.iter().map(moment).collect::<Vec<_>>()).await;
                seen.iter().for_each(|(entry, _)| self.device_row_changed(entry.device.id));
                written?;
            }
            if !users.is_empty() {
                registry.users_touch(&users).await?;
            }
            if !keys.is_empty() {
                registry.api_keys_touch(&keys).await?;
            }
            Ok::<_, isobar_store::error::StoreError>(())
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "last activity could not be written");
        }
        activity.devices_written(seen);
        forget(&activity.users, &users);
        forget(&activity.api_keys, &keys);
    }
}
