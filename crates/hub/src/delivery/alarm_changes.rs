//! Broadcasts changed alarms to streams. They are not stored for absent followers: a new follower lists the alarms.

use std::sync::Arc;

use isobar_model::access::Lineage;
use isobar_model::alarm::Alarm;
use tokio::sync::broadcast;

/// Changes of alarms that a stream may leave unread before it ends.
const ALARM_CHANGES_MAX: usize = 2_048;

/// An alarm as it is in the registry, and the lineage of its device.
#[derive(Debug)]
pub(crate) struct ChangedAlarm {
    pub alarm: Alarm,
    pub lineage: Lineage,
}

/// Broadcasts changed alarms to the streams that follow them.
pub(crate) struct AlarmChanges(broadcast::Sender<Arc<ChangedAlarm>>);

impl AlarmChanges {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(ALARM_CHANGES_MAX))
    }

    /// Returns true if a stream follows: only then is a changed alarm worth reading.
    pub(crate) fn is_followed(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Broadcasts a changed alarm, if a stream follows.
    pub(crate) fn tell(&self, changed: impl FnOnce() -> ChangedAlarm) {
        if self.is_followed() {
            // The last follower may have left by now.
            let _ = self.0.send(Arc::new(changed()));
        }
    }

    /// Follows the changes from now on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<ChangedAlarm>> {
        self.0.subscribe()
    }
}
