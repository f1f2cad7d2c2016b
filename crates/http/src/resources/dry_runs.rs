//! Dry runs of designs, and their views.

use isobar_hub::{DryRun, Effect, TraceStep};
use isobar_model::access::Action;
use isobar_model::alarm::{AlarmBegin, AlarmFinding};
use isobar_model::dry_run::DryRunInput;
use isobar_model::event::EventError;
use isobar_model::ids::ProjectId;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{AnyButNull, AnyJson, Id, Raw};
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) async fn specification_test(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let body = call.json(DryRunInput::read).await;
    let input = after(call.hub().allow_project(call.caller()?, id, Action::ProjectDryRun), body).await?;
    let found = call.hub().dry_run(call.caller()?, id, input).await?;
    response::ok(&DryRunJson::from(found))
}

/// The outcome of a dry run.
#[derive(Serialize, ToSchema)]
#[schema(as = DryRun)]
pub(crate) struct DryRunJson {
    /// Input and output of each element, in order; bounded.
    trace: Vec<TraceStepJson>,
    /// The effects that a run would have, in order.
    effects: Vec<EffectJson>,
    /// The errors of elements that failed; the rest ran all the same.
    errors: Vec<EventError>,
}

/// One step: an element was used, or the run began at it.
#[derive(Serialize, ToSchema)]
#[schema(as = TraceStep)]
struct TraceStepJson {
    element: String,
    /// The ability that was used; absent where the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ability: Option<&'static str>,
    /// The incoming value.
    #[schema(value_type = AnyJson)]
    received: Raw,
    /// The value that was passed on; absent if the element failed or passes nothing on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    produced: Option<ProducedJson>,
    /// The cause of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
    /// Further notes, like the warnings of a codec.
    notes: Vec<String>,
}

/// The output of an element.
#[derive(Serialize, ToSchema)]
#[schema(as = Produced)]
struct ProducedJson {
    /// Along which of its triggers.
    trigger: &'static str,
    #[schema(value_type = AnyJson)]
    value: Raw,
}

/// Something that would have happened.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schema(as = Effect)]
enum EffectJson {
    /// A value is stored.
    Store {
        element: String,
        #[schema(value_type = AnyJson)]
        value: Raw,
    },
    /// A cloud event is queued.
    #[schema(rename_all = "camelCase")]
    Send {
        element: String,
        #[schema(value_type = AnyJson)]
        payload: Raw,
        ttl_minutes: Option<u32>,
    },
    /// The device gets a status.
    SetStatus { status: &'static str },
    /// A label of the metadata gets a value.
    SetValue {
        tag: String,
        #[schema(value_type = AnyJson)]
        value: Raw,
    },
    /// The device moves.
    SetLocation { latitude: f64, longitude: f64 },
    /// A setting gets a value; null: back to the default.
    SetSetting {
        element: String,
        #[schema(value_type = Option<AnyJson>)]
        value: Option<Raw>,
    },
    /// People are told something.
    #[schema(rename_all = "camelCase")]
    Notify { element: String, message: String, minimum_role: &'static str },
    /// An alarm becomes active.
    Raise {
        element: String,
        key: String,
        title: String,
        severity: &'static str,
        #[schema(value_type = Option<AnyJson>)]
        value: Option<Raw>,
    },
    /// An alarm that is active is raised again.
    RaiseAgain {
        element: String,
        key: String,
        /// The number of times it was raised since it became active.
        count: u64,
        #[schema(value_type = Option<AnyJson>)]
        value: Option<Raw>,
    },
    /// An alarm is cleared.
    Clear { element: String, key: String },
    /// A server outside is called.
    Call {
        element: String,
        method: &'static str,
        url: String,
        /// Pairs of name and value.
        #[schema(value_type = Vec<Vec<String>>)]
        headers: Vec<(String, String)>,
        body: Option<String>,
    },
}

impl From<DryRun> for DryRunJson {
    fn from(found: DryRun) -> Self {
        Self {
            trace: found.trace.into_iter().map(TraceStepJson::from).collect(),
            effects: found.outcome.effects.into_iter().filter_map(effect).collect(),
            errors: found.outcome.errors,
        }
    }
}

impl From<TraceStep> for TraceStepJson {
    fn from(step: TraceStep) -> Self {
        Self {
            element: step.element.to_string(),
            ability: step.ability,
            received: Raw(step.received),
            produced: step.produced.map(|it| ProducedJson { trigger: it.trigger, value: Raw(it.value) }),
            error: step.error,
            notes: step.notes,
        }
    }
}

/// Converts an effect to its view; `None` for element states, which are internal.
fn effect(effect: Effect) -> Option<EffectJson> {
    Some(match effect {
        Effect::Remember { .. } | Effect::Forget { .. } => return None,
        Effect::Store { element, value } => EffectJson::Store { element: element.to_string(), value: Raw(value) },
        Effect::Send { element, payload, ttl_minutes } => {
            EffectJson::Send { element: element.to_string(), payload: Raw(payload), ttl_minutes }
        }
        Effect::SetStatus(status) => EffectJson::SetStatus { status: status.name() },
        Effect::SetMeta { tag, value } => EffectJson::SetValue { tag, value: Raw(value) },
        Effect::SetLocation(place) => EffectJson::SetLocation { latitude: place.latitude, longitude: place.longitude },
        Effect::SetSetting { element, value } => {
            EffectJson::SetSetting { element: element.to_string(), value: value.map(Raw) }
        }
        Effect::Alarm(finding) => alarm(*finding),
        Effect::Notify { element, message, minimum_role, .. } => {
            EffectJson::Notify { element: element.to_string(), message, minimum_role: minimum_role.name() }
        }
        Effect::Call { element, request } => EffectJson::Call {
            element: element.to_string(),
            method: request.method,
            url: request.url,
            headers: request.headers,
            body: request.body,
        },
    })
}

/// Converts a finding about an alarm to its view.
fn alarm(finding: AlarmFinding) -> EffectJson {
    let AlarmFinding { element, key, begin, count, value, cleared_at, .. } = finding;
    let value = value.map(Raw);
    match (begin.filter(|_| count == 1), cleared_at) {
        (Some(AlarmBegin { title, severity, .. }), _) => {
            EffectJson::Raise { element, key, title, severity: severity.name(), value }
        }
        (None, None) => EffectJson::RaiseAgain { element, key, count, value },
        (None, Some(_)) => EffectJson::Clear { element, key },
    }
}

/// Tries a design out.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = DryRunInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct DryRunInputJson {
    /// The specification to try, of which only `planes` counts; left out: that of the project.
    specification: Option<Raw>,
    /// The element at which the run begins: a deviceEvent, a deviceSetting or an interval.
    #[schema(min_length = 1, max_length = 128)]
    element_name: String,
    payload: AnyButNull,
    /// A device whose metadata, settings, values and states the run sees; left out: one is made up.
    device: Option<Id>,
}
