//! Finds what a history of calls shows that must not be: pure, so that it can be shown bad histories.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::history::{Call, Did, Fault, FaultKind, History, Micros, Shown};
use super::load::raises;
use super::register::{RegisterCall, first_contradiction};

/// Largest count of the window: its size.
pub const WINDOW: u64 = 4096;
/// Longest time without a success at a node that no fault has met meanwhile.
pub const OUTAGE_MAX: Micros = 10_000_000;
/// Largest difference of an event's time from that of its call: a clock is wrong by half a second before its node notices,
/// and times of one device do not run backwards.
const TIME_TOLERANCE: i128 = 1_000_000;
/// Longest time for which a node may still work on a call that its client has given up.
const UNKNOWN_MAX: Micros = 40_000_000;
/// Most past alarms that are kept of a device.
const PAST_ALARMS_MAX: usize = isobar_model::alarm::PAST_ALARMS_MAX;

/// Breach of a promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Name of the promise.
    pub rule: &'static str,
    pub says: String,
}

/// Calls of one device, and what the nodes show of it.
struct Life<'h> {
    device: usize,
    calls: Vec<&'h Call>,
    shown: Vec<&'h Shown>,
    faults: &'h [Fault],
    found: Vec<Violation>,
}

/// Returns all violations in a history.
pub fn violations(history: &History) -> Vec<Violation> {
    let devices: HashSet<usize> = history.calls.iter().map(|call| call.device).collect();
    let mut devices: Vec<usize> = devices.into_iter().collect();
    devices.sort_unstable();
    let mut found = Vec::new();
    for device in devices {
        let mut calls: Vec<&Call> = history.calls.iter().filter(|call| call.device == device).collect();
        calls.sort_by_key(|call| (call.begin, call.end));
        let shown = history.shown.iter().filter(|shown| shown.device == device).collect();
        let mut life = Life { device, calls, shown, faults: &history.faults, found: Vec::new() };
        life.check_answers();
        life.check_events();
        life.check_counts();
        life.check_takes();
        life.check_queue();
        life.check_empty_takes();
        life.check_setting();
        life.check_reads();
        life.check_alarms();
        life.check_times(history.begun_at);
        found.append(&mut life.found);
    }
    found.extend(outages(history));
    found.extend(history.stuck.iter().map(|says| Violation { rule: "recovery", says: says.clone() }));
    let too_long = history.gaps().into_iter().filter(|gap| history.gap_max.is_some_and(|max| gap.1 - gap.0 > max));
    found.extend(too_long.map(|(begin, end)| {
        let says = format!("nothing was acknowledged for {:.1} s from {begin} on", (end - begin) as f64 / 1e6);
        Violation { rule: "gap", says }
    }));
    found
}

