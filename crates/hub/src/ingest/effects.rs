//! The effects of runs become rows, work for the outbox, and what the device's design sees from here on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use isobar_design::{ERRORS_MAX, Effect};
use isobar_model::alarm::AlarmFinding;
use isobar_model::event::{EventError, EventType};
use isobar_model::ids::{EventId, SettingId, UserId};
use isobar_model::json::{LAST_BYTES_MAX, LastKept, RawJson, with_members};
use isobar_model::status::Status;
use isobar_store::telemetry::{
    Commit, DEVICE_LAST_BYTES_MAX, Memory, NewCloudEvent, NewEvent, NewValue, SERIES_MAX, last_room,
};

use super::run_commit::{RunCommit, change_view};
use crate::cache::Caches;
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::outbox::RegistryWork;
use crate::outbox::work::{AlarmChangeWork, AlarmWork, CallWork, NoticeWork, SettingWork};

/// Bytes stored in addition to the merged payloads, at most.
const BESIDE_BYTES: usize = 8;

impl RunCommit<'_> {
    /// Turns the effects of a run into rows and into work for the outbox. The device's view changes once, in the end.
    pub fn carry_out(&mut self, id: EventId, effects: Vec<Effect>) {
        let Self { env, entry, commit, work, .. } = self;
        let mut changes = ViewChanges::default();
        for effect in effects {
            match effect {
                Effect::Store { element, value } => commit.values.push(NewValue { event: id, element, payload: value }),
                Effect::Remember { element, state } => commit.states.push((element, state)),
                // An empty state is none.
                Effect::Forget { element } => commit.states.push((element, Bytes::new())),
                Effect::Send { element, payload, ttl_minutes } => {
                    queue_up(new_cloud_event(env, element, payload, ttl_minutes), commit);
                }
                Effect::SetStatus(status) => changes.statuses.push(status),
                Effect::SetMeta { tag, value } => {
                    work.meta.push((tag.clone(), value.text().to_owned()));
                    changes.labels.push((tag, value));
                }
                Effect::Alarm(finding) => {
                    work.alarms.push(AlarmWork::from(&*finding));
                    changes.alarms.push(*finding);
                }
                Effect::Notify { element, message, minimum_role, alarm } => work.notices.push(NoticeWork {
                    event: id,
                    element: element.to_string(),
                    message,
                    minimum_role,
                    organization: entry.lineage.own(),
                    alarm: alarm.map(Into::into),
                }),
                Effect::Call { element, request } => work.calls.push(CallWork {
                    event: id,
                    element: element.to_string(),
                    method: request.method.to_owned(),
                    url: request.url,
                    headers: request.headers,
                    body: request.body,
                    traceparent: isobar_traces::traceparent(),
                }),
                Effect::SetLocation(place) => work.location = Some((place.latitude, place.longitude)),
                Effect::SetSetting { element, value } => {
                    let (_, value) = note_setting(env, &element, value, None, work);
                    changes.settings.push((element, value));
                }
            }
        }
        changes.apply(self.caches, entry, work);
    }

    /// Adds a user's change of an alarm.
    pub fn change_alarm(&mut self, change: AlarmChangeWork) {
        if change.clears {
            change_view(self.entry, |view| Arc::make_mut(&mut view.alarms).remove(&change.element, &change.key));
        }
        self.work.alarm_changes.push(change);
    }

    /// Sets a setting, by a user or else by the device itself; `None` is its default. Returns the record's identifier.
    pub fn change_setting(&mut self, name: Arc<str>, value: Option<RawJson>, by: Option<UserId>) -> SettingId {
        let (id, value) = note_setting(self.env, &name, value, by, &mut self.work);
        let changes = ViewChanges { settings: vec![(name, value)], ..ViewChanges::default() };
        changes.apply(self.caches, self.entry, &mut self.work);
        id
    }
}

/// Adds the record of a setting's change. Returns its identifier, and a copy of the value: its bytes may be a small part
/// of a large buffer.
fn note_setting(
    env: &Env,
    name: &Arc<str>,
    value: Option<RawJson>,
    by: Option<UserId>,
    work: &mut RegistryWork,
) -> (SettingId, Option<RawJson>) {
    let id = SettingId(env.new_id().0);
    let value = value.map(|value| RawJson::trusted(Bytes::copy_from_slice(value.bytes())));
    let text = value.as_ref().map(|value| value.text().to_owned());
    work.settings.push(SettingWork { id, name: name.to_string(), value: text, by });
    (id, value)
}

/// Mints a cloud event. It expires by the present time, whatever time its identifier has.
pub(super) fn new_cloud_event(
    env: &Env,
    element: Arc<str>,
    payload: RawJson,
    ttl_minutes: Option<u32>,
) -> NewCloudEvent {
    let expires_at = ttl_minutes.map(|minutes| env.now().plus_seconds(i64::from(minutes) * 60));
    NewCloudEvent { id: env.new_id(), element, payload, expires_at }
}

/// Puts a cloud event into the queue and the history of a commit.
pub(super) fn queue_up(cloud_event: NewCloudEvent, commit: &mut Commit) {
    commit.history.push(NewEvent {
        id: cloud_event.id,
        kind: EventType::CloudEvent,
        element: Arc::clone(&cloud_event.element),
        payload: cloud_event.payload.clone(),
        errors: Vec::new(),
    });
    commit.queue.push(cloud_event);
}

/// Changes of a device's view, in their order.
#[derive(Default)]
struct ViewChanges {
    statuses: Vec<Status>,
    labels: Vec<(String, RawJson)>,
    settings: Vec<(Arc<str>, Option<RawJson>)>,
    alarms: Vec<AlarmFinding>,
}

