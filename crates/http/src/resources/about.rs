//! Name, version and state of this server.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::Time;
use crate::request::Call;
use crate::response::{self, Answer};

/// Name of the platform.
const NAME: &str = "Isobar";

pub(crate) async fn about(call: &mut Call) -> Answer {
    let commit = call.state.settings.commit;
    let started_at = Time(call.hub().started_at());
    let sends_email = call.hub().sends_email();
    response::ok(&AboutJson { name: NAME, version: env!("CARGO_PKG_VERSION"), commit, started_at, sends_email })
}

/// Name, version and start of this server.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = About)]
pub(crate) struct AboutJson {
    name: &'static str,
    /// The version of the program (Semantic Versioning).
    version: &'static str,
    /// The commit that it was built from; null when the build did not know it.
    commit: Option<&'static str>,
    /// The time of its start.
    started_at: Time,
    /// True if e-mails are sent; false without a mail server.
    sends_email: bool,
}
