//! What expressions see: the event, the device, its settings and last values, and what this run has changed of them.

use std::cell::OnceCell;

use isobar_model::json::{Json, RawJson};
use isobar_model::status::Status;
use smallvec::SmallVec;

use super::node::{Root, Variable};
use super::value::{Computed, Value};
use crate::plan::Plan;
use crate::{DeviceView, EventView, Memory};

/// Last values that were asked for: kept here, so that trees can borrow them.
#[derive(Default)]
pub(crate) struct LastTexts(OnceCell<Vec<OnceCell<Option<RawJson>>>>);

/// What stays as it is during a run. Trees are made when they are first asked for.
pub(crate) struct World<'e> {
    plan: &'e Plan,
    pub(crate) event: &'e EventView<'e>,
    device: &'e DeviceView,
    memory: &'e dyn Memory,
    last_texts: &'e LastTexts,
    meta: OnceCell<Json<'e>>,
    settings: OnceCell<Vec<OnceCell<Json<'e>>>>,
    last: OnceCell<Vec<OnceCell<Json<'e>>>>,
}

/// What a run has changed so far, as its next expressions see it.
pub(crate) struct Changes<'e> {
    pub(crate) status: Status,
    settings: SmallVec<[ChangedSetting<'e>; 2]>,
    /// Metadata by tag.
    pub(crate) meta: SmallVec<[(Value<'e>, Value<'e>); 2]>,
}

struct ChangedSetting<'e> {
    /// Its index.
    setting: u32,
    value: Value<'e>,
    /// Whether that is a value of the device's own, not the default.
    is_own: bool,
}

impl<'e> Changes<'e> {
    pub(crate) fn none(status: Status) -> Self {
        Self { status, settings: SmallVec::new(), meta: SmallVec::new() }
    }

    pub(crate) fn change_setting(&mut self, setting: u32, value: Value<'e>, is_own: bool) {
        self.settings.retain(|other| other.setting != setting);
        self.settings.push(ChangedSetting { setting, value, is_own });
    }

    fn setting(&self, setting: u32) -> Option<&ChangedSetting<'e>> {
        self.settings.iter().find(|other| other.setting == setting)
    }

    pub(crate) fn change_meta(&mut self, tag: &str, value: Value<'e>) {
        self.meta.retain(|(other, _)| other.as_text() != Some(tag));
        self.meta.push((Value::text(tag), value));
    }

    /// The new value of a tag.
    pub(crate) fn meta(&self, tag: &str) -> Option<&Value<'e>> {
        self.meta.iter().find(|(other, _)| other.as_text() == Some(tag)).map(|(_, value)| value)
    }
}

fn cells<T>(many: &OnceCell<Vec<OnceCell<T>>>, count: usize, at: u32) -> Option<&OnceCell<T>> {
    many.get_or_init(|| (0..count).map(|_| OnceCell::new()).collect()).get(at as usize)
}

impl<'e> World<'e> {
    pub(crate) fn new(
        plan: &'e Plan,
        event: &'e EventView<'e>,
        device: &'e DeviceView,
        memory: &'e dyn Memory,
        last_texts: &'e LastTexts,
    ) -> Self {
        let (meta, settings, last) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { plan, event, device, memory, last_texts, meta, settings, last }
    }

