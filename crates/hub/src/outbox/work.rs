//! Defines the work that a run leaves for the registry, and its form as an entry of the outbox.

use bytes::Bytes;
use isobar_model::alarm::{Alarm, AlarmBegin, AlarmChange, AlarmFinding, AlarmSeverity};
use isobar_model::check::Patch;
use isobar_model::device::Location;
use isobar_model::ids::{AlarmId, DeviceId, EventId, OrganizationId, SettingId, UserId};
use isobar_model::json::RawJson;
use isobar_model::role::Role;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::registry::{AlarmFindings, AlarmWrite, DeviceReport};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// The work of one run for the registry. JSON values are stored as text.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RegistryWork {
    pub device: Option<DeviceId>,
    /// Time of the run, in milliseconds, so that a repeated write has the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
    /// The status that a missing device gets back when it reports again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_before: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarm_changes: Vec<AlarmChangeWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallWork>,
}

/// A setting that was set, or reset if there is no value. The run has chosen the record's identifier, so that a
/// repeated write makes no second record.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettingWork {
    pub id: SettingId,
    pub name: String,
    pub value: Option<String>,
    /// The user who changed it, or `None` for the device itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
}

/// The state of an alarm. JSON values are stored as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AlarmWork {
    element: String,
    key: String,
    episode: i64,
    /// Title, severity and time of its beginning, if it was raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begin: Option<(String, u8, i64)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unlisted: bool,
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cleared: Option<i64>,
    at: i64,
}

/// A user's change of an alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AlarmChangeWork {
    pub id: AlarmId,
    pub element: String,
    pub key: String,
    pub by: UserId,
    /// Identifies the change, so that a repeated write is detected.
    pub event: EventId,
    pub acknowledged: Option<bool>,
    pub clears: bool,
    pub comment: Option<String>,
    /// True if the change sets the assignee, and the new one, or `None`.
    pub assigns: bool,
    pub assignee: Option<UserId>,
}

/// A notice that a run requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NoticeWork {
    pub event: EventId,
    pub element: String,
    pub message: String,
    pub minimum_role: Role,
    pub organization: OrganizationId,
    /// The key of the element's alarm that the notice is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
}

/// An HTTP call that a run requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallWork {
    pub event: EventId,
    pub element: String,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    /// The span that caused it, in the format of `traceparent`, if traces are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The changes that runs made to a device, with their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeviceFindings {
    pub report: DeviceReport,
    pub alarms: AlarmFindings,
    pub alarm_changes: Vec<AlarmChangeWork>,
    pub at: Timestamp,
}

/// A delivery, and its place among those of its run.
#[derive(Debug)]
pub(crate) enum OutgoingWork {
    Notice(NoticeWork, usize),
    Call(CallWork, usize),
}

