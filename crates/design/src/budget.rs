//! What a run may spend, and what it may leave. An effect comes to be in one way only, [`Budget::emit`], and that charges
//! for it: so no element can leave anything for nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::Effect;
use crate::expression::{Computed, Problem, Value};

/// Abilities that one run may use.
const STEPS_MAX: u32 = 10_000;
/// Units that a run may take. A unit of an ordinary expression takes some ten nanoseconds in a release build, so that all of
/// them are 10 to 20 ms. As `examples/unit_bench.rs` measures it, no kind of work takes much more than 40 ns a unit; the
/// dearest are merging last values of many names of a few letters (30 for each of the two merges, 60 if both are made),
/// `duration` and `lastIndexOf` (35), texts of many digits that are read as numbers (33) and `trim` of nothing but white
/// space (31). Comparing texts and writing long ones is far below a nanosecond for a byte.
const UNITS_MAX: u64 = 1_000_000;
/// A run, or a plan that may take that many, belongs on a thread on which nobody waits: at the worst, this is a millisecond.
pub const LONG_RUN_UNITS: u64 = 25_000;
/// Bytes that a run leaves beyond which it belongs where its turn lasts until they are durable: all who come in meanwhile wait
/// for as much.
pub const SHORT_RUN_BYTES_MAX: usize = 64 << 10;
/// Units that a step takes besides what its element does.
pub(crate) const STEP_UNITS: usize = 8;
/// After so many units, about a third of a millisecond, a run that may be long lets others have the processor.
const UNITS_A_LOOK: u64 = 8_192;
/// Bytes of text that cost one unit.
const BYTES_PER_UNIT: usize = 16;
/// Bytes of text that cost one unit where a tree is made of them, or every value in them is looked at.
pub(crate) const READ_BYTES_PER_UNIT: usize = 4;
/// Longest number, in bytes, that costs nothing beyond the unit of what is done with it.
const NUMBER_BYTES: usize = 24;
/// Units that it costs to read a text as a number which has more digits than tell a double: it may lie between two of them,
/// and take ten microseconds.
const LONG_NUMBER_UNITS: usize = 256;
const SAFE_DIGITS: usize = 19;
/// Bytes that a run leaves: a body of the usual largest size some times over. It is written in one piece, and all who come in
/// meanwhile wait for it.
pub(crate) const LEFT_BYTES_MAX: usize = 4 << 20;
/// Those among them that the registry is to learn of: settings, labels, notifications and calls. They wait in one piece.
pub(crate) const TOLD_BYTES_MAX: usize = 2 << 20;
/// Changes of settings of one run, each of which is a record: as many as a design may have elements.
pub(crate) const SETTINGS_MAX: u32 = 1_000;
/// Notifications and calls of one run.
pub(crate) const SENDS_MAX: u32 = 32;
/// What a record takes besides its name and its value, in bytes.
const RECORD_BYTES: usize = 128;

/// What a run may still spend and leave, and the effects that it has come to so far.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What it began with.
    whole: Allowance,
    /// Whether more was asked of it than there was.
    is_exceeded: Cell<bool>,
    /// One is about a node of an expression, or [`BYTES_PER_UNIT`] bytes of text.
    units: Cell<u64>,
    steps: u32,
    bytes: usize,
    told_bytes: usize,
    settings: u32,
    sends: u32,
    effects: Vec<Effect>,
    /// Where among the effects those are of which only the newest matters: states of elements, and labels.
    states: BTreeMap<Arc<str>, usize>,
    labels: BTreeMap<String, usize>,
}

/// What a run may take and leave before it is ended.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    units: u64,
    bytes: usize,
}

/// What an effect costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: usize,
    /// Of these, what the registry is to learn of.
    told_bytes: usize,
    settings: u32,
    sends: u32,
}

