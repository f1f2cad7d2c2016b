//! A call as its handler sees it: principal, path, parameters and body.

use std::str::FromStr;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, EXPECT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use hyper::body::Body as _;
use isobar_hub::{Credentials, Hub, NO_NAME, Principal, TenantShare, WaitPlace};
use isobar_model::access::Caller;
use isobar_model::error::Error;
use isobar_model::json::{Json, parse};
use isobar_model::page::Page;
use serde::Serialize;
use sync_wrapper::SyncWrapper;

use super::body::{self, BodyLimits, RequestBody};
use super::client::Client;
use super::percent;
use super::query::Query;
use crate::problem::Problem;
use crate::response::{self, Answer, SMALL_BODY_BYTES};
use crate::state::ServerState;

const CLOUD: HeaderName = HeaderName::from_static("cloud");
const API_AUTH_TOKEN: HeaderName = HeaderName::from_static("api_auth_token");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Name of the cookie that holds the refresh token.
pub(crate) const REFRESH_COOKIE: &str = "refreshToken";
/// Most refresh cookies of one call that are checked; further ones are ignored.
const REFRESH_COOKIES_MAX: usize = 32;

/// Content type of a JSON merge patch (RFC 7396).
pub(crate) const MERGE_PATCH_TYPE: &str = "application/merge-patch+json";

/// An admitted call.
pub(crate) struct Call {
    pub state: Arc<ServerState>,
    /// Authenticated principal.
    pub principal: Principal,
    /// Address and socket of the client.
    pub client: Client,
    /// Request line and headers.
    pub head: Parts,
    /// Values of the variable parts of the path.
    pub path_parameters: PathParameters,
    /// Most bytes of the body, unless the operation has a limit of its own.
    pub body_bytes_max: usize,
    /// Unread rest of the body. Wrapped because a body is not `Sync`.
    pub body: SyncWrapper<RequestBody>,
}

impl Call {
    /// Returns the hub.
    pub fn hub(&self) -> &Hub {
        &self.state.hub
    }

    /// Returns the calling user, or an error if the principal is not a user.
    pub fn caller(&self) -> Result<&Caller, Error> {
        self.principal.user()
    }

