//! Writes findings of designs about alarms: of many devices at once, in the transaction of their other findings.
//!
//! The list of alarms is a projection of the devices' own states. A finding has the whole state of an alarm, never an
//! increment: the number of the current activation of the alarm (its
//! *episode*, numbered per device, increasing), how often the alarm was raised in it, and if it was cleared. Repeating
//! a finding therefore changes nothing, and a newer finding of an episode replaces older ones.

use std::collections::{HashMap, HashSet};

use isobar_model::access::{CanRead, CanWrite, Lineage};
use isobar_model::alarm::{
    Alarm, AlarmAct, AlarmBegin, AlarmEntry, AlarmFinding, AlarmState, ENTRY_VALUE_BYTES_MAX, LIVING_ALARMS_MAX,
    ListedAlarms, PAST_ALARMS_MAX, remember,
};
use isobar_model::ids::{AlarmId, DeviceKey, DeviceRef, OrganizationId, ProjectId};
use serde_json::json;
use uuid::Uuid;

use super::alarms::{ALARM_COLUMNS, StoredAlarm, alarm, stored, with_history, write};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Column, Connection, Dialect, Sql, all, one, run, without_nul};

/// Bounds the pending findings about one device's alarms, counted separately for those that the list showed as active
/// and the others. Beyond the bound findings about alarms that the list never showed as active and that are over are
/// dropped, oldest first, then the newest: the list has room for no more, and whoever raises or clears it finds that
/// out.
const FINDINGS_MAX: usize = 1_024;
/// Number of findings up to which pending ones are searched without an index.
const SEARCHED_FEW: usize = 8;

/// Findings about the alarms of a device, one for each episode, in the order in which the episodes began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlarmFindings(Vec<AlarmFinding>);

impl AlarmFindings {
    /// Returns true if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the findings.
    pub fn iter(&self) -> impl Iterator<Item = &AlarmFinding> {
        self.0.iter()
    }

    /// Merges newer findings into these.
    #[must_use]
    pub fn then(mut self, newer: Self) -> Self {
        self.extend(newer.0);
        self
    }

    fn extend(&mut self, newer: Vec<AlarmFinding>) {
        if newer.len() <= SEARCHED_FEW {
            // An alarm that is raised again was mostly raised a moment ago.
            for finding in newer {
                match self.0.iter_mut().rev().find(|present| present.is_of(&finding)) {
                    Some(present) => present.then(finding),
                    None => self.0.push(finding),
                }
            }
        } else {
            let of = |finding: &AlarmFinding| (finding.episode, finding.element.clone(), finding.key.clone());
            let mut places: HashMap<_, usize> = self.0.iter().map(of).zip(0..).collect();
            for finding in newer {
                let place = *places.entry(of(&finding)).or_insert(self.0.len());
                match self.0.get_mut(place) {
                    Some(present) => present.then(finding),
                    None => self.0.push(finding),
                }
            }
        }
        self.hold_to_bound();
    }

    fn hold_to_bound(&mut self) {
        let mut excess = self.0.len().saturating_sub(FINDINGS_MAX);
        if excess == 0 {
            return;
        }
        self.0.retain(|finding| {
            let goes = excess > 0 && finding.is_past();
            excess -= usize::from(goes);
            !goes
        });
        let (mut begun, mut known) = (0, 0);
        self.0.retain(|finding| {
            let count = if finding.is_unlisted { &mut begun } else { &mut known };
            *count += 1;
            *count <= FINDINGS_MAX
        });
    }
}

impl FromIterator<AlarmFinding> for AlarmFindings {
    fn from_iter<T: IntoIterator<Item = AlarmFinding>>(findings: T) -> Self {
        let mut all = Self::default();
        all.extend(findings.into_iter().collect());
        all
    }
}

/// Key of alarms of which one lives at a time: device, element and key.
type Place = (DeviceKey, String, String);

