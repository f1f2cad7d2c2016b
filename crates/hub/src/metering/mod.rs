//! What is counted in memory and written to the registry now and then: activity, and stored data with its limits.

pub(crate) mod activity;
mod key_uses;
mod limits;
pub(crate) mod usage;
