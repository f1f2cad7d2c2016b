//! Isobar as its clients meet it: real HTTP against a real hub on real stores. A file for each noun.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a scene's helpers fail with the scene")]

mod access;
mod appearance;
mod at_once;
mod bad_input;
mod bounds;
mod calls;
mod code;
mod conformance;
mod data;
mod design_elements;
mod device_tokens;
mod devices;
mod dry_runs;
mod events;
mod exports;
mod images;
mod intervals;
mod locations;
mod long_lists;
mod mail;
mod main_road;
mod manners;
mod moves;
mod notifications;
mod organizations;
mod profiles;
mod projects;
mod queue;
mod rates;
mod registration;
mod rubbish;
mod searches;
mod sessions;
mod settings;
mod settings_bulk;
mod shown;
mod streams;
mod support;
mod usage;
mod users;
mod webhook;
mod webhook_guides;
mod webhook_hostile;
mod webhook_limits;
