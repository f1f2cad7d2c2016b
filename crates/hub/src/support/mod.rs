//! Utilities that do not depend on the platform's domain.

pub(crate) mod body_reader;
pub(crate) mod bounded_jobs;
pub(crate) mod pace;
pub(crate) mod scope_guard;
pub(crate) mod sorting;
