//! `deviceMeta`: sets the status, metadata and place of the device.

use isobar_model::device::Location;
use isobar_model::json::member_bytes;
use isobar_model::status::Status;

use super::context::{Passed, Run};
use super::graph::Link;
use super::properties::{MINUTES_MAX, Properties};
use super::{Ability, Element, Shape};
use crate::expression::equal;
use crate::value::effect::Effect;
use crate::value::{Computed, Problem, Value};

const SET_STATUS: usize = 0;
const ESCALATE_STATUS: usize = 1;
const SET_VALUE: usize = 2;

pub(crate) const SHAPE: Shape = Shape {
    name: "deviceMeta",
    abilities: &[
        Ability { name: "setStatus", arguments: &["status"] },
        Ability { name: "escalateStatus", arguments: &["status"] },
        Ability { name: "setValue", arguments: &["tag", "value"] },
        Ability { name: "setLocation", arguments: &["latitude", "longitude"] },
    ],
    triggers: &["done"],
    read,
};

/// Longest label, in characters.
const TAG_CHARS_MAX: usize = 128;

/// A deviceMeta element.
#[derive(Debug)]
pub(crate) struct DeviceMeta {
    /// Minutes without an event after which the device is missing.
    pub(crate) missing_after_minutes: Option<u32>,
}

fn read(properties: &mut Properties<'_>) -> Element {
    Element::DeviceMeta(DeviceMeta { missing_after_minutes: properties.minutes("missingAfterMinutes", MINUTES_MAX) })
}

pub(crate) fn act<'e>(link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
    match link.ability {
        SET_STATUS | ESCALATE_STATUS => {
            let status = status(&run.argument(link, 0, incoming)?)?;
            let raises_only = link.ability == ESCALATE_STATUS;
            let differs = if raises_only { status > run.changes.status } else { status != run.changes.status };
            if differs {
                run.budget.emit(Effect::SetStatus(status))?;
                run.changes.status = status;
            }
        }
        SET_VALUE => set_value(link, incoming, run)?,
        _ => {
            let degrees = |index: usize| {
                let value = run.argument(link, index, incoming)?;
                let number = value.number().ok_or_else(|| Problem::new("latitude and longitude must be numbers"))?;
                Ok(number.as_f64())
            };
            let location = Location::new(degrees(0)?, degrees(1)?);
            let location =
                location.ok_or_else(|| Problem::new("the latitude or the longitude is out of its bounds"))?;
            run.budget.emit(Effect::SetLocation(location))?;
        }
    }
    Ok(Passed { trigger: 0, value: incoming.clone() })
}

/// Reads a statusText or a statusInt.
fn status(value: &Value<'_>) -> Computed<Status> {
    let status = match value.as_text() {
        Some(name) => Status::named(name),
        None => value.whole().and_then(Status::numbered),
    };
    status.ok_or_else(|| Problem::new("a status is none, good, info, warning, critical, missing, or its number 0 to 5"))
}

fn set_value<'e>(link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<()> {
    let tag = run.argument(link, 0, incoming)?;
    let sound = |tag: &&str| !tag.is_empty() && tag.chars().nth(TAG_CHARS_MAX).is_none();
    let Some(tag) = tag.as_text().filter(sound) else {
        return Err(Problem::new(format!("a tag must be a text of 1 to {TAG_CHARS_MAX} characters")));
    };
    let (value, json) = run.json_argument(link, 1, incoming)?;
    let present = run.label(tag)?;
    if let Some(present) = &present
        && equal(present, &value, &run.budget)?
    {
        return Ok(());
    }
    let before = run.meta_size()?;
    let present = present.map(|present| Ok(member_bytes(tag, &run.json(&present)?))).transpose()?;
    let size = run.changes.labels.size_with(tag, &json, before, present)?;
    run.budget.emit(Effect::SetMeta { tag: tag.to_owned(), value: json })?;
    run.changes.labels.set(tag, value, size);
    Ok(())
}
