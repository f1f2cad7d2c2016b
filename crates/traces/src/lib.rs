//! Traces: what a call waits for, as spans beneath the call's own. The server turns them on and sends them to a collector; until
//! then every function here returns after one look at whether they are on.
//!
//! Names and attributes of spans are the program's own words, identifiers and statuses: no payload, no path, no query.

mod parent;

use std::pin::Pin;
use std::sync::OnceLock;

use opentelemetry::context::FutureExt as _;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use tracing::Instrument as _;

/// Calls that the span of a commit group links to; further ones of the group are not named in it.
pub const GROUP_LINKS_MAX: usize = 64;

/// What makes spans, once traces are on.
static TRACER: OnceLock<BoxedTracer> = OnceLock::new();

/// Turns traces on, for as long as the process runs. A second call changes nothing.
pub fn turn_on(tracer: BoxedTracer) {
    let _ = TRACER.set(tracer);
}

/// A span that is under way. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Context);

/// The span that work belongs to, to be linked from elsewhere.
#[derive(Clone, Debug)]
pub struct SpanLink(SpanContext);

impl Span {
    /// Begins the span of a request to the route, beneath the one that its header names, if that can be read.
    pub fn of_request<'h>(
        method: &'static str,
        route: &'static str,
        traceparent: impl FnOnce() -> Option<&'h [u8]>,
    ) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = traceparent().and_then(parent::read);
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let attributes = [KeyValue::new("http.request.method", method), KeyValue::new("http.route", route)];
        Some(begun(tracer, &parent, format!("{method} {route}"), SpanKind::Server, attributes, Vec::new()))
    }

    /// Begins a span of work in this process, beneath the one that this thread works for.
    pub fn of_work(name: &'static str) -> Option<Self> {
        let tracer = TRACER.get()?;
        Some(begun(tracer, &Context::current(), name.to_owned(), SpanKind::Internal, [], Vec::new()))
    }

    /// Begins the span of a delivery to somebody outside, beneath the one that caused it, if that was noted.
    pub fn of_delivery(name: &str, kind: &'static str, traceparent: Option<&str>) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = traceparent.and_then(|text| parent::read(text.as_bytes()));
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let attributes = [KeyValue::new("isobar.delivery.kind", kind)];
        Some(begun(tracer, &parent, name.to_owned(), SpanKind::Client, attributes, Vec::new()))
    }

    /// Begins the span of work that is done for many at once: beneath the first, with links to the others. None where it is
    /// done for nobody who is traced.
    pub fn of_group(name: &'static str, callers: Vec<SpanLink>) -> Option<Self> {
        let tracer = TRACER.get()?;
        let mut callers = callers.into_iter().map(|caller| caller.0);
        let parent = Context::new().with_remote_span_context(callers.next()?);
        let links = callers.map(Link::with_context).collect();
        Some(begun(tracer, &parent, name.to_owned(), SpanKind::Internal, [], links))
    }

    /// Notes an attribute.
    pub fn note(&self, name: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Notes the status of an HTTP response.
    pub fn note_status(&self, status: u16) {
        self.note("http.response.status_code", i64::from(status));
    }

    /// Notes that the work failed; `kind` says how, in a word of the program.
    pub fn note_failure(&self, kind: &'static str) {
        self.note("error.type", kind);
        self.0.span().set_status(Status::error(kind));
    }

    /// Returns the value of `traceparent` that names this span.
    pub fn traceparent(&self) -> String {
        parent::written(self.0.span().span_context())
    }

    /// Does work for this span: spans that begin in it are beneath this one, and its log lines carry the id of the trace.
    pub fn work<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let line = tracing::error_span!("trace", trace_id = %self.0.span().span_context().trace_id());
        work.with_context(self.0.clone()).instrument(line)
    }

    /// Ends the span. What else is done for it is still beneath it.
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

/// Returns the span that this thread works for, if it is one that is sent.
pub fn current() -> Option<SpanLink> {
    TRACER.get()?;
    let context = Context::current();
    let span = context.span().span_context().clone();
    span.is_sampled().then_some(SpanLink(span))
}

/// Returns the value of `traceparent` for what this thread causes to be done later, whether it is sampled or not.
pub fn traceparent() -> Option<String> {
    TRACER.get()?;
    let context = Context::current();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| parent::written(&span))
}

/// Does work for a span, if there is one.
pub async fn work<F: Future>(span: Option<&Span>, work: F) -> F::Output {
    match span {
        None => work.await,
        Some(span) => span.work(work).await,
    }
}

/// Work in a box.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Lets work that is done elsewhere belong to the span that this thread works for.
pub fn carry<T: 'static>(work: Work<T>) -> Work<T> {
    if TRACER.get().is_none() {
        return work;
    }
    Box::pin(work.with_current_context().in_current_span())
}
