//! `interval`: triggers `elapsed` periodically, for each device (contract: The project design).

use super::properties::{MINUTES_MAX, Properties};
use super::{Element, Shape};

pub(crate) const SHAPE: Shape =
    Shape { name: "interval", abilities: &[], triggers: &["elapsed"], read: Interval::read };

/// An interval element.
#[derive(Debug)]
pub(crate) struct Interval {
    pub(crate) minutes: u32,
}

impl Interval {
    fn read(properties: &mut Properties<'_>) -> Element {
        if properties.get("minutes").is_none() {
            properties.fault("minutes", "is required");
        }
        Element::Interval(Self { minutes: properties.minutes("minutes", MINUTES_MAX).unwrap_or(1) })
    }
}
