//! What every adapter promises, as scenes that any adapter is put through by its own tests.

pub mod registry;
pub mod telemetry;