impl RegistryWork {
    /// Makes empty work for this device.
    pub(crate) fn of(device: DeviceId, now: Timestamp) -> Self {
        Self { device: Some(device), at: Some(now.millis()), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.reports() && self.settings.is_empty() && self.notices.is_empty() && self.calls.is_empty()
    }

    fn reports(&self) -> bool {
        let is_quiet = self.status.is_none() && self.status_before.is_none() && self.location.is_none();
        !(is_quiet && self.meta.is_empty() && self.alarms.is_empty() && self.alarm_changes.is_empty())
    }

    /// Takes out the changes to the device itself.
    pub(crate) fn take_found(&mut self, now: Timestamp) -> Option<DeviceFindings> {
        if !self.reports() {
            return None;
        }
        let status = |number: Option<u8>| number.and_then(|number| Status::numbered(number.into()));
        let labels = std::mem::take(&mut self.meta).into_iter();
        let location = self.location.take();
        // A tag may be set twice: the last value counts.
        let report = DeviceReport::default().then(DeviceReport {
            status: status(self.status.take()),
            status_before: status(self.status_before.take()),
            meta: labels.map(|(tag, value)| (tag, RawJson::trusted(value.into()))).collect(),
            location: location.and_then(|(latitude, longitude)| Location::new(latitude, longitude)),
        });
        let alarms = std::mem::take(&mut self.alarms).into_iter().map(AlarmFinding::from).collect();
        let alarm_changes = std::mem::take(&mut self.alarm_changes);
        Some(DeviceFindings { report, alarms, alarm_changes, at: self.at.map_or(now, Timestamp::from_millis) })
    }

    /// Takes out the deliveries.
    pub(crate) fn take_outgoing(&mut self) -> Vec<OutgoingWork> {
        let notices = std::mem::take(&mut self.notices).into_iter().zip(0..);
        let calls = std::mem::take(&mut self.calls).into_iter().zip(0..);
        let notices = notices.map(|(notice, ordinal)| OutgoingWork::Notice(notice, ordinal));
        notices.chain(calls.map(|(call, ordinal)| OutgoingWork::Call(call, ordinal))).collect()
    }

    /// Returns the bytes for the store.
    pub(crate) fn bytes(&self) -> Bytes {
        // A struct of texts and numbers always serializes.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

impl SettingWork {
    /// Returns its approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.value.as_ref().map_or(0, String::len)
    }
}

impl From<&AlarmFinding> for AlarmWork {
    fn from(finding: &AlarmFinding) -> Self {
        let begin = finding.begin.as_ref();
        Self {
            element: finding.element.clone(),
            key: finding.key.clone(),
            episode: finding.episode,
            begin: begin.map(|begin| (begin.title.clone(), begin.severity.number(), begin.at.millis())),
            unlisted: finding.is_unlisted,
            count: finding.count,
            value: finding.value.as_ref().map(|value| value.text().to_owned()),
            cleared: finding.cleared_at.map(Timestamp::millis),
            at: finding.at.millis(),
        }
    }
}

impl AlarmChangeWork {
    /// Makes the change of an alarm by a user, identified by `event`.
    pub(crate) fn of(alarm: &Alarm, change: AlarmChange, by: UserId, event: EventId) -> Self {
        Self {
            id: alarm.id,
            element: alarm.element.clone(),
            key: alarm.key.clone(),
            by,
            event,
            acknowledged: change.acknowledged,
            clears: change.clears,
            comment: change.comment,
            assigns: change.assignee != Patch::Keep,
            assignee: change.assignee.over(None),
        }
    }

    /// Returns the change in the registry's form.
    pub(crate) fn write(&self) -> AlarmWrite {
        let assignee = match (self.assigns, self.assignee) {
            (false, _) => Patch::Keep,
            (true, None) => Patch::Clear,
            (true, Some(assignee)) => Patch::Set(assignee),
        };
        let (acknowledged, clears, comment) = (self.acknowledged, self.clears, self.comment.clone());
        let change = AlarmChange { acknowledged, clears, comment, assignee };
        AlarmWrite { id: self.id, change, event: self.event }
    }
}

impl From<AlarmWork> for AlarmFinding {
    fn from(work: AlarmWork) -> Self {
        let begin = work.begin.map(|(title, severity, at)| AlarmBegin {
            title,
            severity: AlarmSeverity::numbered(severity.into()).unwrap_or(AlarmSeverity::Warning),
            at: Timestamp::from_millis(at),
        });
        Self {
            element: work.element,
            key: work.key,
            episode: work.episode,
            begin,
            is_unlisted: work.unlisted,
            count: work.count,
            value: work.value.map(|text| RawJson::trusted(text.into())),
            cleared_at: work.cleared.map(Timestamp::from_millis),
            at: Timestamp::from_millis(work.at),
        }
    }
}

impl DeviceFindings {
    /// Returns true if there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.report == DeviceReport::default() && self.alarms.is_empty() && self.alarm_changes.is_empty()
    }

    /// Merges newer changes into these.
    pub(crate) fn then(&self, newer: Self) -> Self {
        let alarms = self.alarms.clone().then(newer.alarms);
        let mut alarm_changes = self.alarm_changes.clone();
        alarm_changes.extend(newer.alarm_changes);
        Self { report: self.report.clone().then(newer.report), alarms, alarm_changes, at: newer.at.max(self.at) }
    }

    /// Returns the bytes for the store: those of a [`RegistryWork`] without other work.
    pub(crate) fn bytes(&self, device: DeviceId) -> Bytes {
        let DeviceReport { status, status_before, meta, location } = &self.report;
        let row = FindingsRow {
            device,
            at: self.at.millis(),
            status: status.map(|status| status.number()),
            status_before: status_before.map(|status| status.number()),
            meta,
            location: location.map(|place| (place.latitude, place.longitude)),
            alarms: self.alarms.iter().map(AlarmWork::from).collect(),
            alarm_changes: &self.alarm_changes,
        };
        serde_json::to_vec(&row).unwrap_or_default().into()
    }
}

/// Serializes like a [`RegistryWork`] with only the changes to the device, without copying them.
#[derive(Serialize)]
struct FindingsRow<'a> {
    device: DeviceId,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_before: Option<u8>,
    #[serde(serialize_with = "labels", skip_serializing_if = "<[_]>::is_empty")]
    meta: &'a [(String, RawJson)],
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<AlarmWork>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    alarm_changes: &'a [AlarmChangeWork],
}

fn labels<S: Serializer>(labels: &[(String, RawJson)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(labels.iter().map(|(tag, value)| (tag, value.text())))
}

impl OutgoingWork {
    /// Returns its approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        let texts = match self {
            Self::Notice(notice, _) => notice.element.len() + notice.message.len(),
            Self::Call(call, _) => {
                let headers: usize = call.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                call.element.len() + call.url.len() + headers + call.body.as_ref().map_or(0, String::len)
            }
        };
        size_of::<Self>() + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_written_as_work_and_read_back() {
        let device = DeviceId(uuid::Uuid::from_u128(7));
        let text = format!(
            r#"{{"device":"{device}","at":5,"status":4,"status_before":2,"meta":[["a","1.50"],["b","\"x\""]],"location":[46.9,-7.4]}}"#
        );
        let mut work: RegistryWork = serde_json::from_str(&text).unwrap();
        assert_eq!(work.bytes(), text.as_bytes());
        let found = work.take_found(Timestamp::from_millis(9)).unwrap();
        assert_eq!(found.bytes(device), text.as_bytes());
        assert!(work.is_empty() && work.take_found(Timestamp::from_millis(9)).is_none());
        let quiet = RegistryWork {
            meta: vec![("a".to_owned(), "2".to_owned())],
            ..RegistryWork::of(device, Timestamp::from_millis(8))
        };
        let text = format!(r#"{{"device":"{device}","at":8,"meta":[["a","2"]]}}"#);
        assert_eq!(quiet.bytes(), text.as_bytes());
        let mut quiet = quiet;
        let both = found.then(quiet.take_found(Timestamp::from_millis(9)).unwrap());
        assert_eq!(both.at, Timestamp::from_millis(8));
        assert_eq!(
            both.report.meta.iter().map(|(tag, value)| (&**tag, value.text())).collect::<Vec<_>>(),
            [("a", "2"), ("b", "\"x\"")]
        );
    }
}
