//! The project design: a specification is compiled to a checked [`Plan`], which runs on every event.
//!
//! Nothing here does I/O, reads a clock or draws random numbers. A run takes its inputs ([`EventView`], [`DeviceView`],
//! [`Memory`]) and returns its effects ([`Outcome`]), which `hub` carries out.
//!
//! The modules are floors: each imports lower ones only (ARCHITECTURE.md, The map).

mod code;
mod elements;
mod expression;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod plan;
mod run;
mod value;

#[cfg(test)]
mod tests;

pub use elements::device_event::Integration;
pub use plan::Plan;
pub use run::trace::{Produced, TraceStep};
pub use run::{run, run_traced};
pub use value::budget::{LONG_RUN_UNITS, SHORT_RUN_BYTES_MAX};
pub use value::effect::{Effect, Outcome, OutgoingRequest};
pub use value::failures::ERRORS_MAX;
pub use value::inputs::{DeviceView, EmptyMemory, EventView, Memory, Trigger};
pub use value::setting::{InputType, SettingDefinition};
