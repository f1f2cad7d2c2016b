//! `alarm`: a condition that needs attention until it is cleared and acknowledged (contract: Beyond the specification).

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use isobar_model::alarm::{
    ALARM_KEY_BYTES_MAX, ALARM_VALUE_BYTES_MAX, AlarmBegin, AlarmFinding, AlarmSeverity, LIVING_ALARMS_MAX, NO_EPISODE,
};
use isobar_model::json::RawJson;
use isobar_model::role::Role;
use isobar_model::time::Timestamp;

use super::context::{Passed, Run};
use super::graph::{Argument, Link};
use super::notification::minimum_role;
use super::template::Template;
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::to_raw;
use crate::value::effect::Effect;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Problem, Value};

const RAISE: usize = 0;

pub(crate) const SHAPE: Shape = Shape {
    name: "alarm",
    abilities: &[
        Ability { name: "raise", arguments: &["key", "value"] },
        Ability { name: "clear", arguments: &["key"] },
    ],
    triggers: &["raised", "cleared", "acknowledged"],
    read: Alarm::read,
};

/// Most active alarms of one element and device.
const ACTIVE_MAX: usize = 64;
/// Longest title, in characters; longer ones are cut.
const TITLE_CHARS_MAX: usize = 500;
/// Bytes of the newest episode's number, with which a state begins.
const EPISODE_BYTES: usize = 8;
/// Episode numbers for each millisecond: after the loss of a state, the next number is still larger.
const EPISODES_A_MILLI: i64 = 4_096;

/// Indexes of the triggers.
pub(crate) const RAISED: usize = 0;
pub(crate) const CLEARED: usize = 1;
pub(crate) const ACKNOWLEDGED: usize = 2;

/// An alarm element. Its state is the number of the newest episode and its active alarms.
#[derive(Debug)]
pub(crate) struct Alarm {
    name: Arc<str>,
    title: Template,
    severity: AlarmSeverity,
    minimum_role: Role,
}

/// An active alarm. Format in the state: length of the key (one byte), key, episode, number of raises in that episode
/// (8 bytes each, little endian).
#[derive(Clone, Debug)]
struct ActiveAlarm {
    key: Bytes,
    episode: i64,
    count: u64,
}

impl HeldBytes for Alarm {
    fn held_bytes(&self) -> usize {
        self.title.held_bytes()
    }
}

impl Alarm {
    fn read(properties: &mut Properties<'_>) -> Element {
        let title = Template::required(properties, "title");
        let severities = AlarmSeverity::ALL.map(|severity| (severity.name(), severity));
        let severity = properties.word("severity", &severities, AlarmSeverity::Warning);
        let minimum_role = minimum_role(properties);
        Element::Alarm(Self { name: properties.name.clone(), title, severity, minimum_role })
    }

