//! Stores what Isobar remembers: the registry (people, projects and devices, in SQL) and telemetry (values and events
//! that devices report, in a wide-column store).
//!
//! Nothing above this crate knows SQL or the bytes of a key. A method that touches a tenant's rows demands a permit
//! from [`isobar_model::access`].

pub mod error;
#[cfg(test)]
#[path = "../tests/suite/telemetry/given.rs"]
mod given;
mod postgres;
pub mod registry;
pub mod telemetry;

pub use postgres::{server_of, usable_connections};

/// The name by which the suite, which the tests of the crate share, knows it.
#[cfg(test)]
extern crate self as isobar_store;

/// Bounds the files that both stores together have open at a time. Code that limits other open files of the process
/// reserves this number first: RocksDB accepts no more writes after it could not open its next file, until it is
/// reopened.
pub const FILES_MAX: u64 = telemetry::embedded::TELEMETRY_FILES_MAX + registry::REGISTRY_FILES_MAX;
