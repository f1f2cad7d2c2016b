//! OpenTelemetry spans beneath that of a call. The server turns traces on and sends them to a collector; until then
//! every function here returns after one check.
//!
//! Names and attributes of spans are constants, identifiers and statuses: no payload, no path, no query.

mod parent;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::context::FutureExt as _;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _};
use opentelemetry::{Context, KeyValue};
use tracing::Instrument as _;

/// Most calls that the span of a commit group links to; others are left out.
pub const GROUP_LINKS_MAX: usize = 64;

/// The tracer, set when traces are on.
static TRACER: OnceLock<BoxedTracer> = OnceLock::new();
static STRANGERS: OnceLock<StrangerSampling> = OnceLock::new();

/// Turns traces on for the rest of the process. A second call has no effect. `sample_ratio` is the share of requests that are
/// traced where no trusted caller decides.
pub fn turn_on(tracer: BoxedTracer, sample_ratio: f64) {
    let _ = STRANGERS.set(StrangerSampling::new(sample_ratio));
    let _ = TRACER.set(tracer);
}

/// Samples the requests of strangers who name a trace. The tracer's own sampler goes by the id of the trace, which a stranger
/// could choose so that each request is traced.
struct StrangerSampling {
    ratio: f64,
    requests: AtomicU64,
    key: RandomState,
}

impl StrangerSampling {
    fn new(ratio: f64) -> Self {
        Self { ratio, requests: AtomicU64::new(0), key: RandomState::new() }
    }

    fn is_next_sampled(&self) -> bool {
        // 53 bits are exact as a double.
        let draw = self.key.hash_one(self.requests.fetch_add(1, Ordering::Relaxed)) >> 11;
        (draw as f64) < self.ratio * (1_u64 << 53) as f64
    }

    /// Returns the caller's span with the decision about this request in place of the caller's.
    fn decided(&self, caller: &SpanContext) -> SpanContext {
        let flags = caller.trace_flags().with_sampled(self.is_next_sampled());
        SpanContext::new(caller.trace_id(), caller.span_id(), flags, true, TraceState::NONE)
    }
}

/// A running span. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Context);

/// A reference to the span that work belongs to, for links from others.
#[derive(Clone, Debug)]
pub struct SpanLink(SpanContext);

impl Span {
    /// Begins the span of a request to the route, beneath the one in its header, if that is valid. Whether it is sampled is the
    /// caller's decision only if that is trusted.
    pub fn of_request<'h>(
        method: &'static str,
        route: &'static str,
        traceparent: impl FnOnce() -> Option<&'h [u8]>,
        is_trusted: bool,
    ) -> Option<Self> {
        let (tracer, strangers) = (TRACER.get()?, STRANGERS.get()?);
        let parent = traceparent().and_then(parent::read);
        let parent = parent.map(|caller| if is_trusted { caller } else { strangers.decided(&caller) });
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let attributes = [KeyValue::new("http.request.method", method), KeyValue::new("http.route", route)];
        Some(begun(tracer, &parent, format!("{method} {route}"), SpanKind::Server, attributes, Vec::new()))
    }

    /// Begins a span of work in this process, beneath the current one of this thread.
    pub fn of_work(name: &'static str) -> Option<Self> {
        let tracer = TRACER.get()?;
        Some(begun(tracer, &Context::current(), name.to_owned(), SpanKind::Internal, [], Vec::new()))
    }

    /// Begins the span of a delivery to an outside server, beneath the one that caused it, if that was recorded.
    pub fn of_delivery(name: &str, kind: &'static str, traceparent: Option<&str>) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = traceparent.and_then(|text| parent::read(text.as_bytes()));
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let attributes = [KeyValue::new("isobar.delivery.kind", kind)];
        Some(begun(tracer, &parent, name.to_owned(), SpanKind::Client, attributes, Vec::new()))
    }

    /// Begins the span of work that is done for many calls at once: beneath the first, with links to the others.
    /// Returns `None` if no caller is traced.
    pub fn of_group(name: &'static str, callers: Vec<SpanLink>) -> Option<Self> {
        let tracer = TRACER.get()?;
        let mut callers = callers.into_iter().map(|caller| caller.0);
        let parent = Context::new().with_remote_span_context(callers.next()?);
        let links = callers.map(Link::with_context).collect();
        Some(begun(tracer, &parent, name.to_owned(), SpanKind::Internal, [], links))
    }

    /// Sets an attribute.
    pub fn note(&self, name: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Sets the status of an HTTP response.
    pub fn note_status(&self, status: u16) {
        self.note("http.response.status_code", i64::from(status));
    }

    /// Marks the span as failed; `kind` becomes `error.type`.
    pub fn note_failure(&self, kind: &'static str) {
        self.note("error.type", kind);
        self.0.span().set_status(Status::error(kind));
    }

    /// Returns the `traceparent` header that names this span.
    pub fn traceparent(&self) -> String {
        parent::written(self.0.span().span_context())
    }

    /// Runs work within this span: spans that begin in it are its children, and its log lines carry the id of the
    /// trace.
    pub fn work<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let line = tracing::error_span!("trace", trace_id = %self.0.span().span_context().trace_id());
        work.with_context(self.0.clone()).instrument(line)
    }

    /// Ends the span. Later children still belong to it.
    pub fn end(&self) {
        self.0.span().end();
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.end();
    }
}

fn begun<const N: usize>(
    tracer: &BoxedTracer,
    parent: &Context,
    name: String,
    kind: SpanKind,
    attributes: [KeyValue; N],
    links: Vec<Link>,
) -> Span {
    let span = tracer.span_builder(name).with_kind(kind).with_attributes(attributes).with_links(links);
    Span(parent.with_span(span.start_with_context(tracer, parent)))
}

/// Returns a link to the current span of this thread, if it is sampled.
pub fn current() -> Option<SpanLink> {
    TRACER.get()?;
    let context = Context::current();
    let span = context.span().span_context().clone();
    span.is_sampled().then_some(SpanLink(span))
}

/// Returns the `traceparent` for work that this thread causes to be done later, sampled or not.
pub fn traceparent() -> Option<String> {
    TRACER.get()?;
    let context = Context::current();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| parent::written(&span))
}

/// Runs work within a span, if there is one.
pub async fn work<F: Future>(span: Option<&Span>, work: F) -> F::Output {
    match span {
        None => work.await,
        Some(span) => span.work(work).await,
    }
}

/// A boxed future.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Attaches work that is done elsewhere to the current span of this thread.
pub fn carry<T: 'static>(work: Work<T>) -> Work<T> {
    if TRACER.get().is_none() {
        return work;
    }
    Box::pin(work.with_current_context().in_current_span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_of_a_stranger_does_not_decide_and_its_trace_stays() {
        let read = |flags: &str| {
            parent::read(format!("00-00000000000000000000000000000001-00f067aa0ba902b7-{flags}").as_bytes()).unwrap()
        };
        for flags in ["00", "01"] {
            let caller = read(flags);
            let sampled = |ratio: f64, requests: usize| {
                let strangers = StrangerSampling::new(ratio);
                let decided = (0..requests).map(|_| strangers.decided(&caller));
                decided.filter(|it| it.trace_id() == caller.trace_id() && it.is_sampled()).count()
            };
            assert_eq!((sampled(0.0, 1_000), sampled(1.0, 1_000)), (0, 1_000));
            let some = sampled(0.25, 10_000);
            assert!((2_000..3_000).contains(&some), "{some}");
        }
    }
}