    pub(crate) fn act<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let key = self.key(link, incoming, run);
        let trigger = match link.ability {
            RAISE => self.raise(&key, link, incoming, run)?.then_some(RAISED),
            _ => self.clear(&key, link.target, run)?.then_some(CLEARED),
        };
        Ok(trigger.map_or_else(Passed::nothing, |trigger| Passed { trigger, value: incoming.clone() }))
    }

    /// Raises an alarm. Returns true if it was not active.
    fn raise<'e>(&'e self, key: &str, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<bool> {
        let (last, mut active) = self.state(link.target, run)?;
        let present = active.iter().position(|present| present.key == key.as_bytes());
        if present.is_none() && active.len() >= ACTIVE_MAX {
            return Err(Problem::new(format!("at most {ACTIVE_MAX} alarms of an element are active")));
        }
        // Made each time, as the list may lack the alarm.
        let value = self.value(link, incoming, run);
        let title = self.title.fill(&self.name, incoming, run, TITLE_CHARS_MAX);
        let at = present.unwrap_or(active.len());
        if present.is_none() {
            let episode = run.received_at().millis().saturating_mul(EPISODES_A_MILLI).max(last.saturating_add(1));
            active.push(ActiveAlarm { key: Bytes::copy_from_slice(key.as_bytes()), episode, count: 0 });
        }
        let Some(raised) = active.get_mut(at) else { return Ok(false) };
        raised.count += 1;
        let (episode, count) = (raised.episode, raised.count);
        let begin = Timestamp::from_millis(episode / EPISODES_A_MILLI);
        let begin = AlarmBegin { title: title.clone(), severity: self.severity, at: begin };
        let finding =
            AlarmFinding { episode, count, begin: Some(begin), value: Some(value), ..self.finding(key, None, run) };
        self.leave(link.target, write_state(last.max(episode), &active), finding, run)?;
        if present.is_none() {
            let (element, minimum_role) = (self.name.clone(), self.minimum_role);
            let notice = Effect::Notify { element, message: title, minimum_role, alarm: Some(key.into()) };
            // It is raised even if nobody can be notified.
            if let Err(problem) = run.budget.emit(notice) {
                run.fail(&self.name, &problem);
            }
        }
        Ok(present.is_none())
    }

    /// Clears an alarm; `index` is the element's in the plan. Returns true if it was active. One that is not active in the
    /// element's state is cleared in the list, should it still be there.
    pub(crate) fn clear(&self, key: &str, index: u32, run: &mut Run<'_>) -> Computed<bool> {
        let (last, mut active) = self.state(index, run)?;
        let cleared_at = Some(run.received_at());
        let Some(at) = active.iter().position(|present| present.key == key.as_bytes()) else {
            if run.listed.contains(&self.name, key) {
                self.leave(index, write_state(last, &active), self.finding(key, cleared_at, run), run)?;
            }
            return Ok(false);
        };
        let ActiveAlarm { episode, count, .. } = active.swap_remove(at);
        let finding = AlarmFinding { episode, count, ..self.finding(key, cleared_at, run) };
        self.leave(index, write_state(last, &active), finding, run)?;
        Ok(true)
    }

    /// Leaves a new state, and what the list is to show. An active alarm for which the list has no room is in the state
    /// alone; it is listed when it is raised while there is room.
    fn leave(&self, index: u32, state: Bytes, finding: AlarmFinding, run: &mut Run<'_>) -> Computed<()> {
        if finding.cleared_at.is_some() || !finding.is_unlisted || !run.listed.is_full() {
            return run.remember_alarm(index, state, finding);
        }
        run.remember(index, state)?;
        let problem = Problem::new(format!(
            "cannot list the alarm: at most {LIVING_ALARMS_MAX} alarms of a device are listed as active"
        ));
        run.fail(&self.name, &problem);
        Ok(())
    }

    /// Emits what the list lacks of the active alarms, as far as it has room. The title is the property, if that is a mere
    /// text, or the element's name; the next raise brings the title and the value.
    pub(crate) fn list(&self, index: u32, run: &mut Run<'_>) {
        let Some(state) = run.state(index).filter(|state| state.len() > EPISODE_BYTES) else { return };
        for ActiveAlarm { key, episode, count } in read_state(state).1 {
            let key = String::from_utf8_lossy(&key);
            if run.listed.contains(&self.name, &key) || run.listed.is_full() {
                continue;
            }
            let at = Timestamp::from_millis(episode / EPISODES_A_MILLI);
            let title = self.title.constant().unwrap_or(&self.name).chars().take(TITLE_CHARS_MAX).collect();
            let begin = Some(AlarmBegin { title, severity: self.severity, at });
            let finding = AlarmFinding { episode, count, begin, ..self.finding(&key, None, run) };
            if run.list_alarm(Effect::Alarm(Box::new(finding))).is_err() {
                // Another run has room for it.
                return;
            }
        }
    }

    fn finding(&self, key: &str, cleared_at: Option<Timestamp>, run: &Run<'_>) -> AlarmFinding {
        AlarmFinding {
            element: self.name.to_string(),
            key: key.to_owned(),
            episode: NO_EPISODE,
            begin: None,
            is_unlisted: !run.listed.contains(&self.name, key),
            count: 0,
            value: None,
            cleared_at,
            at: run.received_at(),
        }
    }

    /// Returns the value that the alarm stores; one that fails or is too large is null, and an error of the run.
    fn value<'e>(&self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> RawJson {
        let problem = match run.json_argument(link, 1, incoming) {
            Ok((_, value)) if value.bytes().len() <= ALARM_VALUE_BYTES_MAX => {
                // Copied: the payload may be a slice of a larger buffer.
                return RawJson::trusted(Bytes::copy_from_slice(value.bytes()));
            }
            Ok(_) => Problem::new(format!("an alarm keeps no value larger than {} KiB", ALARM_VALUE_BYTES_MAX >> 10)),
            Err(problem) => problem,
        };
        run.fail(&self.name, &problem);
        RawJson::trusted(Bytes::from_static(b"null"))
    }

    /// Returns the key; empty if the link has none. One that fails or is no text is as much of one as can be made, and an
    /// error of the run.
    fn key<'e>(&self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> String {
        if matches!(link.arguments.first(), None | Some(Argument::Incoming)) {
            return String::new();
        }
        let text = run.argument(link, 0, incoming).and_then(|value| key_text(&value, run));
        let key = text.unwrap_or_else(|problem| {
            run.fail(&self.name, &problem);
            String::new()
        });
        if key.len() <= ALARM_KEY_BYTES_MAX && !key.contains('\0') {
            return key;
        }
        let most = ALARM_KEY_BYTES_MAX;
        run.fail(&self.name, &Problem::new(format!("a key is a text of at most {most} bytes, without U+0000")));
        let mut key = key.replace('\0', "");
        key.truncate(key.floor_char_boundary(most));
        key
    }

    fn state(&self, index: u32, run: &Run<'_>) -> Computed<(i64, Vec<ActiveAlarm>)> {
        let state = run.state(index).unwrap_or_default();
        run.budget.spend_reading(state.len())?;
        Ok(read_state(state))
    }
}

