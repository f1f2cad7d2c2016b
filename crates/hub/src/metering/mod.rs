//! Counts in memory, and writes to the registry from time to time: activity, and stored data with its limits.

pub(crate) mod activity;
mod key_uses;
mod limits;
pub(crate) mod usage;