impl Life<'_> {
    fn finds(&mut self, rule: &'static str, says: String) {
        self.found.push(Violation { rule, says: format!("device {}: {says}", self.device) });
    }

    /// Each call succeeds, is answered that the node is not able now, or is not answered.
    fn check_answers(&mut self) {
        for call in self.calls.clone() {
            if call.status.is_some_and(|status| !(200..300).contains(&status) && status != 503) {
                self.finds("answer", format!("an answer that no fault explains: {call:?}"));
            }
        }
    }

    /// Acknowledged events are in history once, under the one id of their key, in the order of the device, beside nothing
    /// but posted ones.
    fn check_events(&mut self) {
        let posts = self.calls.iter().filter_map(|call| match &call.did {
            Did::Post { n, id } => Some((*n, id.as_deref())),
            _ => None,
        });
        let posts: Vec<_> = posts.collect();
        let queued = self.calls.iter().filter_map(|call| match &call.did {
            Did::Queue { n, id } => Some((*n, id.as_deref())),
            _ => None,
        });
        let queued: Vec<_> = queued.collect();
        for shown in self.shown.clone() {
            self.check_kept(&posts, &shown.events, &format!("event at node {}", shown.node));
            self.check_kept(&queued, &shown.queued, &format!("cloud event at node {}", shown.node));
        }
    }

    fn check_kept(&mut self, asked: &[(u64, Option<&str>)], kept: &[(String, u64)], what: &str) {
        let mut ids: HashMap<u64, &str> = HashMap::new();
        let mut begun = HashSet::new();
        for (n, id) in asked {
            begun.insert(*n);
            let Some(id) = *id else { continue };
            let first = *ids.entry(*n).or_insert(id);
            if first != id {
                self.finds("key", format!("{what}: the key of {n} gave {first} and {id}"));
            }
        }
        let mut seen = HashMap::new();
        for (id, n) in kept {
            if seen.insert(*n, id.as_str()).is_some() {
                self.finds("twice", format!("{what}: {n} is in history twice"));
            }
            if !begun.contains(n) {
                self.finds("foreign", format!("{what}: {n} is in history and was never sent"));
            }
        }
        for (n, id) in ids {
            match seen.get(&n) {
                None => self.finds("lost", format!("{what}: {n} was acknowledged as {id} and is not in history")),
                Some(kept) if *kept != id && !id.is_empty() => {
                    self.finds("key", format!("{what}: {n} was acknowledged as {id} and is {kept} in history"));
                }
                Some(_) => {}
            }
        }
        for pair in kept.windows(2) {
            if pair[0].1 >= pair[1].1 {
                self.finds("order", format!("{what}: {} stands before {}", pair[0].1, pair[1].1));
            }
        }
    }

    /// Each run has seen the one before it: the counts have no gap and no number twice.
    fn check_counts(&mut self) {
        for shown in self.shown.clone() {
            let (node, events) = (shown.node, shown.events.len() as u64);
            let window: Vec<u64> = (1..=events).map(|count| count.min(WINDOW)).collect();
            let labels: Vec<u64> = (1..=events).collect();
            for (what, counts, wanted) in [("window", &shown.counts, window), ("label", &shown.label_counts, labels)] {
                if *counts != wanted {
                    let at = counts.iter().zip(&wanted).take_while(|(count, wanted)| count == wanted).count();
                    let near = &counts[at.saturating_sub(2)..counts.len().min(at + 4)];
                    let says =
                        format!("counts of the {what} at node {node}: {} of {events}, {near:?} at {at}", counts.len());
                    self.finds("count", says);
                }
            }
            if shown.label != events {
                self.finds("label", format!("the label is {} at node {node} after {events} events", shown.label));
            }
        }
    }

    /// A cloud event is taken once, after it was queued, and by one client in order.
    fn check_takes(&mut self) {
        let mut begun: HashMap<u64, Micros> = HashMap::new();
        for call in &self.calls {
            if let Did::Queue { n, .. } = call.did {
                begun.entry(n).or_insert(call.begin);
            }
        }
        let mut before = None;
        let mut taken = HashSet::new();
        for call in self.calls.clone() {
            let Did::Take { got: Some(Some(n)) } = call.did else { continue };
            if !taken.insert(n) {
                self.finds("taken twice", format!("cloud event {n} was given out again: {call:?}"));
            } else if before.is_some_and(|before| before > n) {
                self.finds("queue order", format!("cloud event {n} was given out after {before:?}: {call:?}"));
            }
            before = Some(n);
            if begun.get(&n).is_none_or(|begun| *begun > call.end) {
                self.finds("taken early", format!("cloud event {n} was given out before it was queued: {call:?}"));
            }
        }
        for shown in self.shown.clone() {
            for n in shown.waiting.iter().filter(|n| taken.contains(n)) {
                self.finds("taken twice", format!("cloud event {n} was taken and still waits at node {}", shown.node));
            }
        }
    }

    /// An acknowledged cloud event was taken, waits, or was in a take without an answer, which began before
    /// the next event was taken.
    fn check_queue(&mut self) {
        let (mut acknowledged, mut taken, mut unknown) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        for call in &self.calls {
            match &call.did {
                Did::Queue { n, id: Some(_) } => drop(acknowledged.insert(*n)),
                Did::Take { got: Some(Some(n)) } => drop(taken.insert(*n, call.end)),
                Did::Take { got: None } if call.is_unknown() => unknown.push(call.begin),
                _ => {}
            }
        }
        for shown in self.shown.clone() {
            let gone = acknowledged.iter().filter(|n| !taken.contains_key(n) && !shown.waiting.contains(n));
            for (others, n) in gone.enumerate() {
                let next = taken.range(n..).next().map_or(Micros::MAX, |(_, end)| *end);
                let takes = unknown.iter().filter(|begin| **begin < next).count();
                if takes <= others {
                    let says =
                        format!("cloud event {n} was taken by nobody (node {}): {takes} takes are unknown", shown.node);
                    self.finds("queue lost", says);
                }
            }
        }
    }

    /// A take finds something if an event was queued before it and was there after it.
    fn check_empty_takes(&mut self) {
        let (mut queued, mut last_seen) = (HashMap::new(), HashMap::new());
        for call in &self.calls {
            match call.did {
                Did::Queue { n, id: Some(_) } => drop(queued.entry(n).or_insert(call.end)),
                Did::Take { got: Some(Some(n)) } => drop(last_seen.insert(n, call.begin)),
                _ => {}
            }
        }
        last_seen.extend(self.shown.iter().flat_map(|shown| shown.waiting.iter().map(|n| (*n, Micros::MAX))));
        let stays = queued.iter().filter_map(|(n, end)| Some((*n, *end, *last_seen.get(n)?)));
        let stays: Vec<(u64, Micros, Micros)> = stays.collect();
        for take in self.calls.clone() {
            let Did::Take { got: Some(None) } = take.did else { continue };
            if let Some((n, ..)) = stays.iter().find(|(_, queued, seen)| *queued < take.begin && *seen > take.end) {
                self.finds("unseen", format!("a take found nothing, though cloud event {n} waited: {take:?}"));
            }
        }
    }

    /// The setting is a linearizable register, which all nodes show alike at the end.
    fn check_setting(&mut self) {
        let unacknowledged = |call: &&&Call| call.is_unknown() && matches!(call.did, Did::Put { .. });
        let unacknowledged: HashSet<u64> =
            self.calls.iter().filter(unacknowledged).filter_map(|call| call.value()).collect();
        // A primary shows what its standby does not have where the connection of a commit is ended that waits for it
        // (docs/patroni.md). A failover takes that back; nobody was told that it is done.
        let may_be_taken_back = |call: &Call| {
            let is_unreplicated = |fault: &&Fault| fault.kind == FaultKind::LoseUnreplicated && fault.meets(call);
            call.value().is_some_and(|value| unacknowledged.contains(&value))
                && self.faults.iter().any(|fault| is_unreplicated(&fault))
        };
        let as_register = |call: &&Call| {
            let (is_put, value, end) = match call.did {
                Did::Put { .. } if call.is_refused => return None,
                Did::Put { value } => (true, value, call.is_done().then_some(call.end)),
                Did::Get { .. } if may_be_taken_back(call) => return None,
                Did::Get { value } => (false, value?, Some(call.end)),
                _ => return None,
            };
            Some(RegisterCall { begin: call.begin, end, is_put, value })
        };
        let mut calls: Vec<RegisterCall> = self.calls.iter().filter_map(as_register).collect();
        let last = self.calls.iter().map(|call| call.end).max().unwrap_or_default();
        calls.extend(self.shown.iter().zip(1..).map(|(shown, number)| {
            let begin = last + 2 * number;
            RegisterCall { begin, end: Some(begin + 1), is_put: false, value: shown.setting }
        }));
        if let Some(call) = first_contradiction(&calls) {
            let near = |other: &&RegisterCall| {
                other.value == call.value
                    || other.begin < call.begin + 200_000 && other.end.is_none_or(|end| end + 200_000 > call.begin)
            };
            let near: Vec<_> = calls.iter().filter(near).collect();
            self.finds("setting", format!("no order explains {call:?}; near it: {near:?}"));
        }
    }

    /// Reads see what was acknowledged before them, and nothing that was not yet sent.
    fn check_reads(&mut self) {
        let mut sent: HashMap<u64, (Micros, Micros)> = HashMap::new();
        for call in &self.calls {
            if let Did::Post { n, id } = &call.did {
                let (begin, end) = sent.entry(*n).or_insert((Micros::MAX, Micros::MAX));
                *begin = call.begin.min(*begin);
                *end = if id.is_some() { call.end.min(*end) } else { *end };
            }
        }
        for call in self.calls.clone() {
            let (what, read) = match call.did {
                Did::Newest { n: Some(n) } => ("newest event", n),
                Did::Label { n: Some(n) } => ("label", n),
                _ => continue,
            };
            let newest = |is_so: &dyn Fn(Micros, Micros) -> bool| {
                let such = sent.iter().filter(|(_, (begin, end))| is_so(*begin, *end));
                such.map(|(n, _)| *n).max().unwrap_or(0)
            };
            let (least, most) = (newest(&|_, end| end < call.begin), newest(&|begin, _| begin <= call.end));
            if !(least..=most).contains(&read) {
                self.finds("unseen", format!("the {what} must be {least} to {most}: {call:?}"));
            }
        }
    }
}

