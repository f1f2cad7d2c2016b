//! Limits of what a run may compute and emit. Effects are made only by [`Budget::emit`], which charges for them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::effect::Effect;
use super::{Computed, Problem, Value};

/// Most abilities that one run may use.
const STEPS_MAX: u32 = 10_000;
/// Most units of a run. A unit of an ordinary expression takes some ten nanoseconds in a release build, so that all of
/// them take 10 to 20 ms. By `examples/unit_bench.rs`, no kind of work takes much more than 40 ns a unit; the most
/// expensive are merging last values with many short names (30 for each of the two merges, 60 for both), `duration` and
/// `lastIndexOf` (35), reading texts of many digits as numbers (33) and `trim` of white space only (31). Comparing
/// texts and writing long ones takes far below a nanosecond a byte.
const UNITS_MAX: u64 = 1_000_000;
/// Units above which a run, or a plan that may take so many, belongs on a thread that serves no calls: at worst, this
/// is a millisecond. A run that takes more although nothing foretold it ends where it began, after
/// [`UNITS_MAX`]: 10 to 20 ms of ordinary work, 40 ms of nearly any.
pub const LONG_RUN_UNITS: u64 = 25_000;
/// Bytes emitted by a run above which the device stays locked until they are durable: all callers that come in
/// meanwhile wait for as much.
pub const SHORT_RUN_BYTES_MAX: usize = 64 << 10;
/// Units that each step takes, in addition to its element's work.
pub(crate) const STEP_UNITS: usize = 8;
/// Bytes of text that cost one unit.
const BYTES_PER_UNIT: usize = 16;
/// Bytes of text that cost one unit where each value in them is parsed or examined.
pub(crate) const READ_BYTES_PER_UNIT: usize = 4;
/// Longest number in bytes whose use costs nothing extra.
const NUMBER_BYTES: usize = 24;
/// Units to read a text as a number with more digits than determine a double: it may lie between two doubles and take
/// ten microseconds.
const LONG_NUMBER_UNITS: usize = 256;
const SAFE_DIGITS: usize = 19;
/// Most bytes that a run emits: several times the usual limit of a body. They are written in one batch, for which all
/// others wait.
pub(crate) const LEFT_BYTES_MAX: usize = 4 << 20;
/// Most of these bytes that go to the registry: settings, labels, notifications and calls. They are queued as one item.
pub(crate) const TOLD_BYTES_MAX: usize = 2 << 20;
/// Most changes of settings of one run, each of which is a record: as many as a design may have elements.
pub(crate) const SETTINGS_MAX: u32 = 1_000;
/// Most notifications and calls of one run.
pub(crate) const SENDS_MAX: u32 = 32;
/// Bytes of a record in addition to its name and value.
const RECORD_BYTES: usize = 128;

/// The rest of a run's allowance, and the effects so far.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Initial allowance.
    whole: Allowance,
    /// True if more was requested than was left.
    is_exceeded: Cell<bool>,
    /// Units left. One covers about a node of an expression, or [`BYTES_PER_UNIT`] bytes of text.
    units: Cell<u64>,
    steps: u32,
    bytes: usize,
    told_bytes: usize,
    settings: u32,
    sends: u32,
    effects: Vec<Effect>,
    /// Indexes of effects of which only the newest counts: states of elements, and labels.
    states: BTreeMap<Arc<str>, usize>,
    labels: BTreeMap<String, usize>,
}

/// Units and bytes that a run may take.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    units: u64,
    bytes: usize,
}

/// Cost of an effect.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: usize,
    /// Part of `bytes` that goes to the registry.
    told_bytes: usize,
    settings: u32,
    sends: u32,
}

