//! What leaves the house.

pub mod calls;
mod guard;
