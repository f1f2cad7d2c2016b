//! Compiles a specification to a plan, or returns all its faults, each with its path (contract: The project design).

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::error::Fault;
use isobar_model::json::{Json, RawJson};

use super::{Habits, Plan};
use crate::code::CheckTime;
use crate::elements::graph::{Argument, ELEMENTS_MAX, Graph, Installed, Link};
use crate::elements::properties::{Faults, Properties, Scope};
use crate::elements::{Ability, Element, Shape, device_setting};
use crate::expression::{Declarations, Expression, on_a_large_stack};
use crate::value::setting::SettingDefinition;
use crate::value::{beginning, owned};

/// Most links of a cloud plane.
const LINKS_MAX: usize = 10_000;
/// Longest name of an element, in characters.
const NAME_CHARS_MAX: usize = 128;
/// Path of the elements in a specification.
const ELEMENTS: &str = "planes.cloud.elements";

/// Compiles `planes`, with a time limit for checking its code.
pub(crate) fn compile(planes: &Json<'_>, code_time: CheckTime) -> Result<Plan, Vec<Fault>> {
    let fault = |path: &str, message: &str| Err(vec![Fault::new(path, message)]);
    if !matches!(planes, Json::Object(_)) {
        return fault("planes", "must be an object");
    }
    let elements = match planes.get("cloud") {
        None => return Ok(Plan::default()),
        Some(cloud @ Json::Object(_)) => cloud.get("elements"),
        Some(_) => return fault("planes.cloud", "must be an object"),
    };
    let elements = match elements {
        None => return Ok(Plan::default()),
        Some(Json::Object(elements)) if elements.is_empty() => return Ok(Plan::default()),
        Some(Json::Object(elements)) if elements.len() <= ELEMENTS_MAX => elements,
        Some(Json::Object(_)) => return fault(ELEMENTS, &format!("a cloud plane has at most {ELEMENTS_MAX} elements")),
        Some(_) => return fault(ELEMENTS, "must be an object"),
    };
    let elements: Vec<(&str, &Json<'_>)> = elements.iter().map(|(name, json)| (name.as_ref(), json)).collect();
    on_a_large_stack(|| PlanCompiler::new(&elements, code_time).compile())
        .unwrap_or_else(|| fault("planes.cloud", "cannot be compiled at present"))
}

/// An element of the specification; its shape is known if its type is.
struct Draft<'p> {
    name: Arc<str>,
    json: &'p Json<'p>,
    path: String,
    shape: Option<&'static Shape>,
}

struct PlanCompiler<'p> {
    drafts: Vec<Draft<'p>>,
    by_name: BTreeMap<Arc<str>, u32>,
    scope: Scope,
    faults: Faults,
    links: usize,
    /// Links of the element that is being compiled.
    edges: Vec<Edge>,
}

/// A link, for the search for cycles.
struct Edge {
    target: usize,
    path: String,
}

impl<'p> PlanCompiler<'p> {
    fn new(elements: &[(&str, &'p Json<'p>)], code_time: CheckTime) -> Self {
        let mut faults = Faults::default();
        let drafts: Vec<Draft<'p>> = elements.iter().map(|(name, json)| draft(name, json, &mut faults)).collect();
        let by_name = drafts.iter().zip(0..).map(|(draft, at)| (draft.name.clone(), at)).collect();
        Self { drafts, by_name, scope: Scope::of(code_time), faults, links: 0, edges: Vec::new() }
    }

