//! Admits calls: checks credentials, then the rate limit, then runs the handler (contract: Conventions). Adds to every
//! response the request id and rate headers, and records its log line and metrics.

use std::any::Any;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version};
use futures::FutureExt as _;
use futures::future::Either;
use isobar_hub::{Accepts, Hub, Principal, words};
use isobar_model::error::{Error, RateWindow};
use isobar_model::ids::{EventId, OrganizationId};
use isobar_traces::Span;
use sync_wrapper::SyncWrapper;

use crate::console::{self, ConsoleFile};
use crate::meters::RouteMeter;
use crate::problem::Problem;
use crate::request::{Call, Client, RequestBody, credentials, drain, path_parameters};
use crate::response::{
    Answer, Coding, EventCreated, EventResponse, Reply, RequestId, Response, add_common_headers, compressed,
};
use crate::routes::{RouteAccess, RouteRow, Verb};
use crate::state::ServerState;

const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// Header with the caller's span (W3C Trace Context).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

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
    pub fn answer(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response> + Send + use<> {
        let answered = self.answer_event(state, client, request);
        async { answered.await.into() }
    }

    /// Answers a call as [`Self::answer`] does, but returns the parts of the response to an accepted event instead of
    /// the response.
    ///
    /// The handler's future is boxed and freed as soon as it completes: payload, headers and future are released before
    /// the event waits for the disk sync, so that thousands can wait in little memory.
    pub fn answer_event(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = EventResponse> + Send + use<> {
        let span = self.span(request.headers(), client.is_behind_proxy);
        let (admission, state) = (Arc::clone(self), Arc::clone(state));
        let handling = Box::pin(Arc::clone(self).handle(Arc::clone(&state), client, request));
        let answered = async move {
            let (accepted, exchange) = match handling.await {
                (Ok(Reply::Accepted(accepted)), exchange) => (accepted, exchange),
                (Ok(Reply::Ready(response)), exchange) => {
                    return EventResponse::Other(exchange.end(&state, &admission.meter, Ok(response)));
                }
                (Ok(Reply::Counted(response, window)), mut exchange) => {
                    exchange.rate_window = Some(window);
                    return EventResponse::Other(exchange.end(&state, &admission.meter, Ok(response)));
                }
                (Err(problem), exchange) => {
                    return EventResponse::Other(exchange.end(&state, &admission.meter, Err(problem)));
                }
            };
            match accepted.durable().await {
                Ok(id) => EventResponse::Created(exchange.end_created(&state, &admission.meter, id)),
                Err(error) => EventResponse::Other(exchange.end(&state, &admission.meter, Err(error.into()))),
            }
        };
        match span {
            None => Either::Left(answered),
            Some(span) => Either::Right(Box::pin(traced(span, answered))),
        }
    }

    /// Begins the span of a request if traces are on. Probes get none: they would outnumber all other spans.
    fn span(&self, headers: &HeaderMap, is_behind_proxy: bool) -> Option<Span> {
        if self.row.access == RouteAccess::Probe {
            return None;
        }
        let traceparent = || {
            let mut all = headers.get_all(TRACEPARENT).iter();
            // A repeated header counts as absent (W3C Trace Context).
            all.next().filter(|_| all.next().is_none()).map(HeaderValue::as_bytes)
        };
        Span::of_request(self.meter.method, self.meter.path, traceparent, is_behind_proxy)
    }

    /// Admits a call and runs its handler. Drains the body of a refused request, so that the client can read the
    /// refusal.
    async fn handle(
        self: Arc<Self>,
        state: Arc<ServerState>,
        client: Client,
        request: Request<RequestBody>,
    ) -> (Result<Reply, Problem>, Exchange) {
        let mut exchange = Exchange::begin(&state, request.headers());
        exchange.is_http2 = request.version() == Version::HTTP_2;
        exchange.compression = self.row.is_compressed().then(|| Coding::asked_for(request.headers(), &Coding::ALL));
        let (head, body) = request.into_parts();
        let body_bytes_max = self.row.access.body_bytes_max(state.settings.max_body_bytes);
        let (principal, path_parameters, body) = (Principal::Nobody, Vec::new(), SyncWrapper::new(body));
        let mut call = Call { state, principal, client, head, path_parameters, body_bytes_max, body };
        let admitted = AssertUnwindSafe(self.admit(&mut call, &mut exchange.rate_window)).catch_unwind();
        let reply = admitted.await.unwrap_or_else(|panic| Err(panicked(self.row.path, &*panic)));
        exchange.tenant = call.principal.tenant();
        exchange.is_read = self.row.method == Verb::Get;
        if let Err(problem) = &reply {
            exchange.rate_window = problem.rate_window().or(exchange.rate_window);
            exchange.closes = problem.is_of_bad_credentials() && call.hub().count_refused(call.client.address);
            if !problem.ends_connection() {
                Box::pin(call.drain()).await;
            }
        }
        (reply, exchange)
    }

    /// Decides 401 and 429 before the handler, which decides 404, 403 and 400 (contract: Conventions).
    async fn admit(&self, call: &mut Call, window: &mut Option<RateWindow>) -> Result<Reply, Problem> {
        if self.row.access == RouteAccess::Probe {
            return self.row.handle(call).await;
        }
        let hub = &call.state.hub;
        let credentials = credentials(&call.head.headers);
        let known = hub.authenticate(&credentials, self.row.access.accepts()).await;
        let counted = match self.row.access {
            // The operation checks credentials itself, but a caller that presents some is counted by them.
            RouteAccess::Optional | RouteAccess::JwtOrCookie => {
                count(hub, &hub.authenticate(&credentials, Accepts::User).await, call.client.address, window)
            }
            _ => count(hub, &known, call.client.address, window),
        };
        call.principal = known?;
        if counted.is_err() {
            // Bad credentials are refused before the rate limit.
            match self.row.access {
                RouteAccess::Cookie => Box::pin(hub.allow_refresh(&credentials)).await?,
                RouteAccess::JwtOrCookie => Box::pin(hub.allow_logout(&credentials)).await?,
                _ => {}
            }
        }
        counted?;
        call.path_parameters = path_parameters(self.row.path, call.head.uri.path());
        self.row.handle(call).await
    }
}

/// Answers a request within its span, and sets the span's status.
async fn traced(span: Span, answered: impl Future<Output = EventResponse>) -> EventResponse {
    let response = span.work(answered).await;
    let status = match &response {
        EventResponse::Created(_) => StatusCode::CREATED,
        EventResponse::Other(response) => response.status(),
    };
    span.note_status(status.as_u16());
    if status.is_server_error() {
        span.note_failure("server error");
    }
    response
}

/// Refuses a request that matches no operation. It counts against the rate limit like any other call.
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
    exchange.end(&state, &meter, Err(problem))
}

