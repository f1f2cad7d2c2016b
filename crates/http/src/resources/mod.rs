//! The operations, one file a noun: handlers and views. A handler reads the request, calls one method of the hub and
//! makes the response.
//!
//! This module does not know connections or routes.

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
pub(crate) mod platform;
pub(crate) mod projects;
pub(crate) mod settings;
pub(crate) mod specifications;
pub(crate) mod users;
pub(crate) mod values;
pub(crate) mod views;
pub(crate) mod wall;
pub(crate) mod webhook;
pub(crate) mod words;
