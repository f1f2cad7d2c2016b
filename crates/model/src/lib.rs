//! The nouns of Isobar and their rules: organizations, users, projects, devices and events; access; JSON, time and
//! pages. Nothing here does I/O, and only the clock awaits.

pub mod access;
pub mod alarm;
pub mod appearance;
pub mod board;
pub mod board_link;
pub mod buckets;
pub mod chance;
pub mod check;
pub mod device;
pub mod dry_run;
pub mod error;
pub mod event;
pub mod event_batch;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod ids;
pub mod json;
pub mod jsonpath;
pub mod limits;
pub mod map;
pub mod meta;
pub mod notification;
pub mod organization;
pub mod page;
pub mod path;
pub mod preferences;
pub mod project;
pub mod quote;
pub mod retention;
pub mod role;
pub mod secret;
pub mod session;
pub mod setting;
pub mod site;
pub mod status;
pub mod time;
pub mod user;
pub mod user_input;
pub mod version;
pub mod view;
pub mod widget;