impl Cost {
    fn of(effect: &Effect) -> Self {
        let told = |bytes: usize| Self { bytes, told_bytes: bytes, ..Self::default() };
        match effect {
            Effect::Store { value, .. } => Self { bytes: value.bytes().len(), ..Self::default() },
            // Into the queue, and into the history.
            Effect::Send { payload, .. } => Self { bytes: 2 * payload.bytes().len(), ..Self::default() },
            Effect::Remember { element, state } => Self { bytes: element.len() + state.len(), ..Self::default() },
            Effect::Forget { element } => Self { bytes: element.len(), ..Self::default() },
            Effect::SetStatus(_) | Effect::SetLocation(_) => Self { bytes: RECORD_BYTES, ..Self::default() },
            Effect::SetMeta { tag, value } => told(RECORD_BYTES + tag.len() + value.bytes().len()),
            Effect::SetSetting { element, value } => {
                let value = value.as_ref().map_or(0, |value| value.bytes().len());
                Self { settings: 1, ..told(RECORD_BYTES + element.len() + value) }
            }
            Effect::Notify { message, .. } => Self { sends: 1, ..told(RECORD_BYTES + message.len()) },
            Effect::Alarm(finding) => {
                let title = finding.begin.as_ref().map_or(0, |begin| begin.title.len());
                let value = finding.value.as_ref().map_or(0, |value| value.bytes().len());
                told(2 * RECORD_BYTES + finding.element.len() + finding.key.len() + title + value)
            }
            Effect::Call { request, .. } => {
                let headers: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                let body = request.body.as_ref().map_or(0, String::len);
                Self { sends: 1, ..told(RECORD_BYTES + request.url.len() + headers + body) }
            }
        }
    }
}

impl Budget {
    /// What a run begins with.
    pub(crate) fn of_run() -> Self {
        Self::of(Allowance { units: UNITS_MAX, bytes: LEFT_BYTES_MAX })
    }

    /// What a run begins with on a thread on which others wait.
    pub(crate) fn of_short_run() -> Self {
        Self::of(Allowance { units: LONG_RUN_UNITS, bytes: SHORT_RUN_BYTES_MAX })
    }

