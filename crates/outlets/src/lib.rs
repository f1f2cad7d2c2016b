//! What leaves the house. Nothing here decides when or to whom: the hub does, and tries again when it fails.

pub mod calls;
mod guard;
pub mod mail;
mod plain_body;
