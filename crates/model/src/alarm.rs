//! Alarms that designs of devices raise and people handle (contract: Beyond the specification).

mod finding;

use crate::check::{Input, Patch};
use crate::error::Result;
use crate::ids::{AlarmId, DeviceId, OrganizationId, ProjectId, UserId};
use crate::json::{Json, RawJson};
use crate::time::Timestamp;

pub use self::finding::{AlarmBegin, AlarmFinding, ListedAlarms};

/// Longest key of an alarm, in bytes.
pub const ALARM_KEY_BYTES_MAX: usize = 128;
/// Largest value of an alarm, in bytes of JSON.
pub const ALARM_VALUE_BYTES_MAX: usize = 4 << 10;
/// Largest value of an entry of an alarm's history, in bytes of JSON.
pub const ENTRY_VALUE_BYTES_MAX: usize = 256;
/// Longest comment, in characters.
pub const ALARM_COMMENT_MAX: usize = 1_000;
/// Most entries of an alarm's history.
pub const ALARM_HISTORY_MAX: usize = 100;
/// Most living alarms of one device.
pub const LIVING_ALARMS_MAX: usize = 1_000;
/// Episode of a finding about an alarm that the device's state does not have.
pub const NO_EPISODE: i64 = 0;
/// Most past alarms of one device.
pub const PAST_ALARMS_MAX: usize = 1_000;

/// The severity of an alarm, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmSeverity {
    /// For information.
    Info,
    /// Needs attention.
    Warning,
    /// Needs attention now.
    Critical,
}

impl AlarmSeverity {
    /// Every severity, the lowest first.
    pub const ALL: [AlarmSeverity; 3] = [AlarmSeverity::Info, AlarmSeverity::Warning, AlarmSeverity::Critical];

    /// Returns its position in the order.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            AlarmSeverity::Info => "info",
            AlarmSeverity::Warning => "warning",
            AlarmSeverity::Critical => "critical",
        }
    }

    /// Returns the severity at that position.
    pub fn numbered(number: i64) -> Option<AlarmSeverity> {
        usize::try_from(number).ok().and_then(|index| AlarmSeverity::ALL.get(index).copied())
    }

    /// Returns the severity of that name.
    pub fn named(name: &str) -> Option<AlarmSeverity> {
        AlarmSeverity::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// The state of an alarm's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmState {
    /// The condition holds.
    Active,
    /// The condition is over.
    Cleared,
}

impl AlarmState {
    /// Both states, the more urgent first.
    pub const ALL: [AlarmState; 2] = [AlarmState::Active, AlarmState::Cleared];

    /// Returns its position in the order.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            AlarmState::Active => "active",
            AlarmState::Cleared => "cleared",
        }
    }

    /// Returns the state at that position.
    pub fn numbered(number: i64) -> Option<AlarmState> {
        usize::try_from(number).ok().and_then(|index| AlarmState::ALL.get(index).copied())
    }

    /// Returns the state of that name.
    pub fn named(name: &str) -> Option<AlarmState> {
        AlarmState::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// An alarm. It lives until it is both cleared and acknowledged; a device has one living alarm per element and key.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Its identifier.
    pub id: AlarmId,
    /// The organization of its device.
    pub organization: OrganizationId,
    /// The project of its device.
    pub project: ProjectId,
    /// The device.
    pub device: DeviceId,
    /// The device's name.
    pub device_name: String,
    /// The element of the design that raised it.
    pub element: String,
    /// Distinguishes alarms of one element; at most [`ALARM_KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// The title shown to people.
    pub title: String,
    /// The severity.
    pub severity: AlarmSeverity,
    /// The state of its condition.
    pub state: AlarmState,
    /// True if somebody has acknowledged it.
    pub acknowledged: bool,
    /// Start of the newest active period.
    pub raised_at: Timestamp,
    /// Time at which it was cleared; `None` while it is active.
    pub cleared_at: Option<Timestamp>,
    /// Time at which it was acknowledged.
    pub acknowledged_at: Option<Timestamp>,
    /// User who acknowledged it.
    pub acknowledged_by: Option<UserId>,
    /// User who is to handle it.
    pub assignee: Option<UserId>,
    /// Number of times it was raised while it lived.
    pub count: u64,
    /// The newest value it was raised with, of at most [`ALARM_VALUE_BYTES_MAX`] bytes.
    pub value: Option<RawJson>,
    /// Time at which it was raised first.
    pub created_at: Timestamp,
    /// Time of its last change.
    pub updated_at: Timestamp,
}

