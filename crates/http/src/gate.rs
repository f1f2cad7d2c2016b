//! The gate that every call goes through: credentials, rate, then the handler; and what every answer carries.

use std::any::Any;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, EXPECT, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};
use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use isobar_hub::{Accepted, Accepts, Hub, Principal, words};
use isobar_model::error::{Error, RateWindow};
use isobar_model::time::Timestamp;
use sync_wrapper::SyncWrapper;

use crate::app::{Answering, Client, Shared};
use crate::body;
use crate::call::{Call, credentials, names};
use crate::events;
use crate::frames::Inbound;
use crate::meters::RouteMeter;
use crate::problem::Problem;
use crate::reply::{self, Answer, Reply, Response};
use crate::routes::{Entry, Handler, RouteRow, Verb};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RATE_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// Longest request id that is taken from a client.
const REQUEST_ID_CHARACTERS_MAX: usize = 64;
/// What the texts of an answer take as a rule, in bytes: its id, the numbers of its rate window, the body of the main road's.
const TEXTS_BYTES: usize = 128;

/// The gate of one route.
pub(crate) struct Gate {
    row: RouteRow,
    meter: RouteMeter,
}

impl Gate {
    pub fn new(row: RouteRow) -> Self {
        Self { row, meter: RouteMeter::new(row.method.name(), row.path) }
    }

    pub fn row(&self) -> &RouteRow {
        &self.row
    }

    /// Lets a call through to its handler, or refuses it; the answer is complete. A read ends when its client is gone;
    /// what may change something goes on to its end.
    pub fn pass(self: &Arc<Self>, shared: &Arc<Shared>, client: Client, request: Request<Inbound>) -> Answering {
        let handling = Box::pin(Arc::clone(self).handle(Arc::clone(shared), client, request));
        let passing = Passing { gate: Arc::clone(self), shared: Arc::clone(shared), step: Step::Handling(handling) };
        match self.row.method {
            Verb::Get => Answering::read(passing),
            _ => Answering::change(passing),
        }
    }

    async fn handle(self: Arc<Self>, shared: Arc<Shared>, client: Client, request: Request<Inbound>) -> Handled {
        let mut visit = Visit::begin(&shared, request.headers());
        let (head, body) = request.into_parts();
        let body_bytes_max = self.row.entry.body_bytes_max(shared.settings.max_body_bytes);
        let (principal, names, body) = (Principal::Nobody, Vec::new(), SyncWrapper::new(body));
        let mut call = Call { shared, principal, client, head, names, body_bytes_max, body };
        let admitted = AssertUnwindSafe(self.admit(&mut call, &mut visit.window)).catch_unwind();
        let reply = admitted.await.unwrap_or_else(|panic| Err(panicked(self.row.path, &*panic)));
        if let Err(problem) = &reply {
            visit.closes = problem.is_of_bad_credentials() && call.hub().count_refused(call.client.address);
            if !problem.ends_connection() {
                Box::pin(call.drain()).await;
            }
        }
        (reply, visit)
    }

