//! What must be remembered: the registry (who and what, in SQL) and telemetry (what devices said, in a wide-column store).
//!
//! Nothing above this crate knows SQL or the bytes of a key. A method that touches a tenant's rows demands a permit
//! from [`isobar_model::access`].

pub mod by_use;
pub mod error;
pub mod registry;
pub mod suite;
pub mod telemetry;

/// Files that both stores together have open at a time, at most. Whoever bounds what else the process opens keeps so many
/// aside: RocksDB takes no more writes once it could not open its next file, until it is opened anew.
pub const FILES_MAX: u64 = telemetry::embedded::TELEMETRY_FILES_MAX + registry::REGISTRY_FILES_MAX;
