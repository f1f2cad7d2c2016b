//! A dry run of a design: what would happen if an event came (contract: The project design).

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
    /// The planes to try; none: those of the project.
    pub planes: Option<RawJson>,
    /// The element that the run begins at.
    pub element: String,
    /// The payload.
    pub payload: RawJson,
    /// The device whose metadata, settings, values and states the run sees; none: one that is made up.
    pub device: Option<DeviceId>,
}

impl DryRunInput {
    /// Reads a body and gathers its faults. Whether the planes can be executed is the design's to say; only then are all
    /// faults known.
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
