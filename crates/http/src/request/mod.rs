//! The content of a request: sender, path, parameters, headers and body. A handler sees it as a [`Call`].
//!
//! This module does not know connections, handlers or routes.

pub(crate) mod alarm_fields;
mod body;
pub(crate) mod buckets;
mod call;
mod client;
pub(crate) mod columns;
pub(crate) mod device_fields;
pub(crate) mod filter;
mod forwarded;
pub(crate) mod host;
pub(crate) mod lists;
mod map;
pub(crate) mod negotiation;
pub(crate) mod origin;
mod percent;
pub(crate) mod query;
mod stream;
mod transfer;

pub(crate) use body::{RequestBody, drain};
pub(crate) use call::{Call, MERGE_PATCH_TYPE, REFRESH_COOKIE, after, both, credentials, path_parameters};
pub(crate) use client::{Client, ClientSocket};
pub use forwarded::{BadNetwork, Network};
pub(crate) use forwarded::{client_behind, is_trusted};
pub(crate) use stream::Stream;
pub(crate) use transfer::{TRANSFER_TIME, time_for};
