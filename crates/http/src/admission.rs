//! Admits calls: credentials first, then the rate, then the handler (contract: Conventions). It also gives every response what
//! all have in common: request id, rate headers, the line in the log, the metrics.

use std::any::Any;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, EXPECT, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use bytes::BytesMut;
use futures::FutureExt as _;
use isobar_console::File;
use isobar_hub::{Accepts, Hub, Principal, words};
use isobar_model::error::{Error, RateWindow};
use sync_wrapper::SyncWrapper;

use crate::console;
use crate::meters::RouteMeter;
use crate::problem::Problem;
use crate::request::{Call, Client, REQUEST_ID, RequestBody, RequestId, credentials, drain, path_parameters};
use crate::response::{self, Answer, Reply, Response, ascii_header};
use crate::routes::{Entry, RouteRow};
use crate::state::ServerState;

pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RATE_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// What the texts of a response take as a rule, in bytes: its id, the numbers of its rate window, the body of the main road's.
const RESPONSE_TEXT_BYTES: usize = 128;

/// Admits the calls of one route.
pub(crate) struct Admission {
    row: RouteRow,
    meter: RouteMeter,
}

impl Admission {
    pub fn new(row: RouteRow) -> Self {
        Self { row, meter: RouteMeter::new(row.method.name(), row.path) }
    }

    pub fn row(&self) -> &RouteRow {
        &self.row
    }

    /// Answers a call from its head to its response, whether it is admitted or refused.
    ///
    /// The handler's future has a box of its own, which is freed as soon as it is done: payload, headers and its memory are
    /// given back before an event waits for the disk, not after it, so that thousands may wait in little memory.
    pub fn answer(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response> + Send + use<> {
        let (admission, state) = (Arc::clone(self), Arc::clone(state));
        let handling = Box::pin(Arc::clone(self).handle(Arc::clone(&state), client, request));
        async move {
            let (reply, exchange) = handling.await;
            let mut texts = BytesMut::with_capacity(RESPONSE_TEXT_BYTES);
            let answer = match reply {
                Ok(Reply::Ready(response)) => Ok(response),
                Ok(Reply::Accepted(accepted)) => match accepted.await {
                    Ok(id) => {
                        state.meters.events_accepted.increment(1);
                        Ok(response::created_id_in(id, &mut texts))
                    }
                    Err(error) => Err(Problem::from(error)),
                },
                Err(problem) => Err(problem),
            };
            exchange.end(&state, &admission.meter, answer, texts)
        }
    }

    /// Admits a call and runs its handler. What is left of a refused request is read, so that the refusal is heard.
    async fn handle(
        self: Arc<Self>,
        state: Arc<ServerState>,
        client: Client,
        request: Request<RequestBody>,
    ) -> (Result<Reply, Problem>, Exchange) {
        let mut exchange = Exchange::begin(&state, request.headers());
        let (head, body) = request.into_parts();
        let body_bytes_max = self.row.entry.body_bytes_max(state.settings.max_body_bytes);
        let (principal, path_parameters, body) = (Principal::Nobody, Vec::new(), SyncWrapper::new(body));
        let mut call = Call { state, principal, client, head, path_parameters, body_bytes_max, body };
        let admitted = AssertUnwindSafe(self.admit(&mut call, &mut exchange.rate_window)).catch_unwind();
        let reply = admitted.await.unwrap_or_else(|panic| Err(panicked(self.row.path, &*panic)));
        if let Err(problem) = &reply {
            exchange.closes = problem.is_of_bad_credentials() && call.hub().count_refused(call.client.address);
            if !problem.ends_connection() {
                Box::pin(call.drain()).await;
            }
        }
        (reply, exchange)
    }

    /// The order of refusals (contract: Conventions) begins here with 401 and 429; the handler goes on with 404, 403, 400.
    async fn admit(&self, call: &mut Call, window: &mut Option<RateWindow>) -> Result<Reply, Problem> {
        if self.row.entry == Entry::Probe {
            return self.row.handle(call).await;
        }
        let hub = &call.state.hub;
        let credentials = credentials(&call.head.headers);
        let known = hub.authenticate(&credentials, self.row.entry.accepts()).await;
        let counted = match self.row.entry {
            // The operation looks at credentials itself, but whoever shows some is counted by them.
            Entry::Optional | Entry::JwtOrCookie => {
                count(hub, &hub.authenticate(&credentials, Accepts::User).await, call.client.address, window)
            }
            _ => count(hub, &known, call.client.address, window),
        };
        call.principal = known?;
        if counted.is_err() {
            // Whoever would be refused for its credentials hears that first.
            match self.row.entry {
                Entry::Cookie => Box::pin(hub.allow_refresh(&credentials)).await?,
                Entry::JwtOrCookie => Box::pin(hub.allow_logout(&credentials)).await?,
                _ => {}
            }
        }
        counted?;
        call.path_parameters = path_parameters(self.row.path, call.head.uri.path());
        self.row.handle(call).await
    }
}

/// Refuses a request that is for no operation. It is counted like any other call: the limits are for all of them.
pub(crate) async fn refuse_unrouted(
    state: Arc<ServerState>,
    meter: Arc<RouteMeter>,
    request: Request<Body>,
    address: IpAddr,
    problem: Problem,
) -> Response {
    let mut exchange = Exchange::begin(&state, request.headers());
    let known = state.hub.authenticate(&credentials(request.headers()), Accepts::UserOrDevice).await;
    let counted = count(&state.hub, &known, address, &mut exchange.rate_window);
    let problem = counted.map_or_else(Problem::from, |()| problem);
    exchange.end(&state, &meter, Err(problem), BytesMut::with_capacity(RESPONSE_TEXT_BYTES))
}

/// Answers a request for a file of the console. It is neither authenticated nor counted: it reads nothing but the program's memory.
pub(crate) fn answer_file(
    state: &ServerState,
    meter: &RouteMeter,
    request: &Request<Body>,
    file: &'static File,
) -> Response {
    let exchange = Exchange::begin(state, request.headers());
    let response = console::answer(file, request.headers());
    exchange.end(state, meter, Ok(response), BytesMut::with_capacity(RESPONSE_TEXT_BYTES))
}

/// Refuses a request that is no sound message, whatever it is for. It is neither authenticated nor counted, and its connection
/// ends.
pub(crate) async fn refuse_malformed(
    state: Arc<ServerState>,
    meter: Arc<RouteMeter>,
    request: Request<RequestBody>,
    error: Error,
) -> Response {
    let mut exchange = Exchange::begin(&state, request.headers());
    exchange.closes = true;
    if !request.headers().contains_key(EXPECT) {
        drain(&mut request.into_body()).await;
    }
    exchange.end(&state, &meter, Err(error.into()), BytesMut::with_capacity(RESPONSE_TEXT_BYTES))
}

/// Counts a call against the rate limit. A caller that is not known is counted by its address, so that guessing at credentials
/// is counted too.
fn count(
    hub: &Hub,
    known: &Result<Principal, Error>,
    address: IpAddr,
    window: &mut Option<RateWindow>,
) -> Result<(), Error> {
    let counted = hub.count_call(known.as_ref().unwrap_or(&Principal::Nobody), address);
    *window = match &counted {
        Ok(window) => *window,
        Err(Error::RateLimited { window, .. }) => Some(*window),
        Err(_) => None,
    };
    counted.map(|_| ())
}

fn panicked(route: &str, panic: &(dyn Any + Send)) -> Problem {
    tracing::error!(route, panic = words(panic), "a handler panicked");
    Problem::Panicked
}

/// What one request and its response have in common.
struct Exchange {
    id: RequestId,
    began: Instant,
    rate_window: Option<RateWindow>,
    /// Whether the connection ends with the response.
    closes: bool,
}

impl Exchange {
    fn begin(state: &ServerState, headers: &HeaderMap) -> Self {
        Self { id: state.request_ids.of(headers), began: Instant::now(), rate_window: None, closes: false }
    }

