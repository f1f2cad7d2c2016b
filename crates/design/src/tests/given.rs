//! Test fixture: a project with a design, one device, and the state that its events have left.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use isobar_model::error::Fault;
use isobar_model::event::STATE_BYTES_BESIDE;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use serde_json::Value;

use crate::{DeviceView, Effect, EventView, Memory, Outcome, Plan, TraceStep, Trigger, run, run_traced};

pub(crate) fn raw(text: impl AsRef<str>) -> RawJson {
    RawJson::check(Bytes::copy_from_slice(text.as_ref().as_bytes())).unwrap()
}

/// Compiles the elements of a cloud plane.
pub(crate) fn compile(elements: Value) -> Result<Plan, Vec<Fault>> {
    let planes = raw(serde_json::json!({"cloud": {"elements": elements}}).to_string());
    Plan::compile(&planes.tree())
}

#[derive(Default)]
pub(crate) struct Left {
    pub(crate) last: HashMap<String, RawJson>,
    pub(crate) states: HashMap<String, Bytes>,
}

impl Memory for Left {
    fn last(&self, element: &str) -> Option<RawJson> {
        self.last.get(element).cloned()
    }

    fn last_bytes(&self, element: &str) -> usize {
        self.last.get(element).map_or(0, |last| last.bytes().len())
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        self.states.get(element).cloned()
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        self.states.iter().map(|(element, state)| (Arc::from(element.as_str()), state.len())).collect()
    }

    fn states_bytes(&self) -> usize {
        self.states.iter().map(|(element, state)| element.len() + state.len() + STATE_BYTES_BESIDE).sum()
    }
}

pub(crate) struct Scene {
    pub(crate) plan: Plan,
    pub(crate) device: DeviceView,
    pub(crate) left: Left,
    pub(crate) now: Timestamp,
    /// Time of receipt of the newest event, if the clock was set back since.
    pub(crate) newest: Option<Timestamp>,
}

fn id(text: &str) -> DeviceId {
    text.parse().unwrap()
}

pub(crate) const DEVICE: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
pub(crate) const ORGANIZATION: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
pub(crate) const EVENT: &str = "01890a5d-ac96-774b-bcce-b302099a8059";
pub(crate) const RECEIVED_AT: &str = "2026-03-04T05:06:07.089Z";

impl Scene {
    pub(crate) fn new(elements: Value) -> Self {
        let device = DeviceView {
            id: id(DEVICE),
            name: "fridge".to_owned(),
            organization: OrganizationId(id(ORGANIZATION).0),
            meta: raw(r#"{"site":"north","floor":3}"#),
            status: Status::Good,
            settings: Vec::new(),
            alarms: Arc::default(),
        };
        Self {
            plan: compile(elements).unwrap(),
            device,
            left: Left::default(),
            now: RECEIVED_AT.parse().unwrap(),
            newest: None,
        }
    }

    /// Makes a scene in which `in` leads to a transform with that expression, whose result is stored in `out`.
    pub(crate) fn transforming(expression: &str) -> Self {
        Self::new(transforming(expression))
    }

    pub(crate) fn with_setting(mut self, name: &str, value: &str) -> Self {
        self.device.settings.push((Arc::from(name), raw(value)));
        self
    }

    pub(crate) fn with_last(mut self, element: &str, values: &str) -> Self {
        self.left.last.insert(element.to_owned(), raw(values));
        self
    }

    fn received_at(&self) -> Timestamp {
        self.newest.map_or(self.now, |newest| newest.max(self.now))
    }

    fn run(&self, trigger: Trigger<'_>, element: &str, payload: &RawJson) -> Outcome {
        let tree = payload.tree();
        let (id, now) = (EventId(id(EVENT).0), self.now);
        let event = EventView { id, element, received_at: self.received_at(), now, payload, tree: &tree };
        run(&self.plan, trigger, &event, &self.device, &self.left)
    }

    /// Posts an event to `in`, and traces the run.
    pub(crate) fn trace(&self, payload: impl AsRef<str>) -> (Outcome, Vec<TraceStep>) {
        let payload = raw(payload);
        let tree = payload.tree();
        let event = EventView {
            id: EventId(id(EVENT).0),
            element: "in",
            received_at: self.received_at(),
            now: self.now,
            payload: &payload,
            tree: &tree,
        };
        run_traced(&self.plan, Trigger::DeviceEvent { element: "in" }, &event, &self.device, &self.left)
    }

    /// Triggers an interval.
    pub(crate) fn elapsed(&self, element: &str) -> Outcome {
        self.run(Trigger::Elapsed { element }, element, &raw("{}"))
    }

    /// Ends a call.
    pub(crate) fn answered(&self, element: &str, response: bool, payload: &str) -> Outcome {
        self.run(Trigger::Answered { element, response }, element, &raw(payload))
    }

    /// Advances the clock.
    pub(crate) fn wait_minutes(&mut self, minutes: f64) {
        self.now = Timestamp::from_millis(self.now.millis() + (minutes * 60_000.0) as i64);
    }

    /// Posts an event to `in`.
    pub(crate) fn post(&self, payload: impl AsRef<str>) -> Outcome {
        self.run(Trigger::DeviceEvent { element: "in" }, "in", &raw(payload))
    }

    pub(crate) fn post_raw(&self, element: &str, payload: &RawJson) -> Outcome {
        self.run(Trigger::DeviceEvent { element }, element, payload)
    }

    /// Changes a setting by the API.
    pub(crate) fn setting_changes(&self, name: &str, value: &str) -> Outcome {
        self.run(Trigger::SettingChanged { name }, name, &raw(value))
    }

    /// Posts an event and keeps the states that it leaves.
    pub(crate) fn post_and_keep(&mut self, payload: &str) -> Outcome {
        let outcome = self.post(payload);
        self.keep(&outcome);
        outcome
    }

    /// Keeps the states that a run leaves.
    pub(crate) fn keep(&mut self, outcome: &Outcome) {
        for effect in &outcome.effects {
            match effect {
                Effect::Remember { element, state } => {
                    self.left.states.insert(element.to_string(), state.clone());
                }
                Effect::Forget { element } => drop(self.left.states.remove(element.as_ref())),
                Effect::Alarm(finding) => Arc::make_mut(&mut self.device.alarms).apply(finding),
                _ => {}
            }
        }
    }

    /// Begins a run that no event has caused.
    pub(crate) fn begins(&self, trigger: Trigger<'_>, payload: &RawJson) -> Outcome {
        self.run(trigger, trigger.element(), payload)
    }
}

pub(crate) fn transforming(expression: &str) -> Value {
    serde_json::json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "t", "ability": "evaluate"}]}},
        "t": {"type": "transform", "properties": {"expression": expression},
              "triggers": {"result": [{"element": "out", "ability": "store"}]}},
        "out": {"type": "storage"},
        "readings": {"type": "storage"},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
        "label": {"type": "deviceSetting", "properties": {}},
    })
}