    /// Returns the credentials in its headers.
    pub fn credentials(&self) -> Credentials<'_> {
        credentials(&self.head.headers)
    }

    /// Returns true for a HEAD request.
    pub fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// Returns a variable part of the path, percent-decoded; empty, which matches nothing, if it is not UTF-8.
    pub fn name(&self, part: &str) -> &str {
        let found = self.path_parameters.iter().find(|(name, _)| *name == part);
        found.and_then(|(_, value)| value.as_deref()).unwrap_or_default()
    }

    /// Returns the element named by the path. A name that is not UTF-8 or contains U+0000 is refused, as no element can
    /// have it.
    pub fn element_name(&self) -> Result<&str, Error> {
        let name = Some(self.name("elementName")).filter(|name| !name.is_empty() && !name.contains('\0'));
        name.ok_or_else(|| Error::invalid("path.elementName", NO_NAME))
    }

    /// Completes when the client has closed its side of the connection: it may be gone.
    pub fn client_closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let socket = self.client.socket.clone();
        async move {
            match socket {
                // A broken connection counts as closed.
                Some(socket) => drop(socket.closed().await),
                None => std::future::pending().await,
            }
        }
    }

    /// Takes a place for a long wait, held until dropped, with a future that completes when another tenant gets the
    /// place. Returns [`Error::Busy`] if the tenant has reached its limit.
    pub fn long_wait(&self) -> Result<(WaitPlace, impl Future<Output = ()> + Send + use<>), Error> {
        Ok(self.state.long_waits.take(self.principal.tenant())?)
    }

    /// Returns an empty share of the response memory.
    pub fn no_response_memory(&self) -> TenantShare {
        self.state.response_memory.share(self.principal.tenant())
    }

    /// Charges the memory that a response needs besides its body, given by its parts in bytes, until the share is
    /// dropped. Refused if the tenant has reached its limit. Bodies are charged where every response passes.
    pub fn response_memory(&self, parts: impl Iterator<Item = usize>) -> Result<TenantShare, Problem> {
        let bytes: usize = parts.sum();
        let mut memory = self.no_response_memory();
        if bytes > SMALL_BODY_BYTES {
            memory.grow(bytes).map_err(|_| Problem::AnswersUntaken { is_done: false })?;
        }
        Ok(memory)
    }

    /// Answers 200 with a page of views. Its rows are charged until they are written; `texts` returns the bytes of a
    /// row's texts of unlimited length.
    pub async fn page<T: Send + 'static, V: Serialize>(
        &self,
        page: Page<T>,
        texts: impl Fn(&T) -> usize,
        view: impl FnMut(T) -> V + Send + 'static,
    ) -> Answer {
        let memory = self.response_memory(page.items.iter().map(|row| size_of::<T>() + texts(row)))?;
        response::page(page, memory, view).await
    }

    /// Parses an identifier in the path; a malformed one is a missing `noun`.
    pub fn id<T: FromStr>(&self, part: &str, noun: &'static str) -> Result<T, Error> {
        self.name(part).parse().map_err(|_| Error::Missing(noun))
    }

    /// Returns its query parameters.
    pub fn query(&self) -> Query<'_> {
        Query::of(self.head.uri.query())
    }

    /// Returns the idempotency key, if there is one.
    pub fn idempotency_key(&self) -> Result<Option<&str>, Error> {
        let Some(value) = self.head.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let key = value.to_str().map_err(|_| Error::invalid("header.Idempotency-Key", "must be visible characters"));
        key.map(Some)
    }

    /// Reads the body, which must have a JSON content type.
    pub async fn json_bytes(&mut self) -> Result<Bytes, Problem> {
        self.json_bytes_up_to(self.body_bytes_max).await
    }

    /// Reads the body, which must have a JSON content type, with the operation's own limit in bytes.
    pub async fn json_bytes_up_to(&mut self, limit: usize) -> Result<Bytes, Problem> {
        if !is_json(&self.head.headers) {
            return Err(Error::invalid("body", "must have the content type application/json").into());
        }
        self.collected(limit).await
    }

    /// Reads a JSON merge patch, or a list of them, and parses it with `read`. Its content type is merge patch or JSON.
    pub async fn merge_patch<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&Json<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Problem> {
        if !is_json(&self.head.headers) && !is_of_type(&self.head.headers, MERGE_PATCH_TYPE.as_bytes()) {
            let wanted = format!("must have the content type {MERGE_PATCH_TYPE} or application/json");
            return Err(Error::invalid("body", wanted).into());
        }
        let bytes = self.collected(self.body_bytes_max).await?;
        self.parsed(bytes, read).await
    }

    async fn collected(&mut self, limit: usize) -> Result<Bytes, Problem> {
        let (time, memory) = (self.state.settings.transfer_time, &self.state.body_memory);
        let (tenant, clock) = (self.principal.tenant(), self.state.hub.clock());
        let limits = BodyLimits { bytes_max: limit, time, memory, tenant, clock };
        body::collect(self.body.get_mut(), limits).await
    }

    /// Reads the JSON body and parses it with `read`; on another thread if it is long.
    pub async fn json<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&Json<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Problem> {
        self.json_up_to(self.body_bytes_max, read).await
    }

    /// Reads as [`Self::json`] does, with the operation's own limit in bytes.
    pub async fn json_up_to<T: Send + 'static>(
        &mut self,
        limit: usize,
        read: impl FnOnce(&Json<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Problem> {
        let bytes = self.json_bytes_up_to(limit).await?;
        self.parsed(bytes, read).await
    }

    /// Parses a body with `read`; on another thread if it is long.
    async fn parsed<T: Send + 'static>(
        &mut self,
        bytes: Bytes,
        read: impl FnOnce(&Json<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Problem> {
        let length = bytes.len();
        let read = move || {
            let text = std::str::from_utf8(&bytes)
                .map_err(|error| Error::invalid("body", format!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
            let tree = parse(text).map_err(|fault| Error::invalid("body", fault.to_string()))?;
            read(&tree)
        };
        Ok(self.hub().body_read(self.principal.tenant(), length, read).await??)
    }

    /// Reads as [`Self::json`] does, where a part `A` of the body decides on permission: it is returned even if the
    /// body is otherwise faulty.
    pub async fn json_beside<A: Default + Send + 'static, T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&Json<'_>) -> (A, Result<T, Error>) + Send + 'static,
    ) -> (A, Result<T, Problem>) {
        match self.json(|body| Ok(read(body))).await {
            Ok((aside, input)) => (aside, input.map_err(Problem::from)),
            Err(problem) => (A::default(), Err(problem)),
        }
    }

    /// Reads the body as text of at most `limit` bytes; it must be text/plain in UTF-8.
    pub async fn text(&mut self, limit: usize) -> Result<String, Problem> {
        if !is_of_type(&self.head.headers, b"text/plain") {
            return Err(Error::invalid("body", "must have the content type text/plain").into());
        }
        let bytes = self.collected(limit).await?;
        String::from_utf8(bytes.into()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::invalid("body", format!("invalid UTF-8 at byte {at}")).into()
        })
    }

    /// Drains the rest of the body, so that a refusal reaches a client that is still sending.
    pub async fn drain(&mut self) {
        // A client that expects `100 Continue` sends no body when it is refused.
        let body = self.body.get_mut();
        if !body.is_end_stream() && !self.head.headers.contains_key(EXPECT) {
            body::drain(body, self.state.hub.clock()).await;
        }
    }
}

