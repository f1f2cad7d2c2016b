//! E-mails and HTTP calls that the platform sends. The hub decides when and to whom, and retries.

pub mod calls;
mod guard;
pub mod mail;
mod plain_body;
