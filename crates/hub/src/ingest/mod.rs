//! What changes a device: an event, a setting, an interval, the end of a call. Lock the device, run its design, commit, publish.

pub(crate) mod accepted;
pub(crate) mod design_runs;
pub(crate) mod device_event;
pub(crate) mod effects;
pub(crate) mod event_input;
pub(crate) mod queue_bells;
pub(crate) mod run_design;
