//! Operations: the parts of a row of their table. The router, the admission of calls and the OpenAPI document are built
//! from it.

mod table;

use futures::future::BoxFuture;
use isobar_hub::Accepts;
use isobar_model::access::Action;

pub(crate) use self::table::MAIN_ROAD;
use self::table::SHOW_SECRETS;
pub use self::table::table;
use crate::openapi::operations::OperationDocs;
use crate::problem::Problem;
use crate::request::Call;
use crate::resources::events;
use crate::response::Reply;

/// The method of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET (and HEAD).
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Returns its name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }
}

/// Most bytes of a body that needs no credentials.
pub(crate) const OPEN_BODY_BYTES_MAX: usize = 16 << 10;

/// Credentials that an operation takes (contract: Authentication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Needs no credentials and is not counted: for monitoring.
    Probe,
    /// Needs no credentials.
    Open,
    /// Needs no credentials; the operation checks those that are sent.
    Optional,
    /// Takes the refresh cookie only.
    Cookie,
    /// Takes a jwt or the refresh cookie, whichever session is to end.
    JwtOrCookie,
    /// Takes credentials of a user: jwt, apiKey or apiKeyAlt.
    User,
    /// Takes credentials of a user, or a device token for its own device.
    UserOrDevice,
    /// Takes apiKey or apiKeyAlt.
    ApiKey,
    /// Takes the link of a dashboard only.
    Link,
}

impl RouteAccess {
    /// Returns the limit of a body in bytes, given the limit with credentials: lower for clients without credentials.
    pub(crate) fn body_bytes_max(self, most: usize) -> usize {
        match self.accepts() {
            Accepts::Nobody | Accepts::Link => most.min(OPEN_BODY_BYTES_MAX),
            Accepts::User | Accepts::UserOrDevice | Accepts::ApiKey => most,
        }
    }

    /// Returns the credentials that the hub accepts. Operations that take cookies check them themselves.
    pub(crate) const fn accepts(self) -> Accepts {
        match self {
            RouteAccess::Probe
            | RouteAccess::Open
            | RouteAccess::Optional
            | RouteAccess::Cookie
            | RouteAccess::JwtOrCookie => Accepts::Nobody,
            RouteAccess::User => Accepts::User,
            RouteAccess::UserOrDevice => Accepts::UserOrDevice,
            RouteAccess::ApiKey => Accepts::ApiKey,
            RouteAccess::Link => Accepts::Link,
        }
    }
}

/// Function that handles an operation.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// The handler of device events: nearly all calls, so its future is not boxed.
    MainRoad,
    /// A handler with a boxed future.
    Boxed(fn(&mut Call) -> BoxFuture<'_, Result<Reply, Problem>>),
}

/// One operation.
#[derive(Clone, Copy)]
pub struct RouteRow {
    /// HTTP method.
    pub method: Verb,
    /// Path, with variable parts in braces.
    pub path: &'static str,
    /// Credentials that it takes.
    pub access: RouteAccess,
    /// Action that decides the role it needs; `None`: any user, or anybody, may call it.
    pub action: Option<Action>,
    /// Unique name, `noun_verb` like its handler's.
    pub name: &'static str,
    handler: Handler,
    /// Its description in the OpenAPI document.
    pub(crate) docs: &'static OperationDocs,
}

impl RouteRow {
    /// Returns true if this is the operation with this method and exactly this path.
    pub(crate) fn is_for(&self, method: &axum::http::Method, path: &str) -> bool {
        self.path == path && self.method.name() == method.as_str()
    }

    /// Returns true if its responses may be compressed. A response with a secret next to text that an attacker may
    /// choose is not: its compressed length would reveal the secret (BREACH). Responses to events are too short.
    pub(crate) fn is_compressed(&self) -> bool {
        !matches!(self.handler, Handler::MainRoad) && !SHOW_SECRETS.contains(&self.name)
    }

    /// Runs its handler.
    pub(crate) async fn handle(&self, call: &mut Call) -> Result<Reply, Problem> {
        match self.handler {
            Handler::MainRoad => events::device_event_create(call).await.map(Reply::from),
            Handler::Boxed(handler) => handler(call).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::RouteAccess::{ApiKey, User, UserOrDevice};
    use super::*;

    #[test]
    fn operations_are_unique() {
        let mut seen = HashSet::new();
        assert!(table().iter().all(|row| seen.insert((row.method.name(), row.path))));
        let mut names = HashSet::new();
        assert!(table().iter().all(|row| names.insert(row.name)), "two operations have one name");
    }

    #[test]
    fn route_without_credentials_has_no_action() {
        for row in table() {
            let user = matches!(row.access, User | UserOrDevice | ApiKey);
            assert!(user || row.action.is_none(), "{} {}", row.method.name(), row.path);
        }
    }
}