impl Life<'_> {
    /// Each node lists the alarm as the events in history have raised and cleared it, and a design has run once for each
    /// acknowledgement.
    fn check_alarms(&mut self) {
        let asked = self.calls.iter().filter(|call| matches!(call.did, Did::Acknowledge) && !call.is_refused).count();
        for shown in self.shown.clone() {
            let (node, alarms) = (shown.node, &shown.alarms);
            let raising: Vec<u64> = shown.events.iter().map(|(_, n)| *n).filter(|n| raises(*n)).collect();
            let is_raised = shown.events.last().is_some_and(|(_, n)| raises(*n));
            let (active, living): (Vec<_>, Vec<_>) = (
                alarms.iter().filter(|alarm| alarm.is_active).collect(),
                alarms.iter().filter(|alarm| alarm.is_active || !alarm.is_acknowledged).collect(),
            );
            if living.len() > 1 || active.len() != usize::from(is_raised) {
                let says = format!("{} live and {} are active at node {node}", living.len(), active.len());
                self.finds("alarm", format!("{says}, where the newest event has raised it: {is_raised}"));
            }
            let newest = alarms.iter().map(|alarm| alarm.value).max();
            if newest != raising.last().copied() {
                let says = format!("the newest value at node {node} is {newest:?}, not {:?}", raising.last());
                self.finds("alarm", says);
            }
            let count: u64 = alarms.iter().map(|alarm| alarm.count).sum();
            if alarms.len() < PAST_ALARMS_MAX && count != raising.len() as u64 {
                self.finds("alarm", format!("{count} times raised at node {node}, of {}", raising.len()));
            }
            let acknowledged = alarms.iter().filter(|alarm| alarm.is_acknowledged).count() as u64;
            if !(acknowledged..=asked as u64).contains(&shown.acknowledgements) {
                let says = format!("{acknowledged} alarms are acknowledged at node {node}, by {asked} calls");
                self.finds("alarm", format!("{says}, and the design has run {} times", shown.acknowledgements));
            }
        }
    }

    /// No event has a time at which it was not under way, whatever a node's clock shows.
    fn check_times(&mut self, begun_at: u64) {
        let mut sent: HashMap<u64, (Micros, Micros)> = HashMap::new();
        for call in &self.calls {
            if let Did::Post { n, .. } = call.did {
                let end = if call.is_unknown() { call.end + UNKNOWN_MAX } else { call.end };
                let (first, last) = sent.entry(n).or_insert((call.begin, end));
                (*first, *last) = (call.begin.min(*first), end.max(*last));
            }
        }
        for shown in self.shown.clone() {
            for (n, received) in &shown.received {
                let Some((first, last)) = sent.get(n) else { continue };
                let at = (i128::from(*received) - i128::from(begun_at)) * 1_000;
                if at + TIME_TOLERANCE < i128::from(*first) || at > i128::from(*last) + TIME_TOLERANCE {
                    let says = format!("event {n} was under way from {first} to {last} and is of {at}");
                    self.finds("time", format!("{says} at node {}", shown.node));
                }
            }
        }
    }
}

/// Finds nodes that answered nothing useful for long, though no fault met them.
fn outages(history: &History) -> Vec<Violation> {
    let nodes: HashSet<usize> = history.calls.iter().map(|call| call.node).collect();
    let mut found = Vec::new();
    for node in nodes {
        let mut calls: Vec<&Call> = history.calls.iter().filter(|call| call.node == node).collect();
        calls.sort_by_key(|call| call.end);
        let mut since: Option<Micros> = None;
        for call in calls {
            let met = |fault: &&Fault| {
                fault.met(node) && fault.begin <= call.end && since.is_none_or(|since| fault.end > since)
            };
            if call.is_done() {
                since = None;
                continue;
            }
            let fault = history.faults.iter().filter(met).map(|fault| fault.end).max();
            let begin = since.unwrap_or(call.begin).max(fault.unwrap_or(0));
            since = Some(begin);
            if call.end > begin + OUTAGE_MAX {
                let says = format!("node {node} did nothing from {begin} on, beyond any fault: {call:?}");
                found.push(Violation { rule: "outage", says });
                break;
            }
        }
    }
    found
}
