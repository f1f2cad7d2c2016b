//! Trace of a dry run: what each element received and produced.

use std::sync::Arc;

use isobar_model::json::{Json, RawJson};

use crate::elements::context::Passed;
use crate::elements::graph::{Installed, Link};
use crate::expression::to_raw;
use crate::value::budget::Budget;
use crate::value::failures::cut;
use crate::value::{Computed, Value};

/// Most steps of one trace.
const TRACE_STEPS_MAX: usize = 1_000;
/// Bytes of values, errors and notes after which a trace ends.
const TRACE_BYTES_MAX: usize = 4 << 20;
/// Longest value in bytes that is shown in full.
const TRACE_VALUE_BYTES_MAX: usize = 64 << 10;

/// One step of a run: the use of an element, or the beginning of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceStep {
    /// Name of the element.
    pub element: Arc<str>,
    /// Ability that was used; `None` where the run began.
    pub ability: Option<&'static str>,
    /// Incoming value. One over 64 KiB is replaced by a text with its size.
    pub received: RawJson,
    /// Value that was passed on; `None` if the element failed or passed nothing on.
    pub produced: Option<Produced>,
    /// Reason of a failure.
    pub error: Option<String>,
    /// Notes, such as warnings of a codec or the end of the trace.
    pub notes: Vec<String>,
}

/// Value that an element passed on.
#[derive(Clone, Debug, PartialEq)]
pub struct Produced {
    /// Trigger that it followed.
    pub trigger: &'static str,
    /// Value.
    pub value: RawJson,
}

/// A trace being recorded.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    steps: Vec<TraceStep>,
    bytes: usize,
}

impl Trace {
    pub(crate) fn into_steps(self) -> Vec<TraceStep> {
        self.steps
    }

    /// Records the beginning of the run.
    pub(crate) fn begins(&mut self, element: &str, trigger: &'static str, value: &Value<'_>, notes: Vec<String>) {
        let received = self.shortened(value);
        let produced = Some(Produced { trigger, value: received.clone() });
        let step = TraceStep { element: Arc::from(element), ability: None, received, produced, error: None, notes };
        self.steps.push(step);
    }

    /// Records the use of an element.
    pub(crate) fn step(
        &mut self,
        target: &Installed,
        link: &Link,
        incoming: &Value<'_>,
        acted: &Computed<Passed<'_>>,
        notes: Vec<String>,
    ) {
        if self.steps.len() >= TRACE_STEPS_MAX || self.bytes >= TRACE_BYTES_MAX {
            if let Some(last) = self.steps.last_mut().filter(|last| last.notes.last().is_none_or(|it| it != CUT)) {
                last.notes.push(CUT.to_owned());
            }
            return;
        }
        let passed = acted.as_ref().ok().filter(|passed| passed.trigger < target.triggers.len());
        let step = TraceStep {
            element: Arc::clone(&target.name),
            ability: target.shape.abilities.get(link.ability).map(|ability| ability.name),
            received: self.shortened(incoming),
            produced: passed.map(|passed| Produced {
                trigger: target.shape.trigger_name(passed.trigger),
                value: self.shortened(&passed.value),
            }),
            error: acted.as_ref().err().map(|problem| cut(&problem.0).to_owned()),
            notes,
        };
        self.bytes += step.error.as_ref().map_or(0, String::len) + step.notes.iter().map(String::len).sum::<usize>();
        self.steps.push(step);
    }

    fn shortened(&mut self, value: &Value<'_>) -> RawJson {
        // A trace has its own limits.
        let raw = match to_raw(value, &Budget::of_units(u64::MAX)) {
            Ok(raw) => raw,
            Err(problem) => {
                self.bytes += TRACE_VALUE_BYTES_MAX;
                return text(format!("({})", problem.0));
            }
        };
        self.bytes += raw.bytes().len();
        if raw.bytes().len() > TRACE_VALUE_BYTES_MAX { text(format!("({} bytes)", raw.bytes().len())) } else { raw }
    }
}

/// Last note of a truncated trace.
const CUT: &str = "the trace ends here; the run went on";

fn text(text: String) -> RawJson {
    RawJson::from(&Json::Text(text.into()))
}
