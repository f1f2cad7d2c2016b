mod alarms;
mod bounds;
mod code;
mod code_forms;
mod effects;
mod faults;
mod fields;
mod given;
mod hostile_code;
mod hostile_threads;
mod laws;
mod outside;
mod plans;
mod prices;
mod rules;
mod traces;
mod windows;

pub(crate) use given::{Scene, raw};
