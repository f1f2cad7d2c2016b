//! What must be remembered: the registry (who and what, in SQL) and telemetry (what devices said, in a wide-column store).
//!
//! Nothing above this crate knows SQL or the bytes of a key. A method that touches a tenant's rows demands a pass
//! from [`isobar_model::access`].

pub mod error;
pub mod registry;
pub mod suite;
pub mod telemetry;
pub mod turns;
