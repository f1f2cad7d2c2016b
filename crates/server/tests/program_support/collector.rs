//! An OpenTelemetry collector that records what it receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use isobar_power::settled;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

#[derive(Clone, Default)]
pub struct Collector {
    pub url: String,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    resources: Vec<KeyValue>,
    heads: Vec<HeaderMap>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, ..Self::default() };
        let router = Router::new().route("/v1/traces", post(traces)).route("/v1/metrics", post(metrics));
        let router = router.with_state(Arc::clone(&collector.received));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        collector
    }

    /// Waits for at least `count` spans of a trace.
    pub async fn trace(&self, id: &str, count: usize) -> Vec<Span> {
        settled(&format!("{count} spans of {id}"), async || {
            let spans = self.spans_of(id);
            (spans.len() >= count).then_some(spans)
        })
        .await
    }

    pub fn spans_of(&self, trace: &str) -> Vec<Span> {
        self.received.lock().spans.iter().filter(|span| hex(&span.trace_id) == trace).cloned().collect()
    }

    /// Waits for at least `count` spans of that name.
    pub async fn named(&self, name: &str, count: usize) -> Vec<Span> {
        settled(&format!("{count} spans {name}"), async || {
            let spans: Vec<_> = self.received.lock().spans.iter().filter(|span| span.name == name).cloned().collect();
            (spans.len() >= count).then_some(spans)
        })
        .await
    }

    pub fn spans(&self) -> usize {
        self.received.lock().spans.len()
    }

    pub fn metrics(&self) -> Vec<Metric> {
        self.received.lock().metrics.clone()
    }

    /// Returns the resource attributes of the sender.
    pub fn resource(&self) -> BTreeMap<String, String> {
        texts(&self.received.lock().resources)
    }

    pub fn heads(&self) -> Vec<HeaderMap> {
        self.received.lock().heads.clone()
    }
}

async fn traces(State(received): State<Arc<Mutex<Received>>>, head: HeaderMap, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut received = received.lock();
    received.heads.push(head);
    for resource in request.resource_spans {
        received.resources = resource.resource.unwrap().attributes;
        received.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
}

async fn metrics(State(received): State<Arc<Mutex<Received>>>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    received.lock().metrics = scopes.flat_map(|scope| scope.metrics).collect();
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns attributes as texts.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = match attribute.value.as_ref().unwrap().value.as_ref().unwrap() {
            any_value::Value::StringValue(text) => text.clone(),
            any_value::Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?}"),
        };
        (attribute.key.clone(), value)
    };
    attributes.iter().map(text).collect()
}