    /// The order of refusals (contract: Conventions) begins here: 401, 429; the handler goes on with 404, 403, 400.
    async fn admit(&self, call: &mut Call, window: &mut Option<RateWindow>) -> Result<Reply, Problem> {
        if self.row.entry == Entry::Probe {
            return self.handled(call).await;
        }
        let hub = &call.shared.hub;
        let credentials = credentials(&call.head.headers);
        let known = hub.authenticate(&credentials, self.row.entry.accepts()).await;
        let counted = match self.row.entry {
            // The operation looks at them itself; whoever shows them is counted by them all the same.
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
        call.names = names(self.row.path, call.head.uri.path());
        self.handled(call).await
    }

    async fn handled(&self, call: &mut Call) -> Result<Reply, Problem> {
        match self.row.handler {
            Handler::MainRoad => events::device_event_create(call).await.map(Reply::from),
            Handler::Boxed(handler) => handler(call).await,
        }
    }
}

/// What a handler gave, and the call that it belongs to.
type Handled = (Result<Reply, Problem>, Visit);

/// A call on its way through the gate.
pub struct Passing {
    gate: Arc<Gate>,
    shared: Arc<Shared>,
    step: Step,
}

enum Step {
    Handling(BoxFuture<'static, Handled>),
    /// All that is left of the call is this: its room is given back before the wait for the disk, not after it.
    Accepted(Accepted, Visit),
    Ended,
}

impl Future for Passing {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        if let Step::Handling(handling) = &mut self.step {
            let (reply, visit) = ready!(handling.as_mut().poll(cx));
            self.step = match reply {
                Ok(Reply::Accepted(accepted)) => Step::Accepted(accepted, visit),
                Ok(Reply::Ready(response)) => return Poll::Ready(self.end(visit, Ok(response))),
                Err(problem) => return Poll::Ready(self.end(visit, Err(problem))),
            };
        }
        let Step::Accepted(accepted, _) = &mut self.step else { return Poll::Pending };
        let accepted = ready!(Pin::new(accepted).poll(cx));
        let Step::Accepted(_, visit) = std::mem::replace(&mut self.step, Step::Ended) else { return Poll::Pending };
        let mut texts = BytesMut::with_capacity(TEXTS_BYTES);
        let answer = accepted.map(|id| reply::created_id_in(id, &mut texts)).map_err(Problem::from);
        if answer.is_ok() {
            self.shared.meters.events_accepted.increment(1);
        }
        Poll::Ready(visit.end_in(&self.shared, &self.gate.meter, answer, texts))
    }
}

impl Passing {
    fn end(&mut self, visit: Visit, answer: Answer) -> Response {
        self.step = Step::Ended;
        visit.end(&self.shared, &self.gate.meter, answer)
    }
}

/// Refuses what is for no operation. Such calls are counted like any other: the limits are for all of them.
pub(crate) async fn refuse(
    shared: Arc<Shared>,
    meter: Arc<RouteMeter>,
    request: Request<Body>,
    refusal: Refusal,
) -> Response {
    let mut visit = Visit::begin(&shared, request.headers());
    let known = shared.hub.authenticate(&credentials(request.headers()), Accepts::UserOrDevice).await;
    let counted = count(&shared.hub, &known, refusal.peer, &mut visit.window);
    let problem = counted.map_or_else(Problem::from, |()| (refusal.problem)());
    visit.end(&shared, &meter, Err(problem))
}

/// Refuses what is no sound message, whatever it is for. It is not looked at, nor counted: its connection ends.
pub(crate) async fn turn_away(
    shared: Arc<Shared>,
    meter: Arc<RouteMeter>,
    request: Request<Inbound>,
    fault: Error,
) -> Response {
    let mut visit = Visit::begin(&shared, request.headers());
    visit.closes = true;
    if !request.headers().contains_key(EXPECT) {
        body::drain(&mut request.into_body()).await;
    }
    visit.end(&shared, &meter, Err(fault.into()))
}

/// Why a call is for no operation, and who made it.
pub(crate) struct Refusal {
    pub problem: fn() -> Problem,
    pub peer: IpAddr,
}

/// Counts a call. Who is not known is counted by its address, so that guessing at credentials is counted too.
fn count(
    hub: &Hub,
    known: &Result<Principal, Error>,
    peer: IpAddr,
    window: &mut Option<RateWindow>,
) -> Result<(), Error> {
    let counted = hub.count_call(known.as_ref().unwrap_or(&Principal::Nobody), peer);
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

/// One call from its first byte to its answer.
pub(crate) struct Visit {
    id: RequestId,
    began: Instant,
    window: Option<RateWindow>,
    /// Whether its connection ends with its answer.
    closes: bool,
}

impl Visit {
    /// A call begins.
    pub fn begin(shared: &Shared, headers: &HeaderMap) -> Self {
        let sent = headers.get(REQUEST_ID).filter(|id| is_sane(id.as_bytes()));
        // A copy: what was sent is a part of the whole request, which need not be kept until the event is durable.
        let copied = sent.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
        let id = copied.map_or_else(|| shared.request_ids.next(), RequestId::Sent);
        Self { id, began: Instant::now(), window: None, closes: false }
    }

    /// A call is answered: the headers of every answer, the log line, the numbers.
    pub fn end(self, shared: &Shared, meter: &RouteMeter, answer: Answer) -> Response {
        self.end_in(shared, meter, answer, BytesMut::with_capacity(TEXTS_BYTES))
    }

    /// The same, where the texts of its headers go into room that there is already.
    fn end_in(self, shared: &Shared, meter: &RouteMeter, answer: Answer, mut texts: BytesMut) -> Response {
        let (took, id) = (self.began.elapsed(), self.id.header(&mut texts));
        let mut response = match answer {
            Ok(response) => response,
            Err(problem) => {
                log(&id, meter, &problem);
                problem.answer(shared.hub.clock().now())
            }
        };
        let status = response.status().as_u16();
        meter.note(status, took);
        tracing::debug!(request_id = name(&id), method = meter.method, route = meter.path, status, ?took, "answered");
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if self.closes {
            headers.insert(CONNECTION, CLOSE);
        }
        if let Some(window) = self.window {
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
        tracing::error!(request_id = name(id), method, route, status, cause, "failed");
    } else {
        tracing::debug!(request_id = name(id), method, route, status, ?problem, "refused");
    }
}

/// An id as the log has it.
fn name(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// A number as a header has it.
fn number(number: i64, texts: &mut BytesMut) -> HeaderValue {
    // Writing into room that grows does not fail.
    let _ = write!(texts, "{number}");
    value(texts.split().freeze())
}

/// A text of digits and letters as a header has it.
fn value(text: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(text).unwrap_or(HeaderValue::from_static("0"))
}

fn is_sane(id: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=REQUEST_ID_CHARACTERS_MAX).contains(&id.len()) && id.iter().all(plain)
}

/// The name of a call: the client's own, or one that was made for it.
enum RequestId {
    Sent(HeaderValue),
    Made(u64),
}

impl RequestId {
    fn header(self, texts: &mut BytesMut) -> HeaderValue {
        let id = match self {
            Self::Sent(id) => return id,
            Self::Made(id) => id,
        };
        let digits = std::array::from_fn::<u8, 16, _>(|place| {
            let digit = (id >> (60 - 4 * place) & 15) as u8;
            if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
        });
        texts.extend_from_slice(&digits);
        value(texts.split().freeze())
    }
}

/// Makes request ids: unlike one another within a run, and most likely between runs. They are no secrets.
pub(crate) struct RequestIds(AtomicU64);

impl RequestIds {
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new((start.millis() as u64) << 20))
    }

    fn next(&self) -> RequestId {
        RequestId::Made(scattered(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Neighbours become strangers: the finalizer of SplitMix64, which never makes two numbers one.
fn scattered(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_request_ids_are_taken() {
        assert!(is_sane(b"a-Z_0.9") && is_sane(&[b'x'; 64]));
        assert!(!is_sane(b"") && !is_sane(&[b'x'; 65]) && !is_sane(b"a b") && !is_sane("é".as_bytes()));
    }

    #[test]
    fn request_ids_differ() {
        let ids = RequestIds::new(Timestamp::from_millis(1));
        let mut texts = BytesMut::new();
        let (first, second) = (ids.next().header(&mut texts), ids.next().header(&mut texts));
        assert_ne!(first, second);
        assert!(is_sane(first.as_bytes()) && first.len() == 16);
    }
}