    fn compile(mut self) -> Result<Plan, Vec<Fault>> {
        let storages = self.name_storages();
        let settings = self.define_settings();
        let drafts = std::mem::take(&mut self.drafts);
        let mut elements = Vec::with_capacity(drafts.len());
        let mut edges = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            let element = draft.shape.map(|shape| (shape, self.element(shape, draft)));
            let triggers = self.triggers(draft, &drafts);
            edges.push(std::mem::take(&mut self.edges));
            let name = draft.name.clone();
            elements.extend(element.map(|(shape, element)| Installed { name, shape, element, triggers, steps: 0 }));
        }
        if self.links > LINKS_MAX {
            self.faults.add(ELEMENTS, format!("a cloud plane has at most {LINKS_MAX} links"));
        }
        refuse_cycles(edges, &drafts, &mut self.faults);
        if !self.faults.is_empty() {
            return Err(self.faults.into_vec());
        }
        let defaults = settings.iter().map(|setting| owned(&setting.default_value.tree())).collect();
        let reads_last = self.scope.names.reads_last.get();
        let mut habits = habits(&elements);
        habits.macros_deep = u32::try_from(self.scope.names.macros_deep.get()).unwrap_or(u32::MAX);
        let mut known = vec![None; elements.len()];
        let steps: Vec<u64> = (0..elements.len()).map(|at| steps_from(at, &elements, &mut known)).collect();
        habits.steps = steps.iter().copied().max().unwrap_or(0);
        elements.iter_mut().zip(steps).for_each(|(installed, steps)| installed.steps = steps);
        let alarms = (0..).zip(&elements).filter(|(_, it)| matches!(it.element, Element::Alarm(_)));
        let alarms = alarms.map(|(index, _)| index).collect();
        let graph = Graph { elements, by_name: self.by_name, alarms };
        Ok(Plan { graph, declarations: Declarations { settings, defaults, storages }, reads_last, habits })
    }

    fn of_type(&self, name: &str) -> Vec<usize> {
        let is_one = |draft: &Draft<'_>| draft.shape.is_some_and(|shape| shape.name == name);
        (0..self.drafts.len()).filter(|at| self.drafts.get(*at).is_some_and(is_one)).collect()
    }

    fn name_storages(&mut self) -> Vec<Arc<str>> {
        let storages: Vec<Arc<str>> =
            self.of_type("storage").into_iter().map(|at| self.drafts[at].name.clone()).collect();
        self.scope.names.storages = storages.iter().zip(0..).map(|(name, at)| (name.to_string(), at)).collect();
        for (at, storage) in self.of_type("storage").into_iter().zip(0..) {
            let fields = self.drafts[at].json.get("properties").and_then(|properties| properties.get("fields"));
            if let Some(fields) = fields {
                self.scope.meanings.add(storage, fields);
            }
        }
        storages
    }

    fn define_settings(&mut self) -> Vec<SettingDefinition> {
        let places = self.of_type("deviceSetting");
        let mut settings = Vec::with_capacity(places.len());
        for at in places {
            let (scope, faults) = (&self.scope, &mut self.faults);
            // The faults of `properties` itself are reported when the element is read.
            settings.push(device_setting::define(&mut properties(&self.drafts[at], scope, faults)));
        }
        settings.sort_by(|left, right| (left.list_order, &left.name).cmp(&(right.list_order, &right.name)));
        self.scope.names.settings =
            settings.iter().zip(0..).map(|(setting, at)| (setting.name.to_string(), at)).collect();
        settings
    }

    fn element(&mut self, shape: &Shape, draft: &Draft<'_>) -> Element {
        if !matches!(draft.json.get("properties"), None | Some(Json::Null | Json::Object(_))) {
            self.faults.add(format!("{}.properties", draft.path), "must be an object");
        }
        (shape.read)(&mut properties(draft, &self.scope, &mut self.faults))
    }

    fn triggers(&mut self, draft: &Draft<'_>, drafts: &[Draft<'_>]) -> Vec<Vec<Link>> {
        let path = format!("{}.triggers", draft.path);
        let mut triggers: Vec<Vec<Link>> = Vec::new();
        triggers.resize_with(draft.shape.map_or(0, |shape| shape.triggers.len()), Vec::new);
        let members = match draft.json.get("triggers") {
            None | Some(Json::Null) => return triggers,
            Some(Json::Object(members)) => members,
            Some(_) => {
                self.faults.add(path, "must be an object");
                return triggers;
            }
        };
        for (name, links) in members {
            let path = format!("{path}.{}", beginning(name, NAME_CHARS_MAX));
            let at = draft.shape.map(|shape| shape.triggers.iter().position(|trigger| trigger == name));
            if at == Some(None) {
                self.faults.add(path.as_str(), "unknown trigger");
            }
            let Json::Array(links) = links else {
                self.faults.add(path, "must be an array of links");
                continue;
            };
            self.links += links.len();
            if self.links > LINKS_MAX {
                return triggers;
            }
            let links: Vec<Option<Link>> = (links.iter().enumerate())
                .map(|(index, link)| self.link(link, &format!("{path}[{index}]"), drafts))
                .collect();
            if let Some(trigger) = at.flatten().and_then(|at| triggers.get_mut(at)) {
                trigger.extend(links.into_iter().flatten());
            }
        }
        triggers
    }

    fn link(&mut self, link: &Json<'_>, path: &str, drafts: &[Draft<'_>]) -> Option<Link> {
        let Json::Object(_) = link else {
            self.faults.add(path, "must be an object");
            return None;
        };
        let target = self.text(link, path, "element");
        let ability = self.text(link, path, "ability");
        let target = self.by_name.get(target?).copied().or_else(|| {
            self.faults.add(format!("{path}.element"), "unknown element");
            None
        })?;
        self.edges.push(Edge { target: target as usize, path: format!("{path}.element") });
        // A fault of the target's type is reported there.
        let shape = drafts.get(target as usize)?.shape?;
        let Some(at) = shape.abilities.iter().position(|it| Some(it.name) == ability) else {
            if ability.is_some() {
                self.faults.add(format!("{path}.ability"), format!("a {} has no such ability", shape.name));
            }
            return None;
        };
        let arguments = self.arguments(link.get("arguments"), path, &shape.abilities[at]);
        Some(Link { target, ability: at, arguments })
    }

    fn text<'j>(&mut self, link: &'j Json<'_>, path: &str, member: &str) -> Option<&'j str> {
        let text = link.get(member).and_then(Json::as_text);
        if text.is_none() {
            let message = if link.get(member).is_some() { "must be a string" } else { "is required" };
            self.faults.add(format!("{path}.{member}"), message);
        }
        text
    }

    fn arguments(&mut self, given: Option<&Json<'_>>, path: &str, ability: &Ability) -> Vec<Argument> {
        let path = format!("{path}.arguments");
        match given {
            None | Some(Json::Null) => {}
            Some(Json::Object(members)) => {
                let unknown = members.iter().filter(|(name, _)| !ability.arguments.contains(&name.as_ref()));
                unknown.for_each(|(name, _)| self.faults.add(format!("{path}.{name}"), "unknown argument"));
            }
            Some(_) => self.faults.add(path.as_str(), "must be an object"),
        }
        let mut argument = |name: &str| match given.and_then(|given| given.get(name)) {
            None => Argument::Incoming,
            Some(Json::Text(source)) => match Expression::compile(source, &self.scope.names) {
                Ok(expression) => Argument::Computed(expression),
                Err(message) => {
                    self.faults.add(format!("{path}.{name}"), message);
                    Argument::Incoming
                }
            },
            Some(constant) => Argument::Constant(owned(constant), RawJson::from(constant)),
        };
        ability.arguments.iter().map(|name| argument(name)).collect()
    }
}

