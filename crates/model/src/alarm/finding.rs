//! Alarms as the design of a device finds them, and as the list shows them.

use std::collections::{BTreeMap, BTreeSet};

use super::{AlarmSeverity, LIVING_ALARMS_MAX};
use crate::json::RawJson;
use crate::time::Timestamp;

/// The state of one alarm of a device, as its design reported it. It has everything that the list shows, so that the
/// list adds an alarm that it lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmFinding {
    /// The element.
    pub element: String,
    /// The key.
    pub key: String,
    /// Number of the active period: larger than those before. [`super::NO_EPISODE`] for an alarm that is not active in the
    /// device's state, but in the list.
    pub episode: i64,
    /// The start of the active period; `None` if it was not raised.
    pub begin: Option<AlarmBegin>,
    /// True if the list did not show the alarm as active before these changes.
    pub is_unlisted: bool,
    /// Number of times it was raised in this period.
    pub count: u64,
    /// The newest value it was raised with; `None` if it was not raised.
    pub value: Option<RawJson>,
    /// Time at which it was cleared; `None` while it is active.
    pub cleared_at: Option<Timestamp>,
    /// Time of the newest of these changes.
    pub at: Timestamp,
}

/// The start of an alarm's active period.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmBegin {
    /// The title shown to people.
    pub title: String,
    /// The severity.
    pub severity: AlarmSeverity,
    /// Time at which it was raised.
    pub at: Timestamp,
}

impl AlarmFinding {
    /// Merges a newer finding of the same period into this one.
    pub fn then(&mut self, newer: Self) {
        self.begin = self.begin.take().or(newer.begin);
        self.count = self.count.max(newer.count);
        self.value = newer.value.or(self.value.take());
        self.cleared_at = newer.cleared_at.or(self.cleared_at);
        self.at = self.at.max(newer.at);
    }

    /// Returns true if both are of the same period.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.episode, &self.element, &self.key) == (other.episode, &other.element, &other.key)
    }

    /// Returns true if the list neither showed the alarm as active before these changes nor does so after them.
    pub fn is_past(&self) -> bool {
        self.is_unlisted && self.cleared_at.is_some()
    }
}

/// The alarms of a device that the list shows as active, by element and key. The list is a projection of the device's
/// own state, and may differ from it: after a restore, or where it has no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedAlarms {
    keys: BTreeMap<String, BTreeSet<String>>,
    count: usize,
    bytes: usize,
}

impl ListedAlarms {
    /// Returns true if the list shows this alarm as active.
    pub fn contains(&self, element: &str, key: &str) -> bool {
        self.keys.get(element).is_some_and(|keys| keys.contains(key))
    }

    /// Returns true if the list has no room for another active alarm of the device.
    pub fn is_full(&self) -> bool {
        self.count >= LIVING_ALARMS_MAX
    }

    /// Returns the number of alarms.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the size of elements and keys in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the list shows the alarm of a finding as the finding has it.
    pub fn shows(&self, finding: &AlarmFinding) -> bool {
        self.contains(&finding.element, &finding.key) == finding.cleared_at.is_none()
    }

    /// Adds or removes the alarm of a finding.
    pub fn apply(&mut self, finding: &AlarmFinding) {
        match finding.cleared_at {
            None => self.insert(&finding.element, &finding.key),
            Some(_) => self.remove(&finding.element, &finding.key),
        }
    }

    /// Adds an alarm.
    pub fn insert(&mut self, element: &str, key: &str) {
        if self.keys.entry(element.to_owned()).or_default().insert(key.to_owned()) {
            self.count += 1;
            self.bytes += element.len() + key.len();
        }
    }

    /// Removes an alarm.
    pub fn remove(&mut self, element: &str, key: &str) {
        let Some(keys) = self.keys.get_mut(element).filter(|keys| keys.contains(key)) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(element);
        }
        self.count -= 1;
        self.bytes -= element.len() + key.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_alarms_are_counted_once_and_removed() {
        let mut listed = ListedAlarms::default();
        for (element, key) in [("warm", ""), ("warm", "a"), ("warm", "a"), ("cold", "a")] {
            listed.insert(element, key);
        }
        assert!(listed.contains("warm", "") && !listed.contains("cold", "") && !listed.contains("hot", "a"));
        assert_eq!((listed.count(), listed.bytes()), (3, 14));
        for (element, key) in [("warm", "a"), ("warm", "a"), ("hot", ""), ("cold", "a"), ("warm", "")] {
            listed.remove(element, key);
        }
        assert_eq!(listed, ListedAlarms::default());
    }
}
