//! The HTTP room: [`routes`] is its table of contents. A handler parses, calls one verb of the hub and dresses the
//! reply; everything that holds for every call (credentials, rate, request id, metrics, the shape of errors) happens
//! in [`gate`], once.

mod app;
mod appearance;
mod auth;
mod body;
mod call;
mod completed;
mod data;
mod devices;
mod events;
mod filter;
mod gate;
mod health;
mod meters;
mod notifications;
mod openapi;
mod organizations;
mod patience;
mod problem;
mod projects;
mod query;
mod reply;
mod routes;
mod serve;
mod users;
mod views;

pub use app::{App, HttpSettings, app};
pub use meters::prometheus;
pub use openapi::openapi;
pub use routes::{Entry, RouteRow, table};
pub use serve::{listen, serve};