/// The kind of an entry in an alarm's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAct {
    /// Became active.
    Raised,
    /// Was cleared.
    Cleared,
    /// Was acknowledged.
    Acknowledged,
    /// The acknowledgement was withdrawn.
    Unacknowledged,
    /// Was assigned to a user, or to nobody.
    Assigned,
    /// Was commented on.
    Comment,
}

impl AlarmAct {
    /// Every act.
    pub const ALL: [AlarmAct; 6] = [
        AlarmAct::Raised,
        AlarmAct::Cleared,
        AlarmAct::Acknowledged,
        AlarmAct::Unacknowledged,
        AlarmAct::Assigned,
        AlarmAct::Comment,
    ];

    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            AlarmAct::Raised => "raised",
            AlarmAct::Cleared => "cleared",
            AlarmAct::Acknowledged => "acknowledged",
            AlarmAct::Unacknowledged => "unacknowledged",
            AlarmAct::Assigned => "assigned",
            AlarmAct::Comment => "comment",
        }
    }

    /// Returns the act of that name.
    pub fn named(name: &str) -> Option<AlarmAct> {
        AlarmAct::ALL.into_iter().find(|act| act.name() == name)
    }
}

/// An entry of an alarm's history.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmEntry {
    /// Time of the act.
    pub at: Timestamp,
    /// The act.
    pub what: AlarmAct,
    /// The user; `None` for the device's design.
    pub by: Option<UserId>,
    /// The comment.
    pub comment: Option<String>,
    /// The value it was raised with, of at most [`ENTRY_VALUE_BYTES_MAX`] bytes.
    pub value: Option<RawJson>,
    /// The new assignee.
    pub assignee: Option<UserId>,
}

impl AlarmEntry {
    /// Makes an entry without comment, value and assignee.
    pub fn new(at: Timestamp, what: AlarmAct, by: Option<UserId>) -> Self {
        Self { at, what, by, comment: None, value: None, assignee: None }
    }
}

/// Appends an entry to a history. A full history drops its second entry, so that the first is kept.
pub fn remember(history: &mut Vec<AlarmEntry>, entry: AlarmEntry) {
    history.push(entry);
    if history.len() > ALARM_HISTORY_MAX {
        history.remove(1);
    }
}

/// A person's change of an alarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlarmChange {
    /// The new acknowledgement; `None` keeps it.
    pub acknowledged: Option<bool>,
    /// True if it is cleared by hand.
    pub clears: bool,
    /// The comment.
    pub comment: Option<String>,
    /// The assignee.
    pub assignee: Patch<UserId>,
}

impl AlarmChange {
    /// Applies the change to an alarm and its history. Returns false if it changes nothing.
    pub fn over(&self, alarm: &mut Alarm, history: &mut Vec<AlarmEntry>, by: Option<UserId>, at: Timestamp) -> bool {
        let mut comment = self.comment.clone();
        let mut entries = Vec::new();
        if self.clears && alarm.state == AlarmState::Active {
            (alarm.state, alarm.cleared_at) = (AlarmState::Cleared, Some(at));
            entries.push(AlarmEntry::new(at, AlarmAct::Cleared, by));
        }
        match self.acknowledged {
            Some(true) if !alarm.acknowledged => {
                (alarm.acknowledged, alarm.acknowledged_at, alarm.acknowledged_by) = (true, Some(at), by);
                entries.push(AlarmEntry::new(at, AlarmAct::Acknowledged, by));
            }
            Some(false) if alarm.acknowledged => {
                (alarm.acknowledged, alarm.acknowledged_at, alarm.acknowledged_by) = (false, None, None);
                entries.push(AlarmEntry::new(at, AlarmAct::Unacknowledged, by));
            }
            _ => {}
        }
        let assignee = self.assignee.clone().over(alarm.assignee);
        if assignee != alarm.assignee {
            alarm.assignee = assignee;
            entries.push(AlarmEntry { assignee, ..AlarmEntry::new(at, AlarmAct::Assigned, by) });
        }
        if entries.is_empty() && comment.is_some() {
            entries.push(AlarmEntry::new(at, AlarmAct::Comment, by));
        }
        let changes = !entries.is_empty();
        for mut entry in entries {
            entry.comment = comment.take();
            remember(history, entry);
        }
        if changes {
            alarm.updated_at = at.max(alarm.updated_at);
        }
        changes
    }
}

/// Reads the body that changes an alarm: `{acknowledged, state, comment, assigneeId}`, all optional.
pub fn read_change(body: &Json<'_>) -> Result<AlarmChange> {
    let mut input = Input::body(body)?;
    let acknowledged = input.boolean("acknowledged");
    let state = input.text("state", 1, 16);
    let clears = match state.as_deref().map(AlarmState::named) {
        Some(None) => {
            if matches!(input.member("state"), Some(Json::Text(_))) {
                input.fault("state", "must be \"active\" or \"cleared\"");
            }
            false
        }
        Some(Some(state)) => state == AlarmState::Cleared,
        None => false,
    };
    let comment = input.text_patch("comment", 1, ALARM_COMMENT_MAX).over(None);
    let assignee = input.id_patch("assigneeId");
    input.unless_any(AlarmChange { acknowledged, clears, comment, assignee })
}

