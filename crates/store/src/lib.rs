//! Stores what Isobar remembers: the registry (people, projects and devices, in SQL) and telemetry (values and events
//! that devices report, in a wide-column store).
//!
//! Nothing above this crate knows SQL or the bytes of a key. A method that touches a tenant's rows demands a permit
//! from [`isobar_model::access`].

pub mod by_use;
pub mod error;
pub mod registry;
pub mod suite;
pub mod telemetry;

/// Bounds the files that both stores together have open at a time. Code that limits other open files of the process
/// reserves this number first: RocksDB accepts no more writes after it could not open its next file, until it is
/// reopened.
pub const FILES_MAX: u64 = telemetry::embedded::TELEMETRY_FILES_MAX + registry::REGISTRY_FILES_MAX;
