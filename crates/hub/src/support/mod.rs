//! Tools that know nothing of the platform's rooms.

pub(crate) mod body_reader;
pub(crate) mod bounded_jobs;
pub(crate) mod pace;
pub(crate) mod scope_guard;
pub(crate) mod sorting;
