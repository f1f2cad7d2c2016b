//! The HTTP interface. `routes` has its table of operations. A handler reads a request, calls one method of the hub and
//! builds the response; credentials, rate limit, request id and metrics are handled once, in `admission`.
//!
//! - `connection` accepts connections and reads requests from them. It does not know the operations.
//! - `request` and `response` are the tools of handlers.
//! - `console` serves the files of the web console.
//! - `resources` has the handlers, one file a noun; `openapi` describes them.
//!
//! A test holds the direction of imports (`crates/server/tests/house/imports.rs`).

mod admission;
mod app;
mod connection;
mod console;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod meters;
mod openapi;
mod problem;
mod request;
mod resources;
mod response;
mod routes;
mod state;

pub use app::{App, app};
pub use connection::{BadCertificate, CertificateFiles, Listeners, Tls, Validity, listen, serve};
pub use console::ConsoleFile;
pub use meters::prometheus;
pub use openapi::openapi;
pub use request::{BadNetwork, Network};
pub use routes::{RouteAccess, RouteRow, Verb, table};
pub use state::{BackupStanding, HttpSettings};