impl Cost {
    fn of(effect: &Effect) -> Self {
        let told = |bytes: usize| Self { bytes, told_bytes: bytes, ..Self::default() };
        match effect {
            Effect::Store { value, .. } => Self { bytes: value.bytes().len(), ..Self::default() },
            // Once for the queue and once for history.
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
    /// Returns the budget of a run.
    pub(crate) fn of_run() -> Self {
        Self::of(Allowance { units: UNITS_MAX, bytes: LEFT_BYTES_MAX })
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

    /// Returns a budget of units for computation only, without effects.
    pub(crate) fn of_units(units: u64) -> Self {
        let nothing = Self::of(Allowance { units, bytes: 0 });
        Self { steps: 0, told_bytes: 0, settings: 0, sends: 0, ..nothing }
    }

    /// Spends units; fails if too few are left.
    pub(crate) fn spend(&self, units: usize) -> Computed<()> {
        match self.units.get().checked_sub(units as u64) {
            Some(left) => {
                self.units.set(left);
                Ok(())
            }
            None => {
                self.units.set(0);
                self.is_exceeded.set(true);
                Err(Problem::new("the expressions of this run take too long"))
            }
        }
    }

    /// Spends the cost of scanning a text.
    pub(crate) fn spend_bytes(&self, bytes: usize) -> Computed<()> {
        self.spend(bytes / BYTES_PER_UNIT + 1)
    }

    /// Spends the cost of reading a text value by value.
    pub(crate) fn spend_reading(&self, bytes: usize) -> Computed<()> {
        self.spend(bytes / READ_BYTES_PER_UNIT + 1)
    }

    /// Spends the cost of comparing a name, beyond the unit of the operation.
    pub(crate) fn spend_name(&self, name: &str) -> Computed<()> {
        self.spend(name.len() / BYTES_PER_UNIT)
    }

    /// Spends the cost of merging bytes into last values, twice: the store merges them, and the hub does before, to refuse
    /// values that exceed their limit.
    pub(crate) fn spend_merging(&self, bytes: usize) -> Computed<()> {
        self.spend(2 * (bytes / READ_BYTES_PER_UNIT + 1))
    }

    /// Spends the cost of calculating with a number beyond a unit: it may have a million digits.
    pub(crate) fn spend_number(&self, value: &Value<'_>) -> Computed<()> {
        match value {
            Value::Number(number) if number.text().len() > NUMBER_BYTES => self.spend_reading(number.text().len()),
            _ => Ok(()),
        }
    }

    /// Spends the cost of reading a text as a number.
    pub(crate) fn spend_number_text(&self, text: &str) -> Computed<()> {
        let far = if text.len() > SAFE_DIGITS { LONG_NUMBER_UNITS } else { 0 };
        self.spend(far + text.len() / READ_BYTES_PER_UNIT + 1)
    }

    /// Returns the units spent.
    pub(crate) fn spent(&self) -> u64 {
        self.whole.units.saturating_sub(self.units.get())
    }

    /// Returns the bytes emitted.
    pub(crate) fn left_bytes(&self) -> usize {
        self.whole.bytes.saturating_sub(self.bytes)
    }

    /// Returns true if more units or bytes were requested than were left.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Counts the use of an ability; fails if there were too many.
    pub(crate) fn step(&mut self) -> Computed<()> {
        // An element that cannot pay reports that itself.
        let _ = self.spend(STEP_UNITS);
        let refused = || Problem::new(format!("the run takes more than {STEPS_MAX} steps"));
        self.steps = self.steps.checked_sub(1).ok_or_else(refused)?;
        Ok(())
    }

    /// Returns an error if no more messages or calls may be sent; check before making one.
    pub(crate) fn may_send(&self) -> Computed<()> {
        match self.sends {
            0 => Err(Problem::new(format!("a run sends at most {SENDS_MAX} notifications and calls"))),
            _ => Ok(()),
        }
    }

    /// Charges for an effect and adds it, or refuses it. Each state of an element and each value of a label is charged,
    /// but only the newest is kept.
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

    /// Returns an error if an effect cannot be emitted after another one of `others_bytes` that stays in the store.
    pub(crate) fn may_emit(&self, effect: &Effect, others_bytes: usize) -> Computed<()> {
        let mut cost = Cost::of(effect);
        cost.bytes += others_bytes;
        self.after(cost).map(|_| ())
    }

    fn charge(&mut self, cost: Cost) -> Computed<()> {
        (self.bytes, self.told_bytes, self.settings) = self.after(cost)?;
        self.sends -= cost.sends;
        Ok(())
    }

    /// Returns the bytes, bytes for the registry, and settings that are left after a cost.
    fn after(&self, cost: Cost) -> Computed<(usize, usize, u32)> {
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
        Ok((bytes, told_bytes, settings))
    }

    /// Returns the state that an element has set in this run; empty if it was forgotten.
    pub(crate) fn state(&self, element: &str) -> Option<Bytes> {
        match self.effects.get(*self.states.get(element)?)? {
            Effect::Remember { state, .. } => Some(state.clone()),
            _ => Some(Bytes::new()),
        }
    }

    /// Returns the effects in order.
    pub(crate) fn into_effects(self) -> Vec<Effect> {
        self.effects
    }
}