/// Writes findings about alarms of locked devices. Skips those of other devices.
pub(crate) async fn apply<'f>(
    tx: &impl Connection,
    there: &HashSet<DeviceRef>,
    findings: impl Iterator<Item = (&'f CanWrite<DeviceRef>, &'f AlarmFinding)>,
) -> Result<()> {
    let findings: Vec<_> = findings.filter(|(permit, _)| there.contains(permit.target())).collect();
    if findings.is_empty() {
        return Ok(());
    }
    let place = |device: DeviceRef, finding: &AlarmFinding| -> Place {
        (device.key, without_nul(finding.element.clone()), finding.key.clone())
    };
    let places: HashSet<Place> = findings.iter().map(|(permit, finding)| place(*permit.target(), finding)).collect();
    let mut newest = newest_of(tx, &places).await?;
    let mut changed = Changed::default();
    for (permit, finding) in findings {
        let (device, place) = (*permit.target(), place(*permit.target(), finding));
        match advanced(newest.get_mut(&place), device, finding) {
            Step::Nothing => {}
            Step::Changed => {
                changed.places.insert(place);
            }
            Step::New(alarm) => {
                // This batch may know the end of the previous alarm, which is over.
                let before = newest.insert(place.clone(), *alarm).filter(|_| changed.places.remove(&place));
                changed.past.extend(before);
                changed.begun.insert(place);
            }
        }
    }
    changed.write(tx, newest).await
}

/// Alarms that findings have changed.
#[derive(Default)]
struct Changed {
    /// Places whose newest alarm existed and has changed.
    places: HashSet<Place>,
    /// Places whose newest alarm is new.
    begun: HashSet<Place>,
    /// Alarms that are over and were followed by new ones.
    past: Vec<StoredAlarm>,
}

impl Changed {
    async fn write(mut self, tx: &impl Connection, newest: HashMap<Place, StoredAlarm>) -> Result<()> {
        let (mut present, mut new) = (Vec::new(), Vec::new());
        for (place, stored) in newest {
            if self.begun.remove(&place) {
                new.push(stored);
            } else if self.places.remove(&place) {
                present.push(stored);
            }
        }
        write(tx, &self.past).await?;
        write(tx, &present).await?;
        write(tx, &with_room(tx, new).await?).await
    }
}

/// Effect of a finding on an alarm.
enum Step {
    Nothing,
    Changed,
    New(Box<StoredAlarm>),
}

/// Applies a finding to the newest alarm of its place. What a finding says of a later period counts; of the same or an
/// earlier one only what is newer than the alarm, as it may be written again. An earlier period can be newer where the
/// device's state was restored to an earlier moment.
fn advanced(newest: Option<&mut StoredAlarm>, device: DeviceRef, finding: &AlarmFinding) -> Step {
    let Some(stored) = newest else { return begun(device, finding) };
    let (episode, counted) = stored.episode;
    if let Some(begin) = finding.begin.as_ref().filter(|_| finding.episode > episode) {
        if stored.ended_at.is_some() {
            return begun(device, finding);
        }
        raise(stored, begin, finding);
        return Step::Changed;
    }
    let before = (stored.alarm.clone(), stored.episode);
    let is_newer = finding.at > stored.alarm.cleared_at.unwrap_or(stored.alarm.raised_at);
    let is_same = finding.episode == episode && stored.ended_at.is_none();
    if is_same || is_newer {
        let more = if is_same { finding.count.saturating_sub(counted) } else { 0 };
        stored.alarm.count = (stored.alarm.count + more).max(finding.count);
        if finding.episode == episode {
            stored.episode.1 = counted.max(finding.count);
        }
        // Listed again without a raise, it has a title of need only.
        if let Some(begin) = finding.begin.as_ref().filter(|_| is_same && stored.alarm.value.is_none()) {
            stored.alarm.title.clone_from(&begin.title);
        }
        if finding.begin.is_some() && finding.cleared_at.is_none() && is_newer {
            reopen(stored, finding);
        }
        stored.alarm.value = finding.value.clone().or(stored.alarm.value.take());
        clear(stored, finding);
    }
    if before == (stored.alarm.clone(), stored.episode) {
        return Step::Nothing;
    }
    stored.alarm.updated_at = finding.at.max(stored.alarm.updated_at);
    Step::Changed
}