    /// Makes the response: its headers, the line in the log, the metrics. The texts of the headers are written into `texts`.
    fn end(self, state: &ServerState, meter: &RouteMeter, answer: Answer, mut texts: BytesMut) -> Response {
        let (took, id) = (self.began.elapsed(), self.id.header(&mut texts));
        let mut response = match answer {
            Ok(response) => response,
            Err(problem) => {
                log(&id, meter, &problem);
                problem.answer(state.hub.clock().now())
            }
        };
        let status = response.status().as_u16();
        meter.note(status, took);
        tracing::debug!(request_id = text(&id), method = meter.method, route = meter.path, status, ?took, "answered");
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if self.closes {
            headers.insert(CONNECTION, CLOSE);
        }
        if let Some(window) = self.rate_window {
            headers.insert(RATE_LIMIT, number(window.limit.into(), &mut texts));
            headers.insert(RATE_REMAINING, number(window.remaining.into(), &mut texts));
            headers.insert(RATE_RESET, number(window.reset.seconds(), &mut texts));
        }
        response
    }
}

fn log(id: &HeaderValue, meter: &RouteMeter, problem: &Problem) {
    let (method, route, status) = (meter.method, meter.path, problem.status().as_u16());
    if status >= 500 {
        let cause = problem.cause();
        tracing::error!(request_id = text(id), method, route, status, cause, "failed");
    } else {
        tracing::debug!(request_id = text(id), method, route, status, ?problem, "refused");
    }
}

/// A request id as the log has it.
fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// A number as a header has it, written into `texts`.
fn number(number: i64, texts: &mut BytesMut) -> HeaderValue {
    // Writing into a buffer that grows does not fail.
    let _ = write!(texts, "{number}");
    ascii_header(texts.split().freeze())
}