    /// Where a path begins; a local variable is the machine's business.
    pub(crate) fn root(&'e self, root: Root, changes: &Changes<'e>) -> Computed<Value<'e>> {
        Ok(match root {
            Root::Payload | Root::EventPayload | Root::Local(_) => Value::from(self.event.tree),
            Root::Meta => return self.whole_meta(changes),
            Root::Setting(setting) => self.setting(setting, changes),
            Root::Last(storage) => self.last(storage).unwrap_or(Value::Object(&[])),
        })
    }

    /// The metadata as it was before this run.
    pub(crate) fn meta(&'e self) -> Value<'e> {
        Value::from(self.meta.get_or_init(|| self.device.meta.tree()))
    }

    fn whole_meta(&'e self, changes: &Changes<'e>) -> Computed<Value<'e>> {
        let before = self.meta();
        if changes.meta.is_empty() {
            return Ok(before);
        }
        let kept = (0..before.len().unwrap_or(0)).filter_map(|at| {
            let key = before.item(at)?;
            let name = key.as_text()?;
            let value = if changes.meta(name).is_some() { None } else { before.member(name) };
            value.map(|value| (key.clone(), value))
        });
        Value::map(kept.chain(changes.meta.iter().cloned()).collect())
    }

    /// Whether a setting has a value of the device's own.
    pub(crate) fn has_own_setting(&self, setting: u32, changes: &Changes<'e>) -> bool {
        if let Some(changed) = changes.setting(setting) {
            return changed.is_own;
        }
        let definition = self.plan.settings().get(setting as usize);
        definition.is_some_and(|it| self.device.settings.iter().any(|(own, _)| **own == *it.name))
    }

    /// The value of a setting: changed by this run, the device's own, or the default of the design.
    pub(crate) fn setting(&'e self, setting: u32, changes: &Changes<'e>) -> Value<'e> {
        if let Some(changed) = changes.setting(setting) {
            return changed.value.clone();
        }
        let definitions = self.plan.settings();
        let Some(definition) = definitions.get(setting as usize) else { return Value::Null };
        let Some((_, own)) = self.device.settings.iter().find(|(name, _)| *name == definition.name) else {
            return self.plan.defaults.get(setting as usize).map_or(Value::Null, Value::from);
        };
        cells(&self.settings, definitions.len(), setting)
            .map_or(Value::Null, |cell| Value::from(cell.get_or_init(|| own.tree())))
    }

    /// The last values of a storage element; none before anything was stored.
    pub(crate) fn last(&'e self, storage: u32) -> Option<Value<'e>> {
        let storages = self.plan.storage_elements();
        let name = storages.get(storage as usize)?;
        let text =
            cells(&self.last_texts.0, storages.len(), storage)?.get_or_init(|| self.memory.last(name)).as_ref()?;
        Some(Value::from(cells(&self.last, storages.len(), storage)?.get_or_init(|| text.tree())))
    }

    /// A variable that is put together when it is asked for.
    pub(crate) fn variable(&'e self, variable: Variable, changes: &Changes<'e>) -> Computed<Value<'e>> {
        let all = |names: &[(&'static str, Variable)]| -> Computed<Vec<(Value<'e>, Value<'e>)>> {
            names.iter().map(|(name, part)| Ok((Value::Text(name), self.variable(*part, changes)?))).collect()
        };
        Ok(match variable {
            Variable::EventId => Value::text(self.event.id.to_string()),
            Variable::EventElement => Value::Text(self.event.element),
            Variable::EventReceivedAt => Value::Time(self.event.received_at.millis()),
            Variable::DeviceId => Value::text(self.device.id.to_string()),
            Variable::DeviceName => Value::Text(&self.device.name),
            Variable::DeviceOrganization => Value::text(self.device.organization.to_string()),
            Variable::DeviceStatus => Value::Int(i64::from(changes.status.number())),
            Variable::Event => {
                let mut parts = all(&[
                    ("id", Variable::EventId),
                    ("elementName", Variable::EventElement),
                    ("receivedAt", Variable::EventReceivedAt),
                ])?;
                parts.push((Value::Text("payload"), Value::from(self.event.tree)));
                Value::map(parts)?
            }
            Variable::Device => {
                let mut parts = all(&[
                    ("id", Variable::DeviceId),
                    ("name", Variable::DeviceName),
                    ("organizationId", Variable::DeviceOrganization),
                    ("statusInt", Variable::DeviceStatus),
                ])?;
                parts.push((Value::Text("meta"), self.whole_meta(changes)?));
                Value::map(parts)?
            }
            Variable::Settings => {
                let definitions = self.plan.settings().iter().zip(0..);
                Value::map(definitions.map(|(it, at)| (Value::Text(&it.name), self.setting(at, changes))).collect())?
            }
            Variable::Last => {
                let storages = self.plan.storage_elements().iter().zip(0..);
                let stored = storages.filter_map(|(name, at)| Some((Value::Text(name), self.last(at)?)));
                Value::map(stored.collect())?
            }
        })
    }
}