/// Makes an alarm active that was cleared or is over, although its period has not ended in the device's state.
fn reopen(stored: &mut StoredAlarm, finding: &AlarmFinding) {
    if stored.alarm.state == AlarmState::Active {
        return;
    }
    (stored.alarm.state, stored.alarm.cleared_at, stored.ended_at) = (AlarmState::Active, None, None);
    remember(&mut stored.history, AlarmEntry::new(finding.at, AlarmAct::Raised, None));
}

/// Creates an alarm; nothing if it was not raised, as the list then shows nothing of it.
fn begun(device: DeviceRef, finding: &AlarmFinding) -> Step {
    let Some(begin) = &finding.begin else { return Step::Nothing };
    let parts = [&*device.id.to_string(), &*finding.element, &*finding.key, &*finding.episode.to_string()];
    let mut stored = StoredAlarm {
        alarm: Alarm {
            id: AlarmId::derived(begin.at, &parts),
            // The organization and project of a device are not stored with its alarms.
            organization: OrganizationId(Uuid::nil()),
            project: ProjectId(Uuid::nil()),
            device: device.id,
            device_name: String::new(),
            element: finding.element.clone(),
            key: finding.key.clone(),
            title: String::new(),
            severity: begin.severity,
            state: AlarmState::Active,
            acknowledged: false,
            raised_at: begin.at,
            cleared_at: None,
            acknowledged_at: None,
            acknowledged_by: None,
            assignee: None,
            count: 0,
            value: None,
            created_at: begin.at,
            updated_at: begin.at,
        },
        device: device.key,
        history: Vec::new(),
        episode: (finding.episode, 0),
        last_change: None,
        ended_at: None,
    };
    raise(&mut stored, begin, finding);
    Step::New(Box::new(stored))
}

/// Makes an alarm active, again or for the first time.
fn raise(stored: &mut StoredAlarm, begin: &AlarmBegin, finding: &AlarmFinding) {
    let alarm = &mut stored.alarm;
    (alarm.title, alarm.severity) = (begin.title.clone(), begin.severity);
    (alarm.state, alarm.raised_at, alarm.cleared_at) = (AlarmState::Active, begin.at, None);
    alarm.count += finding.count;
    alarm.value = finding.value.clone();
    alarm.updated_at = finding.at.max(alarm.updated_at);
    stored.episode = (finding.episode, finding.count);
    let value = finding.value.clone().filter(|value| value.bytes().len() <= ENTRY_VALUE_BYTES_MAX);
    let entry = AlarmEntry { value, ..AlarmEntry::new(begin.at, AlarmAct::Raised, None) };
    remember(&mut stored.history, entry);
    clear(stored, finding);
}

fn clear(stored: &mut StoredAlarm, finding: &AlarmFinding) {
    let Some(at) = finding.cleared_at.filter(|_| stored.alarm.state == AlarmState::Active) else { return };
    (stored.alarm.state, stored.alarm.cleared_at) = (AlarmState::Cleared, Some(at));
    remember(&mut stored.history, AlarmEntry::new(at, AlarmAct::Cleared, None));
    stored.end_if_over(at);
}

impl Registry {
    /// Returns the alarms that are active in the list, by device; devices without any are left out.
    pub async fn alarms_listed(&self, permits: &[CanRead<DeviceRef>]) -> Result<HashMap<DeviceKey, ListedAlarms>> {
        let keys: Vec<i64> =
            permits.iter().map(|permit| i64::try_from(permit.target().key.0).unwrap_or(i64::MAX)).collect();
        let query = Sql::new("SELECT device_key, element, key FROM alarms WHERE state = 0 AND device_key");
        let mut listed: HashMap<DeviceKey, ListedAlarms> = HashMap::new();
        for row in all(&self.db.read, query.among_numbers(self.db.dialect, &keys)).await? {
            listed.entry(row.key("device_key")?).or_default().insert(&row.text("element")?, &row.text("key")?);
        }
        Ok(listed)
    }
}