impl ViewChanges {
    /// Changes the device's view; the registry is to learn of its status.
    fn apply(mut self, caches: &Caches, entry: &DeviceEntry, work: &mut RegistryWork) {
        if !self.alarms.is_empty()
            && entry.view().is_some_and(|view| self.alarms.iter().all(|it| view.alarms.shows(it)))
        {
            self.alarms.clear();
        }
        let is_quiet = self.statuses.is_empty() && self.labels.is_empty();
        if is_quiet && self.settings.is_empty() && self.alarms.is_empty() {
            return;
        }
        change_view(entry, |view| {
            for status in self.statuses {
                // One that goes missing keeps the one before, which is given back.
                if status == Status::Missing && view.status != Status::Missing {
                    entry.before_missing.store(view.status.number(), Ordering::Relaxed);
                    work.status_before = Some(view.status.number());
                }
                view.status = status;
                work.status = Some(status.number());
            }
            if !self.labels.is_empty() {
                view.meta = with_members(&view.meta, self.labels.iter().map(|(tag, value)| (tag.as_str(), value)));
            }
            set(&mut view.settings, self.settings);
            if !self.alarms.is_empty() {
                let listed = Arc::make_mut(&mut view.alarms);
                self.alarms.iter().for_each(|finding| listed.apply(finding));
            }
        });
        caches.view_changed(entry);
    }
}

/// Gives settings values, or takes those of the device's own away. Of one that is there several times the last counts.
fn set(settings: &mut Vec<(Arc<str>, RawJson)>, changed: Vec<(Arc<str>, Option<RawJson>)>) {
    if changed.is_empty() {
        return;
    }
    let mut newest: HashMap<Arc<str>, Option<RawJson>> = changed.into_iter().collect();
    settings.retain_mut(|(name, value)| match newest.remove(name) {
        None => true,
        Some(None) => false,
        Some(Some(newer)) => {
            *value = newer;
            true
        }
    });
    let mut added: Vec<_> = newest.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    added.sort_unstable_by(|(name, _), (other, _)| name.cmp(other));
    settings.extend(added);
}

/// Takes out of a commit the values that would begin more series than a device may have, and adds an error to its event.
pub(super) fn hold_to_series(memory: &dyn Memory, commit: &mut Commit) {
    let (_, mut count) = memory.all_last_bytes();
    if count + commit.values.len() <= SERIES_MAX {
        return;
    }
    let (mut begun, mut refused) = (BTreeSet::new(), BTreeSet::new());
    commit.values.retain(|value| {
        let is_known = memory.last_bytes(&value.element) > 0 || begun.contains(&value.element);
        if !is_known && count < SERIES_MAX {
            count += 1;
            return begun.insert(Arc::clone(&value.element));
        }
        if !is_known {
            refused.insert(Arc::clone(&value.element));
        }
        is_known
    });
    let message = format!("not stored: a device has values of at most {SERIES_MAX} storage elements");
    add_errors(
        commit,
        refused.iter().map(|element| EventError { element: element.to_string(), message: message.clone() }),
    );
}

/// Adds errors to the event of a commit, as far as there is room.
fn add_errors(commit: &mut Commit, errors: impl Iterator<Item = EventError>) {
    if let Some(event) = commit.history.iter_mut().find(|event| event.kind == EventType::DeviceEvent) {
        let room = ERRORS_MAX.saturating_sub(event.errors.len());
        event.errors.extend(errors.take(room));
    }
}

/// Adds an error to the event of a commit for values that have no room among the last values of their series.
pub(super) fn add_left_out(memory: &dyn Memory, commit: &mut Commit) {
    let bytes = |payload: &RawJson| payload.bytes().len() + 1;
    let (mut all, _) = memory.all_last_bytes();
    let most: usize = commit.values.iter().map(|value| bytes(&value.payload)).sum();
    let all_with_these = all + most + BESIDE_BYTES;
    let is_room_in_all = all_with_these <= DEVICE_LAST_BYTES_MAX;
    // Nearly always all fit, whatever their names are: even one series would hold them.
    if all_with_these <= LAST_BYTES_MAX {
        return;
    }
    let mut by_series: BTreeMap<&Arc<str>, Vec<&RawJson>> = BTreeMap::new();
    for value in &commit.values {
        by_series.entry(&value.element).or_default().push(&value.payload);
    }
    let mut errors = Vec::new();
    for (element, payloads) in by_series {
        let (own, more) = (memory.last_bytes(element), payloads.iter().map(|payload| bytes(payload)).sum::<usize>());
        if is_room_in_all && own + more + BESIDE_BYTES <= LAST_BYTES_MAX {
            continue;
        }
        // As the store will keep them: one series after the other.
        let others = all - own;
        let room = if is_room_in_all { LAST_BYTES_MAX } else { last_room(own, others) };
        let older = memory.last(element);
        let (kept, left_out) = LastKept::after_all_within(room, older.as_ref().map(LastKept::text), payloads);
        all = others + kept.bytes().len();
        if left_out > 0 {
            let kept = match room {
                LAST_BYTES_MAX => format!("{} KiB are kept of a series", LAST_BYTES_MAX >> 10),
                _ => format!("{} MiB are kept of a device", DEVICE_LAST_BYTES_MAX >> 20),
            };
            let message = format!("last values: no room for {left_out} of the names, {kept}");
            errors.push(EventError { element: element.to_string(), message });
        }
    }
    add_errors(commit, errors.into_iter());
}

#[cfg(test)]
mod tests;