    fn of(whole: Allowance) -> Self {
        Self {
            whole,
            is_exceeded: Cell::new(false),
            units: Cell::new(whole.units),
            steps: STEPS_MAX,
            bytes: whole.bytes,
            told_bytes: TOLD_BYTES_MAX,
            settings: SETTINGS_MAX,
            sends: SENDS_MAX,
            effects: Vec::new(),
            states: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }

    /// So many units to compute with, and nothing to leave.
    pub(crate) fn of_units(units: u64) -> Self {
        let nothing = Self::of(Allowance { units, bytes: 0 });
        Self { steps: 0, told_bytes: 0, settings: 0, sends: 0, ..nothing }
    }

    /// Spends units, or refuses.
    pub(crate) fn spend(&self, units: usize) -> Computed<()> {
        let before = self.units.get();
        match before.checked_sub(units as u64) {
            Some(left) => {
                self.units.set(left);
                if before / UNITS_A_LOOK != left / UNITS_A_LOOK && self.whole.units > LONG_RUN_UNITS {
                    isobar_threads::let_others_in();
                }
                Ok(())
            }
            None => {
                self.units.set(0);
                self.is_exceeded.set(true);
                Err(Problem::new("the expressions of this run take too long"))
            }
        }
    }

    /// Spends what going through a text costs.
    pub(crate) fn spend_bytes(&self, bytes: usize) -> Computed<()> {
        self.spend(bytes / BYTES_PER_UNIT + 1)
    }

    /// Spends what it costs to read a text, value by value.
    pub(crate) fn spend_reading(&self, bytes: usize) -> Computed<()> {
        self.spend(bytes / READ_BYTES_PER_UNIT + 1)
    }

    /// Spends what it costs to compare a name, beyond the unit of what is done with it.
    pub(crate) fn spend_name(&self, name: &str) -> Computed<()> {
        self.spend(name.len() / BYTES_PER_UNIT)
    }

    /// Spends what it costs to merge so many bytes into last values: the store does it, and before it, whoever tells which
    /// of them have no room.
    pub(crate) fn spend_merging(&self, bytes: usize) -> Computed<()> {
        self.spend(2 * (bytes / READ_BYTES_PER_UNIT + 1))
    }

    /// Spends what calculating with a number costs beyond a unit: it may have been written with a million digits.
    pub(crate) fn spend_number(&self, value: &Value<'_>) -> Computed<()> {
        match value {
            Value::Number(number) if number.text().len() > NUMBER_BYTES => self.spend_reading(number.text().len()),
            _ => Ok(()),
        }
    }

    /// Spends what reading a text as a number costs.
    pub(crate) fn spend_number_text(&self, text: &str) -> Computed<()> {
        let far = if text.len() > SAFE_DIGITS { LONG_NUMBER_UNITS } else { 0 };
        self.spend(far + text.len() / READ_BYTES_PER_UNIT + 1)
    }

    /// Units that were spent.
    pub(crate) fn spent(&self) -> u64 {
        self.whole.units.saturating_sub(self.units.get())
    }

    /// Bytes that were left.
    pub(crate) fn left_bytes(&self) -> usize {
        self.whole.bytes.saturating_sub(self.bytes)
    }

    /// Whether more time was asked for, or more to be left, than there was.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// One more ability is used; or that is refused.
    pub(crate) fn step(&mut self) -> Computed<()> {
        // What an element cannot pay for, it says itself.
        let _ = self.spend(STEP_UNITS);
        let refused = || Problem::new(format!("the run takes more than {STEPS_MAX} steps"));
        self.steps = self.steps.checked_sub(1).ok_or_else(refused)?;
        Ok(())
    }

    /// Whether one more message or call may leave the house: to be asked before it is made.
    pub(crate) fn may_send(&self) -> Computed<()> {
        match self.sends {
            0 => Err(Problem::new(format!("a run sends at most {SENDS_MAX} notifications and calls"))),
            _ => Ok(()),
        }
    }

    /// Something is to happen: it is charged for, or refused. Of an element's states, and of a label's values, only the
    /// newest matters, but each is charged.
    pub(crate) fn emit(&mut self, effect: Effect) -> Computed<()> {
        self.charge(Cost::of(&effect))?;
        let next = self.effects.len();
        let place = match &effect {
            Effect::Remember { element, .. } | Effect::Forget { element } => {
                *self.states.entry(Arc::clone(element)).or_insert(next)
            }
            Effect::SetMeta { tag, .. } => match self.labels.get(tag) {
                Some(place) => *place,
                None => {
                    self.labels.insert(tag.clone(), next);
                    next
                }
            },
            _ => next,
        };
        match self.effects.get_mut(place) {
            Some(earlier) => *earlier = effect,
            None => self.effects.push(effect),
        }
        Ok(())
    }

    fn charge(&mut self, cost: Cost) -> Computed<()> {
        if cost.sends > 0 {
            self.may_send()?;
        }
        let (bytes, told_bytes) = (self.bytes.checked_sub(cost.bytes), self.told_bytes.checked_sub(cost.told_bytes));
        let Some(bytes) = bytes else {
            self.is_exceeded.set(true);
            return Err(Problem::new(format!("a run stores and sends at most {} MiB", LEFT_BYTES_MAX >> 20)));
        };
        let Some(told_bytes) = told_bytes else {
            let most = TOLD_BYTES_MAX >> 20;
            return Err(Problem::new(format!(
                "settings, labels, notifications and calls of a run take at most {most} MiB"
            )));
        };
        let Some(settings) = self.settings.checked_sub(cost.settings) else {
            return Err(Problem::new(format!("a run changes settings at most {SETTINGS_MAX} times")));
        };
        (self.bytes, self.told_bytes, self.settings) = (bytes, told_bytes, settings);
        self.sends -= cost.sends;
        Ok(())
    }

    /// The state that an element has left in this run; empty if it was forgotten.
    pub(crate) fn state(&self, element: &str) -> Option<Bytes> {
        match self.effects.get(*self.states.get(element)?)? {
            Effect::Remember { state, .. } => Some(state.clone()),
            _ => Some(Bytes::new()),
        }
    }

    /// The effects, in their order.
    pub(crate) fn into_effects(self) -> Vec<Effect> {
        self.effects
    }
}