impl Registry {
    /// Finds the newest alarms of these devices, elements and keys, with the lineages of the devices' organizations. It
    /// serves the system.
    pub async fn alarms_at(&self, places: &[(DeviceKey, &str, &str)]) -> Result<Vec<(Alarm, Lineage)>> {
        let query = Sql::new(format!("SELECT o.lineage, {ALARM_COLUMNS} FROM "))
            .then(at_places(self.db.dialect, places.iter().copied()))
            .text(" JOIN devices d ON d.key = a.device_key JOIN organizations o ON o.id = d.organization_id WHERE ")
            .text(NEWEST);
        all(&self.db.read, query).await?.iter().map(|row| Ok((alarm(row)?, row.lineage("lineage")?))).collect()
    }
}

impl Registry {
    /// Returns alarms as [`Registry::alarms_at`] does, by their identifiers. It serves the system.
    pub async fn alarms_with(&self, ids: &[AlarmId]) -> Result<Vec<(Alarm, Lineage)>> {
        let query = Sql::new(format!(
            "SELECT o.lineage, {ALARM_COLUMNS} FROM alarms a JOIN devices d ON d.key = a.device_key "
        ))
        .text("JOIN organizations o ON o.id = d.organization_id WHERE a.id")
        .among(self.db.dialect, ids);
        all(&self.db.read, query).await?.iter().map(|row| Ok((alarm(row)?, row.lineage("lineage")?))).collect()
    }
}

/// Condition that an alarm `a` is the newest of its place `t`.
const NEWEST: &str = "a.episode = (SELECT max(b.episode) FROM alarms b WHERE b.device_key = t.device \
    AND b.element = t.element AND b.key = t.name)";

/// Joins the alarms `a` of these places `t`.
fn at_places<'p>(dialect: Dialect, places: impl Iterator<Item = (DeviceKey, &'p str, &'p str)>) -> Sql {
    let columns = [Column::Number("device"), Column::Text("element"), Column::Text("name")];
    let rows = places.map(|(device, element, key)| json!([device.0, without_nul(element.to_owned()), key]));
    Sql::new("")
        .relation(dialect, &columns, rows)
        .text(" AS t JOIN alarms a ON a.device_key = t.device AND a.element = t.element AND a.key = t.name")
}

/// Finds the newest alarm of each place that has any.
async fn newest_of(tx: &impl Connection, places: &HashSet<Place>) -> Result<HashMap<Place, StoredAlarm>> {
    let wanted = at_places(Dialect::of(tx), places.iter().map(|(device, element, key)| (*device, &**element, &**key)));
    let mut newest = HashMap::new();
    for row in all(tx, with_history(wanted).text(NEWEST)).await? {
        let stored = stored(&row)?;
        newest.insert((stored.device, stored.alarm.element.clone(), stored.alarm.key.clone()), stored);
    }
    Ok(newest)
}

/// Returns those of the new alarms for which there is room, active ones first. Ends the oldest cleared alarms to make
/// room.
async fn with_room(tx: &impl Connection, mut new: Vec<StoredAlarm>) -> Result<Vec<StoredAlarm>> {
    new.sort_by_key(|stored| (stored.alarm.state, stored.episode.0));
    let mut begun = HashMap::<DeviceKey, u64>::new();
    new.iter().for_each(|stored| *begun.entry(stored.device).or_default() += 1);
    let mut room = HashMap::with_capacity(begun.len());
    for (device, more) in begun {
        room.insert(device, make_room(tx, device, more).await?);
    }
    new.retain(|stored| {
        let Some(left) = room.get_mut(&stored.device).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    });
    Ok(new)
}