fn draft<'p>(name: &str, json: &'p Json<'p>, faults: &mut Faults) -> Draft<'p> {
    let path = format!("{ELEMENTS}.{}", beginning(name, NAME_CHARS_MAX));
    if !(1..=NAME_CHARS_MAX).contains(&name.chars().count()) {
        faults.add(path.as_str(), format!("a name has 1 to {NAME_CHARS_MAX} characters"));
    }
    let shape = match (json, json.get("type")) {
        (Json::Object(_), Some(Json::Text(kind))) => Shape::named(kind).map_err(|message| (".type", message)),
        (Json::Object(_), Some(_)) => Err((".type", "must be a string".to_owned())),
        (Json::Object(_), None) => Err((".type", "is required".to_owned())),
        _ => Err(("", "must be an object".to_owned())),
    };
    let shape = shape.map_err(|(member, message)| faults.add(format!("{path}{member}"), message)).ok();
    Draft { name: Arc::from(name), json, path, shape }
}

fn properties<'a>(draft: &'a Draft<'a>, scope: &'a Scope, faults: &'a mut Faults) -> Properties<'a> {
    let path = format!("{}.properties", draft.path);
    Properties { name: &draft.name, json: draft.json.get("properties"), path, scope, faults }
}

/// Collects what the elements do besides answering events.
fn habits(elements: &[Installed]) -> Habits {
    let mut habits = Habits::default();
    for installed in elements {
        match &installed.element {
            Element::DeviceMeta(meta) => {
                let times = [habits.missing_after_minutes, meta.missing_after_minutes];
                habits.missing_after_minutes = times.into_iter().flatten().min();
            }
            Element::Function(_) => habits.runs_code = true,
            Element::Http(_) => habits.calls_out = true,
            Element::Interval(interval) => habits.intervals.push((installed.name.clone(), interval.minutes)),
            _ => {}
        }
    }
    habits
}

/// Returns the most steps of a run that begins at an element, which passes its value on along one of its triggers.
/// There are no cycles.
fn steps_from(at: usize, elements: &[Installed], known: &mut [Option<u64>]) -> u64 {
    if let Some(steps) = known[at] {
        return steps;
    }
    let mut most = 0_u64;
    for links in &elements[at].triggers {
        let steps = links.iter().fold(0_u64, |steps, link| {
            steps.saturating_add(1).saturating_add(steps_from(link.target as usize, elements, known))
        });
        most = most.max(steps);
    }
    known[at] = Some(most);
    most
}

/// Refuses cycles of links, in which values would circulate for ever.
fn refuse_cycles(edges: Vec<Vec<Edge>>, drafts: &[Draft<'_>], faults: &mut Faults) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Never; drafts.len()];
    let mut edges: Vec<std::vec::IntoIter<Edge>> = edges.into_iter().map(Vec::into_iter).collect();
    for start in 0..drafts.len() {
        let mut way = if seen[start] == Seen::Never { vec![start] } else { Vec::new() };
        while let Some(at) = way.last().copied() {
            seen[at] = Seen::OnTheWay;
            let Some(edge) = edges[at].next() else {
                seen[at] = Seen::Done;
                way.pop();
                continue;
            };
            match seen[edge.target] {
                Seen::Never => way.push(edge.target),
                Seen::OnTheWay => {
                    let back_to = &drafts[edge.target].name;
                    faults.add(edge.path, format!("closes a cycle back to '{back_to}'"));
                }
                Seen::Done => {}
            }
        }
    }
}