/// Returns the text of a value that is a text, a number or a boolean.
fn key_text(value: &Value<'_>, run: &Run<'_>) -> Computed<String> {
    match value {
        Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Number(_) => {
            to_raw(value, &run.budget).map(|json| json.text().to_owned())
        }
        _ => match value.as_text() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Problem::new("a key is a text, a number or a boolean")),
        },
    }
}

fn write_state(last: i64, active: &[ActiveAlarm]) -> Bytes {
    let bytes: usize = active.iter().map(|alarm| 1 + alarm.key.len() + 16).sum();
    let mut state = BytesMut::with_capacity(EPISODE_BYTES + bytes);
    state.put_i64_le(last);
    for alarm in active {
        state.put_u8(alarm.key.len() as u8);
        state.put_slice(&alarm.key);
        state.put_i64_le(alarm.episode);
        state.put_u64_le(alarm.count);
    }
    state.freeze()
}

/// Reads the newest episode and the active alarms of a state. A state that cannot be read counts as absent: it may
/// belong to an element type that had the same name before the design was changed.
fn read_state(mut state: Bytes) -> (i64, Vec<ActiveAlarm>) {
    let Ok(last) = state.try_get_i64_le() else { return (0, Vec::new()) };
    let active = std::iter::from_fn(|| (!state.is_empty()).then(|| read_active(&mut state)));
    match active.collect::<Option<Vec<_>>>() {
        Some(active) if active.len() <= ACTIVE_MAX => (last, active),
        _ => (0, Vec::new()),
    }
}

fn read_active(state: &mut Bytes) -> Option<ActiveAlarm> {
    let length = usize::from(state.try_get_u8().ok()?);
    let key = (length <= state.len()).then(|| state.split_to(length))?;
    Some(ActiveAlarm { key, episode: state.try_get_i64_le().ok()?, count: state.try_get_u64_le().ok()? })
}