/// Variable parts of a path by name; `None` for a value that is not UTF-8.
pub(crate) type PathParameters = Vec<(&'static str, Option<String>)>;

/// Reads the variable parts of a path that matches the path of a route.
pub(crate) fn path_parameters(row: &'static str, path: &str) -> PathParameters {
    let parts = row.split('/').zip(path.split('/'));
    let parameter = |(part, value): (&'static str, &str)| {
        Some((part.strip_prefix('{')?.strip_suffix('}')?, percent::decoded(value, false)))
    };
    if row.as_bytes().contains(&b'{') { parts.filter_map(parameter).collect() } else { Vec::new() }
}

/// Keeps the order of refusals: returns the fault of a bad parameter or body only if `allowed` does not refuse the
/// caller. If `allowed` finds faults too, returns all of them.
pub(crate) async fn after<T, E: Into<Problem>>(
    allowed: impl Future<Output = Result<(), Error>>,
    input: Result<T, E>,
) -> Result<T, Problem> {
    match input {
        Ok(input) => Ok(input),
        Err(fault) => both(allowed.await, Err(fault.into())).map(|((), input)| input),
    }
}

/// Combines parameters and body, or the faults of both.
pub(crate) fn both<T, U>(parameters: Result<T, Error>, body: Result<U, Problem>) -> Result<(T, U), Problem> {
    match (parameters, body) {
        (Ok(parameters), Ok(body)) => Ok((parameters, body)),
        (Err(Error::Invalid(mut faults)), Err(Problem::Refused(Error::Invalid(more)))) => {
            faults.extend(more);
            Err(Error::Invalid(faults).into())
        }
        (Err(error), _) => Err(error.into()),
        (Ok(_), Err(problem)) => Err(problem),
    }
}

/// Returns the credentials in these headers.
pub(crate) fn credentials(headers: &HeaderMap) -> Credentials<'_> {
    let value = |name: HeaderName| headers.get(name).map(|value| value.as_bytes());
    Credentials {
        cloud: value(CLOUD),
        authorization: value(AUTHORIZATION),
        api_auth_token: value(API_AUTH_TOKEN),
        refresh_cookies: cookies(headers, REFRESH_COOKIE),
    }
}

/// Returns the values of the cookies of that name. Parses each pair separately, as bytes: other sites may set the
/// cookies next to it.
fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h [u8]> {
    let lines = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let values = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.take(REFRESH_COOKIES_MAX).collect()
}

fn is_json(headers: &HeaderMap) -> bool {
    is_of_type(headers, b"application/json")
}

/// Returns true if the content type of the body is `wanted`, whatever its parameters.
fn is_of_type(headers: &HeaderMap, wanted: &[u8]) -> bool {
    let Some(sent) = headers.get(CONTENT_TYPE).map(|value| value.as_bytes()) else { return false };
    let kind = sent.split(|byte| *byte == b';').next().unwrap_or_default();
    sent == wanted || kind.trim_ascii().eq_ignore_ascii_case(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn content_type_of_json_may_have_parameters() {
        for good in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"] {
            assert!(is_json(&headers(CONTENT_TYPE, good)), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "application/merge-patch+json", ""] {
            assert!(!is_json(&headers(CONTENT_TYPE, bad)), "{bad}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    // Holds: c3.cookies
    #[test]
    fn cookies_are_found_among_others() {
        let values = |lines: &[&[u8]]| {
            let lines = lines.iter().map(|line| (COOKIE, HeaderValue::from_bytes(line).unwrap()));
            let headers = HeaderMap::from_iter(lines);
            cookies(&headers, REFRESH_COOKIE).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(values(&[b"a=b; refreshToken=abc; c=d"]), [b"abc"]);
        assert_eq!(values(&["name=J\u{fc}rgen;refreshToken=abc".as_bytes(), b"\xfc"]), [b"abc"]);
        assert_eq!(values(&[b"refreshToken=\xfc; a", b"refreshToken=abc;refreshToken="]), [&b"\xfc"[..], b"abc", b""]);
        assert_eq!(values(&[b"refreshTokens=abc; xrefreshToken=abc; refreshToken; a=refreshToken=abc"]).len(), 0);
        assert_eq!(values(&[&b"refreshToken=a;".repeat(100)]).len(), REFRESH_COOKIES_MAX);
    }

    #[test]
    fn the_variable_parts_of_a_path_are_read() {
        let read = path_parameters("/v2/devices/{id}/data/{elementName}", "/v2/devices/a%20b/data/%ff");
        assert_eq!(read, [("id", Some("a b".to_owned())), ("elementName", None)]);
        assert_eq!(path_parameters("/v2/devices", "/v2/devices"), []);
    }

    #[tokio::test]
    async fn faults_are_shown_to_permitted_callers_only() {
        let bad = || Err::<(), _>(Error::invalid("body", "is bad"));
        let status = |result: Result<(), Problem>| result.unwrap_err().status().as_u16();
        assert_eq!(status(after(async { Err(Error::Missing("device")) }, bad()).await), 404);
        assert_eq!(status(after(async { Ok(()) }, bad()).await), 400);
        let all = after(async { Err(Error::invalid("query.page", "is bad too")) }, bad()).await;
        assert!(matches!(all, Err(Problem::Refused(Error::Invalid(faults))) if faults.len() == 2));
    }
}
