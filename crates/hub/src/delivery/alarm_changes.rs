//! Alarms as they change, for streams. Nothing is kept for those who do not follow: alarms are listed.

use std::sync::Arc;

use isobar_model::access::Lineage;
use isobar_model::alarm::Alarm;
use tokio::sync::broadcast;

/// Changes of alarms that a stream may leave unread before it ends.
const ALARM_CHANGES_MAX: usize = 2_048;

/// An alarm as it is in the registry, and where its device belongs.
#[derive(Debug)]
pub(crate) struct ChangedAlarm {
    pub alarm: Alarm,
    pub lineage: Lineage,
}

/// Tells streams which alarms have changed.
pub(crate) struct AlarmChanges(broadcast::Sender<Arc<ChangedAlarm>>);

impl AlarmChanges {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(ALARM_CHANGES_MAX))
    }

    /// Returns true if somebody follows: only then is an alarm worth reading that is to be told.
    pub(crate) fn is_followed(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Tells of an alarm that has changed, if somebody follows.
    pub(crate) fn tell(&self, changed: impl FnOnce() -> ChangedAlarm) {
        if self.is_followed() {
            // The last follower may have gone by now.
            let _ = self.0.send(Arc::new(changed()));
        }
    }

    /// Follows what changes from here on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<ChangedAlarm>> {
        self.0.subscribe()
    }
}