/// Counts of the alarms in a part of the tree: active ones by severity, and living ones that are not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlarmSummary {
    /// Active alarms.
    pub active: AlarmCounts,
    /// Alarms that are not acknowledged, active or cleared.
    pub unacknowledged: u64,
}

/// Active alarms by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlarmCounts {
    /// Number of critical alarms.
    pub critical: u64,
    /// Number of warnings.
    pub warning: u64,
    /// Number of alarms for information.
    pub info: u64,
}

impl AlarmCounts {
    /// Returns the count of a severity.
    pub const fn of(&self, severity: AlarmSeverity) -> u64 {
        match severity {
            AlarmSeverity::Critical => self.critical,
            AlarmSeverity::Warning => self.warning,
            AlarmSeverity::Info => self.info,
        }
    }

    /// Adds to the count of a severity.
    pub fn add(&mut self, severity: AlarmSeverity, more: u64) {
        match severity {
            AlarmSeverity::Critical => self.critical += more,
            AlarmSeverity::Warning => self.warning += more,
            AlarmSeverity::Info => self.info += more,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::json::parse;

    fn alarm() -> Alarm {
        let at = Timestamp::from_millis(1_000);
        Alarm {
            id: AlarmId(Uuid::from_u128(1)),
            organization: OrganizationId(Uuid::from_u128(2)),
            project: ProjectId(Uuid::from_u128(3)),
            device: DeviceId(Uuid::from_u128(4)),
            device_name: "fridge".to_owned(),
            element: "warm".to_owned(),
            key: String::new(),
            title: "too warm".to_owned(),
            severity: AlarmSeverity::Warning,
            state: AlarmState::Active,
            acknowledged: false,
            raised_at: at,
            cleared_at: None,
            acknowledged_at: None,
            acknowledged_by: None,
            assignee: None,
            count: 1,
            value: None,
            created_at: at,
            updated_at: at,
        }
    }

    #[test]
    fn alarm_change_is_recorded_once_with_its_comment() {
        let (mut alarm, mut history) = (alarm(), Vec::new());
        let (ana, now) = (UserId(Uuid::from_u128(9)), Timestamp::from_millis(2_000));
        let change = AlarmChange {
            acknowledged: Some(true),
            comment: Some("I go".to_owned()),
            assignee: Patch::Set(ana),
            ..AlarmChange::default()
        };
        assert!(change.over(&mut alarm, &mut history, Some(ana), now));
        assert!(alarm.acknowledged && alarm.acknowledged_by == Some(ana) && alarm.assignee == Some(ana));
        let told: Vec<_> = history.iter().map(|entry| (entry.what, entry.comment.as_deref())).collect();
        assert_eq!(told, [(AlarmAct::Acknowledged, Some("I go")), (AlarmAct::Assigned, None)]);
        let again = AlarmChange { comment: None, ..change };
        assert!(!again.over(&mut alarm, &mut history, Some(ana), now) && history.len() == 2);
    }

    #[test]
    fn full_history_keeps_its_first_entry_and_the_newest() {
        let mut history = Vec::new();
        for at in 0..=ALARM_HISTORY_MAX as i64 {
            remember(&mut history, AlarmEntry::new(Timestamp::from_millis(at), AlarmAct::Raised, None));
        }
        assert_eq!(history.len(), ALARM_HISTORY_MAX);
        let at = |index: usize| history.get(index).map(|entry| entry.at.millis());
        assert_eq!((at(0), at(1), at(ALARM_HISTORY_MAX - 1)), (Some(0), Some(2), Some(ALARM_HISTORY_MAX as i64)));
    }

    #[test]
    fn invalid_change_names_its_faults() {
        let read = |text: &str| read_change(&parse(text).unwrap());
        let change = read(r#"{"acknowledged": true, "state": "cleared", "assigneeId": null, "id": 5}"#).unwrap();
        assert!(change.clears && change.acknowledged == Some(true) && change.assignee == Patch::Clear);
        assert!(!read(r#"{"state": "active"}"#).unwrap().clears);
        for bad in [
            r#"{"state": "gone"}"#,
            r#"{"acknowledged": 1}"#,
            r#"{"assigneeId": "x"}"#,
            r#"{"assigneeId": ""}"#,
            r#"{"comment": ""}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
