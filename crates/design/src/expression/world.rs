//! Inputs of expressions: the event, the device, its settings and last values, and this run's changes to them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use isobar_model::json::{Json, RawJson};
use isobar_model::setting::{setting_bytes, settings_exceed};
use isobar_model::status::Status;

use super::labels::Labels;
use super::node::{Root, Variable};
use crate::value::budget::Budget;
use crate::value::held_bytes::{HeldBytes, block};
use crate::value::inputs::{DeviceView, EventView, Memory};
use crate::value::setting::SettingDefinition;
use crate::value::{Computed, Problem, Value};

/// Units for each part of a variable that is built anew each time.
const PART_UNITS: usize = 4;

/// Last values that were read: kept so that trees can borrow them.
#[derive(Default)]
pub(crate) struct LastTexts(OnceCell<Vec<OnceCell<Option<RawJson>>>>);

/// The device's own settings that are compared for one unit: their names may be long and similar.
const OWN_SETTINGS_PER_UNIT: usize = 2;

/// Settings and storage elements that a design declares; expressions refer to them by index.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    /// Ordered by listOrder, then name.
    pub(crate) settings: Vec<SettingDefinition>,
    /// Parsed default values of the settings.
    pub(crate) defaults: Vec<Json<'static>>,
    pub(crate) storages: Vec<Arc<str>>,
}

impl HeldBytes for Declarations {
    fn held_bytes(&self) -> usize {
        let storages = block(self.storages.capacity() * size_of::<Arc<str>>());
        self.settings.held_bytes() + self.defaults.held_bytes() + storages
    }
}

/// Inputs that are constant during a run. Trees are parsed when they are first read.
pub(crate) struct World<'e> {
    pub(crate) declarations: &'e Declarations,
    pub(crate) event: &'e EventView<'e>,
    pub(crate) device: &'e DeviceView,
    pub(crate) memory: &'e dyn Memory,
    last_texts: &'e LastTexts,
    meta: OnceCell<Json<'e>>,
    /// The device's own values, if it has any.
    settings: OnceCell<Vec<OnceCell<Option<Json<'e>>>>>,
    last: OnceCell<Vec<OnceCell<Json<'e>>>>,
}

/// Changes by a run so far, as its further expressions see them.
pub(crate) struct Changes<'e> {
    pub(crate) status: Status,
    /// Changed settings, by index.
    settings: BTreeMap<u32, ChangedSetting<'e>>,
    /// Size of all own values in bytes with these changes; `None` before the first.
    settings_bytes: Option<usize>,
    pub(crate) labels: Labels<'e>,
}

struct ChangedSetting<'e> {
    value: Value<'e>,
    /// Size in bytes as one of the device's own values; `None`: it is the default.
    own_bytes: Option<usize>,
}

/// Sizes in bytes of a device's own values after a change.
#[derive(Clone, Copy)]
pub(crate) struct SettingsSize {
    /// Size of the changed one; `None`: it has its default.
    own: Option<usize>,
    all: usize,
}

impl<'e> Changes<'e> {
    pub(crate) fn none(status: Status) -> Self {
        Self { status, settings: BTreeMap::new(), settings_bytes: None, labels: Labels::default() }
    }

    /// Changes a setting, with the resulting sizes.
    pub(crate) fn change_setting(&mut self, setting: u32, value: Value<'e>, size: SettingsSize) {
        self.settings_bytes = Some(size.all);
        self.settings.insert(setting, ChangedSetting { value, own_bytes: size.own });
    }

    /// Notes the value of a setting whose change has triggered the run.
    pub(crate) fn note_setting(&mut self, setting: u32, value: Value<'e>, own_bytes: Option<usize>) {
        self.settings.insert(setting, ChangedSetting { value, own_bytes });
    }
}

