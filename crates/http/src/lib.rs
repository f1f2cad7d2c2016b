//! The HTTP room: [`routes`] is its table of contents. A handler parses, calls one verb of the hub and dresses the
//! reply; everything that holds for every call (credentials, rate, request id, metrics, the shape of errors) happens
//! in [`gate`], once.

mod accept;
mod app;
mod appearance;
mod auth;
mod body;
mod call;
mod completed;
mod data;
mod devices;
mod doors;
mod dry_runs;
mod ending;
mod escapes;
mod events;
mod export;
mod filter;
mod forwarded;
mod frames;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod health;
mod host;
mod images;
mod lane;
mod line;
mod list;
mod locations;
mod meters;
mod notifications;
mod openapi;
mod organizations;
mod pace;
mod patience;
mod problem;
mod projects;
mod query;
mod reply;
mod routes;
mod serve;
mod setting_views;
mod settings;
mod shares;
mod unread;
mod users;
mod views;
mod webhook;

pub use app::{App, HttpSettings, app};
pub use forwarded::{BadNetwork, Network};
pub use meters::prometheus;
pub use openapi::openapi;
pub use routes::{Entry, RouteRow, table};
pub use serve::{listen, serve};