/// Makes room for more alarms of a device, as far as possible; returns for how many there is room.
async fn make_room(tx: &impl Connection, device: DeviceKey, more: u64) -> Result<u64> {
    let query = Sql::new(
        "SELECT count(*) AS alarms, CAST(coalesce(sum(CASE WHEN ended_at IS NULL THEN 1 ELSE 0 END), 0) AS BIGINT) \
         AS living FROM alarms WHERE device_key = ?",
    );
    let Some(row) = one(tx, query.bind(device)).await? else { return Ok(more) };
    let (count, mut living) = (row.count("alarms")?, row.count("living")?);
    let most = LIVING_ALARMS_MAX as u64;
    let excess = (living + more).saturating_sub(most);
    if excess > 0 {
        living = living.saturating_sub(end_cleared(tx, device, excess).await?);
    }
    if count.saturating_sub(living) > PAST_ALARMS_MAX as u64 {
        trim(tx, device).await?;
    }
    Ok(most.saturating_sub(living))
}

/// Ends at most `most` of the oldest cleared alarms of a device that live; returns how many were ended.
async fn end_cleared(tx: &impl Connection, device: DeviceKey, most: u64) -> Result<u64> {
    let end = Sql::new(
        "UPDATE alarms SET ended_at = cleared_at WHERE id IN (SELECT id FROM alarms WHERE device_key = ? \
         AND ended_at IS NULL AND state = 1 ORDER BY raised_at, id LIMIT ?)",
    );
    run(tx, end.bind(device).bind(most)).await
}

/// Removes the oldest ended alarms of a device beyond its limit.
async fn trim(tx: &impl Connection, device: DeviceKey) -> Result<()> {
    let delete = Sql::new(
        "DELETE FROM alarms WHERE id IN (SELECT id FROM alarms WHERE device_key = ? AND ended_at IS NOT NULL \
         ORDER BY ended_at DESC, id DESC LIMIT ? OFFSET ?)",
    );
    run(tx, delete.bind(device).bind(i64::MAX).bind(PAST_ALARMS_MAX as u64)).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use isobar_model::alarm::AlarmSeverity;
    use isobar_model::time::Timestamp;

    use super::*;

    fn finding(key: usize, count: u64, cleared: bool) -> AlarmFinding {
        let at = Timestamp::from_millis(1);
        let begin = Some(AlarmBegin { title: "t".to_owned(), severity: AlarmSeverity::Info, at });
        let (element, key, cleared_at) = ("e".to_owned(), key.to_string(), cleared.then_some(at));
        let is_unlisted = count == 1;
        AlarmFinding { element, key, episode: 1, begin, is_unlisted, count, value: None, cleared_at, at }
    }

    #[test]
    fn many_findings_of_one_episode_are_merged() {
        for count in [3, 100] {
            let first: AlarmFindings = (0..count).map(|key| finding(key, 1, false)).collect();
            let both = first.then((0..count).map(|key| finding(key, 5, key == 0)).collect());
            let told: Vec<_> = both.iter().map(|it| (it.count, it.begin.is_some(), it.is_past())).collect();
            assert_eq!(told, (0..count).map(|key| (5, true, key == 0)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn end_of_a_listed_alarm_outlives_a_flood_of_others() {
        let ends: AlarmFindings = (0..10).map(|key| finding(key, 2, true)).collect();
        let flooded = ends.then((10..10_000).map(|key| finding(key, 1, true)).collect());
        assert_eq!(flooded.0.len(), FINDINGS_MAX);
        assert!((0..10).all(|key| flooded.0[key].count == 2));
    }

    #[test]
    fn findings_of_many_keys_are_bounded_and_keep_active_alarms() {
        let active: AlarmFindings = (0..10).map(|key| finding(key, 1, false)).collect();
        let flooded = active.then((10..10_000).map(|key| finding(key, 1, true)).collect());
        assert_eq!((flooded.0.len(), flooded.iter().filter(|it| !it.is_past()).count()), (FINDINGS_MAX, 10));
        let all_active = flooded.then((0..10_000).map(|key| finding(20_000 + key, 1, false)).collect());
        assert_eq!((all_active.0.len(), all_active.0[0].key.as_str()), (FINDINGS_MAX, "0"));
    }
}