fn cells<T>(many: &OnceCell<Vec<OnceCell<T>>>, count: usize, at: u32) -> Option<&OnceCell<T>> {
    many.get_or_init(|| (0..count).map(|_| OnceCell::new()).collect()).get(at as usize)
}

impl<'e> World<'e> {
    pub(crate) fn new(
        declarations: &'e Declarations,
        event: &'e EventView<'e>,
        device: &'e DeviceView,
        memory: &'e dyn Memory,
        last_texts: &'e LastTexts,
    ) -> Self {
        let (meta, settings, last) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { declarations, event, device, memory, last_texts, meta, settings, last }
    }

    /// Returns the root of a path; the machine handles local variables.
    pub(crate) fn root(&'e self, root: Root, changes: &Changes<'e>, budget: &Budget) -> Computed<Value<'e>> {
        Ok(match root {
            Root::Payload | Root::EventPayload | Root::Local(_) => Value::from(self.event.tree),
            Root::Meta => return self.whole_meta(changes, budget),
            Root::Setting(setting) => return self.setting(setting, changes, budget),
            Root::Last(storage) => self.last(storage, budget)?.unwrap_or(Value::Object(&[])),
        })
    }

    /// Returns the metadata before this run.
    pub(crate) fn meta(&'e self, budget: &Budget) -> Computed<Value<'e>> {
        read_once(&self.meta, &self.device.meta, budget).map(Value::from)
    }

    /// Returns the size of that metadata in bytes.
    pub(crate) fn meta_bytes(&self) -> usize {
        self.device.meta.bytes().len()
    }

    fn whole_meta(&'e self, changes: &Changes<'e>, budget: &Budget) -> Computed<Value<'e>> {
        let before = self.meta(budget)?;
        let (labels, Value::Object(members)) = (&changes.labels, &before) else { return Ok(before) };
        if labels.len() == 0 {
            return Ok(before);
        }
        budget.spend(2 * (members.len() + labels.len()))?;
        budget.spend_bytes(self.meta_bytes())?;
        let kept = members.iter().filter(|(name, _)| labels.get(name).is_none());
        let kept = kept.map(|(name, value)| (Value::Text(name), Value::from(value)));
        let changed = labels.all().map(|(tag, value)| (Value::Built(Rc::clone(tag)), value.clone()));
        Value::map(kept.chain(changed).collect())
    }

    /// Returns true if a setting has one of the device's own values, which are searched.
    pub(crate) fn finds_own_setting(&self, setting: u32, changes: &Changes<'e>, budget: &Budget) -> Computed<bool> {
        budget.spend(self.device.settings.len() / OWN_SETTINGS_PER_UNIT)?;
        Ok(self.own_bytes(setting, changes).is_some())
    }

    /// Returns the size of a setting's own value in bytes; `None` if it has the default.
    pub(crate) fn own_bytes(&self, setting: u32, changes: &Changes<'e>) -> Option<usize> {
        if let Some(changed) = changes.settings.get(&setting) {
            return changed.own_bytes;
        }
        let definition = self.declarations.settings.get(setting as usize)?;
        self.own_setting(setting).map(|value| setting_bytes(&definition.name, value))
    }

    fn own_setting(&self, setting: u32) -> Option<&'e RawJson> {
        let definition = self.declarations.settings.get(setting as usize)?;
        self.device.settings.iter().find(|(own, _)| **own == *definition.name).map(|(_, value)| value)
    }

    /// Returns the size of the device's own values with this value of a setting, or its default; an error if too large.
    pub(crate) fn settings_size_with(
        &self,
        setting: u32,
        value: Option<&RawJson>,
        changes: &Changes<'e>,
        budget: &Budget,
    ) -> Computed<SettingsSize> {
        // All values are searched, and counted.
        budget.spend(self.device.settings.len())?;
        let before = changes.settings_bytes.unwrap_or_else(|| self.device.settings_bytes());
        let name = self.declarations.settings.get(setting as usize).map_or("", |definition| &definition.name);
        let own = value.map(|value| setting_bytes(name, value));
        let others = before.saturating_sub(self.own_bytes(setting, changes).unwrap_or(0));
        let all = others + own.unwrap_or(0);
        match settings_exceed(before, all) {
            None => Ok(SettingsSize { own, all }),
            Some(fault) => Err(Problem::new(format!("the value {fault}"))),
        }
    }

    /// Returns the value of a setting: changed by this run, the device's own, or the default of the design.
    pub(crate) fn setting(&'e self, setting: u32, changes: &Changes<'e>, budget: &Budget) -> Computed<Value<'e>> {
        if let Some(changed) = changes.settings.get(&setting) {
            return Ok(changed.value.clone());
        }
        let Some(cell) = cells(&self.settings, self.declarations.settings.len(), setting) else {
            return Ok(Value::Null);
        };
        if cell.get().is_none() {
            budget.spend(self.device.settings.len() / OWN_SETTINGS_PER_UNIT)?;
            let own = self.own_setting(setting);
            budget.spend_reading(own.map_or(0, |own| own.bytes().len()))?;
            cell.get_or_init(|| own.map(RawJson::tree));
        }
        let default = || self.declarations.defaults.get(setting as usize).map_or(Value::Null, Value::from);
        Ok(cell.get().and_then(Option::as_ref).map_or_else(default, Value::from))
    }

    /// Returns the last values of a storage element; `None` before anything was stored.
    pub(crate) fn last(&'e self, storage: u32, budget: &Budget) -> Computed<Option<Value<'e>>> {
        let storages = &self.declarations.storages;
        let (Some(name), Some(text), Some(tree)) = (
            storages.get(storage as usize),
            cells(&self.last_texts.0, storages.len(), storage),
            cells(&self.last, storages.len(), storage),
        ) else {
            return Ok(None);
        };
        if text.get().is_none() {
            budget.spend_bytes(self.memory.last_bytes(name))?;
        }
        match text.get_or_init(|| self.memory.last(name)) {
            Some(text) => read_once(tree, text, budget).map(|tree| Some(Value::from(tree))),
            None => Ok(None),
        }
    }

    /// Builds a variable.
    pub(crate) fn variable(
        &'e self,
        variable: Variable,
        changes: &Changes<'e>,
        budget: &Budget,
    ) -> Computed<Value<'e>> {
        budget.spend(PART_UNITS)?;
        let all = |names: &[(&'static str, Variable)]| -> Computed<Vec<(Value<'e>, Value<'e>)>> {
            names.iter().map(|(name, part)| Ok((Value::Text(name), self.variable(*part, changes, budget)?))).collect()
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
                parts.push((Value::Text("meta"), self.whole_meta(changes, budget)?));
                Value::map(parts)?
            }
            Variable::Settings => {
                let definitions = &self.declarations.settings;
                budget.spend(definitions.len())?;
                let value = |(it, at): (&'e SettingDefinition, u32)| {
                    Ok((Value::Text(&it.name), self.setting(at, changes, budget)?))
                };
                Value::map(definitions.iter().zip(0..).map(value).collect::<Computed<_>>()?)?
            }
            Variable::Last => {
                let storages = &self.declarations.storages;
                budget.spend(storages.len())?;
                let mut stored = Vec::new();
                for (name, at) in storages.iter().zip(0..) {
                    stored.extend(self.last(at, budget)?.map(|last| (Value::Text(name), last)));
                }
                Value::map(stored)?
            }
        })
    }
}

/// Parses a text to a tree, once, and charges for it.
fn read_once<'e>(tree: &'e OnceCell<Json<'e>>, text: &'e RawJson, budget: &Budget) -> Computed<&'e Json<'e>> {
    if tree.get().is_none() {
        budget.spend_reading(text.bytes().len())?;
    }
    Ok(tree.get_or_init(|| text.tree()))
}
