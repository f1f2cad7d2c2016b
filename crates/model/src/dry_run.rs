//! Dry runs of a design: the effects that an event would have (contract: The project design).

use crate::check::{Faults, Input};
use crate::error::Result;
use crate::ids::DeviceId;
use crate::json::{Json, RawJson};
use crate::project::empty_object;

/// Longest name of an element, in characters.
const ELEMENT_NAME_MAX: usize = 128;

/// The body that asks for a dry run.
#[derive(Clone, Debug)]
pub struct DryRunInput {
    /// The planes to try; `None` for those of the project.
    pub planes: Option<RawJson>,
    /// The element that receives the event.
    pub element: String,
    /// The payload.
    pub payload: RawJson,
    /// The device whose metadata, settings, values and states the run sees; `None` for an invented one.
    pub device: Option<DeviceId>,
}

impl DryRunInput {
    /// Reads a body and collects its faults. The caller adds those of the planes, which only the design can check.
    pub fn read(body: &Json<'_>) -> Result<(Self, Faults)> {
        let mut input = Input::body(body)?;
        let planes = input.nested("specification", |specification| {
            specification.object_patch("planes").over(None).unwrap_or_else(empty_object)
        });
        let payload = input.required_json("payload");
        let read = Self {
            planes: planes.over(None),
            element: input.required_text("elementName", 1, ELEMENT_NAME_MAX),
            payload,
            device: input.id("device"),
        };
        Ok((read, input.into_faults()))
    }
}