/// Answers a request for a file of the console. It needs no credentials and is not counted: it reads only the program's
/// memory.
pub(crate) fn answer_file(
    state: &ServerState,
    meter: &RouteMeter,
    request: &Request<Body>,
    file: &'static ConsoleFile,
) -> Response {
    let exchange = Exchange::begin(state, request.headers());
    let response = console::answer(file, request.headers());
    exchange.end(state, meter, Ok(response))
}

/// Refuses a request that is not valid HTTP, whatever its path. It is not authenticated or counted, and its connection
/// is closed.
pub(crate) async fn refuse_malformed(
    state: Arc<ServerState>,
    meter: Arc<RouteMeter>,
    request: Request<RequestBody>,
    error: Error,
) -> Response {
    let mut exchange = Exchange::begin(&state, request.headers());
    exchange.closes = true;
    if !request.headers().contains_key(EXPECT) {
        drain(&mut request.into_body(), state.hub.clock()).await;
    }
    exchange.end(&state, &meter, Err(error.into()))
}

/// Counts a call against the rate limit. Counts an unauthenticated caller by its address, so that guessing credentials
/// is limited too.
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

/// State shared by a request and its response.
struct Exchange {
    id: RequestId,
    began: Instant,
    rate_window: Option<RateWindow>,
    /// True if the connection closes after the response.
    closes: bool,
    /// The tenant that a large response is charged to.
    tenant: Option<OrganizationId>,
    /// True if the request changes nothing.
    is_read: bool,
    is_http2: bool,
    /// The coding that the client asks for, if any; `None` if the response must not be compressed.
    compression: Option<Option<Coding>>,
}

