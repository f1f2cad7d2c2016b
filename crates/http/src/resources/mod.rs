//! The operations, a file for each noun: its handlers, and how it looks to a client. A handler reads the request, calls one
//! verb of the hub and makes the response.
//!
//! Nothing here knows of connections or routes.

pub(crate) mod about;
pub(crate) mod alarms;
pub(crate) mod appearance;
pub(crate) mod auth;
pub(crate) mod board_links;
pub(crate) mod boards;
pub(crate) mod buckets;
pub(crate) mod data;
mod device_csv;
pub(crate) mod devices;
pub(crate) mod dry_runs;
pub(crate) mod event_batches;
pub(crate) mod events;
mod export;
pub(crate) mod health;
pub(crate) mod images;
pub(crate) mod locations;
pub(crate) mod notifications;
pub(crate) mod organizations;
pub(crate) mod projects;
pub(crate) mod settings;
pub(crate) mod specifications;
pub(crate) mod users;
pub(crate) mod values;
pub(crate) mod views;
pub(crate) mod wall;
pub(crate) mod webhook;
pub(crate) mod words;
