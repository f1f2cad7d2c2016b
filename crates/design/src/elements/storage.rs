//! `storage`: stores values.

use std::sync::Arc;

use isobar_model::json::RawJson;
use isobar_model::retention::{RETENTION_DAYS_MAX, RETENTION_VALUES_MAX, Retention};

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, fields, properties::Properties};
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "storage",
    abilities: &[Ability { name: "store", arguments: &["value"] }],
    triggers: &["stored"],
    read: Storage::read,
};

/// A storage element.
#[derive(Debug)]
pub(crate) struct Storage {
    name: Arc<str>,
    retention: Retention,
    fields: Option<RawJson>,
}

impl Storage {
    fn read(properties: &mut Properties<'_>) -> Element {
        let days = properties.whole("retentionDays", RETENTION_DAYS_MAX.into());
        let retention = Retention {
            days: days.and_then(|days| u32::try_from(days).ok()),
            values: properties.whole("valuesMax", RETENTION_VALUES_MAX),
        };
        let fields = fields::read(properties);
        Element::Storage(Self { name: properties.name.clone(), retention, fields })
    }

    /// Returns the retention of its values.
    pub(crate) fn retention(&self) -> Retention {
        self.retention
    }

    /// Returns the descriptions of its keys, by path.
    pub(crate) fn fields(&self) -> Option<&RawJson> {
        self.fields.as_ref()
    }

    pub(crate) fn store<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let (value, json) = run.json_argument(link, 0, incoming)?;
        run.store(link.target, &self.name, json)?;
        Ok(Passed { trigger: 0, value })
    }
}

impl HeldBytes for Storage {
    fn held_bytes(&self) -> usize {
        self.fields.held_bytes()
    }
}