impl Exchange {
    fn begin(state: &ServerState, headers: &HeaderMap) -> Self {
        let id = state.request_ids.of(headers);
        Self {
            id,
            began: state.hub.clock().instant(),
            rate_window: None,
            closes: false,
            tenant: None,
            is_read: true,
            is_http2: false,
            compression: None,
        }
    }

    /// Builds the response: charges its memory, sets its headers, writes the log line and counts it.
    fn end(self, state: &ServerState, meter: &RouteMeter, answer: Answer) -> Response {
        let refused = |problem: Problem| {
            log(&self.id, meter, &problem);
            problem.answer(state.hub.clock().now())
        };
        let charged = self.charged(state, answer.unwrap_or_else(refused));
        let mut response = charged.unwrap_or_else(refused);
        if let Some(coding) = self.compression {
            response = compressed(response, coding, state.response_memory.share(self.tenant));
        }
        if self.is_http2 {
            response = self.charged_until_taken(state, response).unwrap_or_else(refused);
        }
        self.note(state, meter, response.status());
        let headers = response.headers_mut();
        if self.closes {
            headers.insert(CONNECTION, CLOSE);
        }
        add_common_headers(headers, self.id, self.rate_window);
        response
    }

    /// Charges a response to the caller's tenant until its memory is freed. Every response passes here.
    fn charged(&self, state: &ServerState, response: Response) -> Answer {
        let (head, body) = response.into_parts();
        let is_done = !self.is_read && head.status.is_success();
        let charged = body.charged(state.response_memory.share(self.tenant));
        let body = charged.map_err(|_| Problem::AnswersUntaken { is_done })?;
        Ok(Response::from_parts(head, body))
    }

    /// Charges a response by HTTP/2 to the caller's tenant until the client has taken it.
    fn charged_until_taken(&self, state: &ServerState, response: Response) -> Answer {
        let (head, body) = response.into_parts();
        let is_done = !self.is_read && head.status.is_success();
        let (shares, most) = (&state.http2_answers, state.settings.http2_answer_bytes_max);
        let body = body.charged_until_taken(shares, self.tenant, most);
        Ok(Response::from_parts(head, body.map_err(|_| Problem::AnswersUntaken { is_done })?))
    }

    /// Returns the response to an event that is durable.
    fn end_created(self, state: &ServerState, meter: &RouteMeter, id: EventId) -> EventCreated {
        state.meters.events_accepted.increment(1);
        self.note(state, meter, StatusCode::CREATED);
        EventCreated { id, request_id: self.id, rate_window: self.rate_window }
    }

    fn note(&self, state: &ServerState, meter: &RouteMeter, status: StatusCode) {
        let (took, status) = (state.hub.clock().elapsed(self.began), status.as_u16());
        meter.note(status, took);
        tracing::debug!(request_id = %self.id, method = meter.method, route = meter.path, status, ?took, "answered");
    }
}

fn log(id: &RequestId, meter: &RouteMeter, problem: &Problem) {
    let (method, route, status) = (meter.method, meter.path, problem.status().as_u16());
    if status >= 500 {
        let cause = problem.cause();
        tracing::error!(request_id = %id, method, route, status, cause, "failed");
    } else {
        tracing::debug!(request_id = %id, method, route, status, ?problem, "refused");
    }
}