/// Makes a scene in which `in` leads to the given links, with these other elements.
pub(crate) fn scene(links: Value, others: Value) -> Scene {
    let mut elements = serde_json::json!({"in": {"type": "deviceEvent", "triggers": {"eventReceived": links}}});
    let members = elements.as_object_mut().unwrap();
    members.extend(others.as_object().unwrap().clone());
    Scene::new(elements)
}

pub(crate) fn link(element: &str, ability: &str) -> Value {
    serde_json::json!({"element": element, "ability": ability})
}

/// Formats effects, one line each, without element states.
pub(crate) fn done(outcome: &Outcome) -> Vec<String> {
    told(outcome).into_iter().filter(|line| !line.starts_with("remember ")).collect()
}

/// Formats effects, one line each.
pub(crate) fn told(outcome: &Outcome) -> Vec<String> {
    let effects = outcome.effects.iter().map(|effect| match effect {
        Effect::Store { element, value } => format!("store {element} {}", value.text()),
        Effect::Send { element, payload, ttl_minutes: Some(ttl) } => format!("send {element} {} {ttl}", payload.text()),
        Effect::Send { element, payload, ttl_minutes: None } => format!("send {element} {}", payload.text()),
        Effect::SetStatus(status) => format!("status {}", status.name()),
        Effect::SetMeta { tag, value } => format!("meta {tag} {}", value.text()),
        Effect::SetLocation(location) => format!("location {} {}", location.latitude, location.longitude),
        Effect::SetSetting { element, value: Some(value) } => format!("set {element} {}", value.text()),
        Effect::SetSetting { element, value: None } => format!("reset {element}"),
        Effect::Remember { element, state } => format!("remember {element} {}", String::from_utf8_lossy(state)),
        Effect::Forget { element } => format!("forget {element}"),
        Effect::Notify { element, message, minimum_role, .. } => {
            format!("notify {element} {} {message}", minimum_role.name())
        }
        Effect::Alarm(finding) => {
            let (element, key, count) = (&finding.element, &finding.key, finding.count);
            let value = finding.value.as_ref().map_or("-", |value| value.text());
            match (&finding.begin, finding.cleared_at) {
                (Some(begin), None) if count == 1 => {
                    format!("alarm {element} '{key}' {} {} {count} {value}", begin.severity.name(), begin.title)
                }
                (_, None) => format!("alarm {element} '{key}' again {count} {value}"),
                (_, Some(_)) => format!("alarm {element} '{key}' cleared {count}"),
            }
        }
        Effect::Call { element, request } => {
            let headers: Vec<String> = request.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let body = request.body.as_deref().unwrap_or("-");
            format!("call {element} {} {} [{}] {body}", request.method, request.url, headers.join(" "))
        }
    });
    let errors = outcome.errors.iter().map(|error| format!("error {}: {}", error.element, error.message));
    effects.chain(errors).collect()
}
