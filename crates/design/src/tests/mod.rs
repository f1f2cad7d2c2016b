mod bounds;
mod faults;
mod given;
mod laws;
mod plans;
mod rules;

pub(crate) use given::{Scene, raw};
