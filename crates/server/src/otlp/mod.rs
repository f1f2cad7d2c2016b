//! Export of traces and metrics to a collector, by OTLP over HTTP. Spans wait in a bounded queue: those that do not
//! fit, or that the collector refuses, are dropped and counted. Nothing waits for the collector.

mod figures;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use isobar_hub::{Hub, Shift};
use isobar_model::time::{Clock, Timestamp};
use isobar_outlets::calls::{Calls, OutgoingCall};
use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message as _;
use tokio::sync::{Mutex, mpsc};

use crate::Failure;
use crate::config::OtlpSettings;

/// Most spans in the queue.
const QUEUED_SPANS_MAX: usize = 2_048;
/// Most spans in one request.
const BATCH_SPANS_MAX: usize = 512;
/// Time for which spans are collected into a batch.
const GATHER: Duration = Duration::from_millis(200);
/// Timeout of a request to the collector.
const SEND_TIME: Duration = Duration::from_secs(5);
/// Timeout of the last requests at a stop.
const FLUSH_TIME: Duration = Duration::from_secs(2);
/// Interval of metrics.
const METRICS_EVERY: Duration = Duration::from_secs(30);

const SENT: &str = "isobar_spans_sent_total";
const DROPPED: &str = "isobar_spans_dropped_total";
const FAILED: &str = "isobar_spans_failed_total";

/// The exporter.
pub struct Otlp {
    spans: Mutex<mpsc::Receiver<SpanData>>,
    resource: ResourceAttributesWithSchema,
    calls: Calls,
    endpoint: String,
    headers: Vec<(String, String)>,
    /// True if the last request failed: only the first failure and the recovery are logged.
    fails: AtomicBool,
}

/// The queue of ended spans.
#[derive(Debug)]
struct SpanQueue(mpsc::Sender<SpanData>);

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(span).is_err() {
            metrics::counter!(DROPPED).increment(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Otlp {
    /// Turns traces on. Spans stay in the queue until [`Otlp::employ`].
    pub fn start(settings: &OtlpSettings) -> Result<Self, Failure> {
        let attributes = [KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
        let resource = Resource::builder().with_service_name("isobar").with_attributes(attributes).build();
        // The operator named the collector's host, so it is allowed wherever it is.
        let calls = Calls::new(&[settings.host.trim_matches(['[', ']']).to_owned()])?;
        let (queue, spans) = mpsc::channel(QUEUED_SPANS_MAX);
        let resource_attributes = ResourceAttributesWithSchema::from(&resource);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio))))
            .with_resource(resource)
            .with_span_processor(SpanQueue(queue))
            .build();
        let tracer = provider.tracer("isobar");
        isobar_traces::turn_on(global::BoxedTracer::new(Box::new(tracer)), settings.sample_ratio);
        Ok(Self {
            spans: Mutex::new(spans),
            resource: resource_attributes,
            calls,
            endpoint: settings.endpoint.clone(),
            headers: settings.headers.clone(),
            fails: AtomicBool::new(false),
        })
    }

    /// Starts the workers that send.
    pub fn employ(self: Arc<Self>, hub: &Hub, metrics: PrometheusHandle) {
        let otlp = Arc::clone(&self);
        hub.employ("traces", move |shift| Arc::clone(&otlp).send_traces(shift));
        let started = hub.clock().now();
        hub.employ("metrics", move |shift| {
            let (otlp, metrics) = (Arc::clone(&self), metrics.clone());
            async move { otlp.send_metrics(&metrics, started, shift).await }
        });
    }

    async fn send_traces(self: Arc<Self>, mut shift: Shift) {
        let mut spans = self.spans.lock().await;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                () = shift.end() => break,
                _ = spans.recv_many(&mut batch, BATCH_SPANS_MAX) => {}
            }
            if batch.len() < BATCH_SPANS_MAX {
                shift.pause(GATHER).await;
                fill(&mut batch, &mut spans);
            }
            self.send_spans(batch).await;
            shift.well();
        }
        let rest = async {
            loop {
                let mut batch = Vec::new();
                fill(&mut batch, &mut spans);
                if batch.is_empty() {
                    break;
                }
                self.send_spans(batch).await;
            }
        };
        if Clock::System.timeout(FLUSH_TIME, rest).await.is_err() {
            tracing::warn!("the collector is too slow for the last spans, which are lost");
        }
    }

    async fn send_spans(&self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        if self.post("traces", body).await {
            metrics::counter!(SENT).increment(count);
        } else {
            metrics::counter!(FAILED).increment(count);
        }
    }

    async fn send_metrics(&self, metrics: &PrometheusHandle, started: Timestamp, mut shift: Shift) {
        while !shift.pause(METRICS_EVERY).await {
            self.send_figures(metrics, started).await;
            shift.well();
        }
        // The metrics since the last interval.
        let _ = Clock::System.timeout(FLUSH_TIME, self.send_figures(metrics, started)).await;
    }

    async fn send_figures(&self, metrics: &PrometheusHandle, started: Timestamp) {
        let request = figures::request(&metrics.render(), &self.resource, started, Clock::System.now());
        self.post("metrics", request.encode_to_vec()).await;
    }

    /// Posts a message; returns true if the collector accepted it.
    async fn post(&self, what: &'static str, body: Vec<u8>) -> bool {
        let mut headers = vec![("content-type".to_owned(), "application/x-protobuf".to_owned())];
        headers.extend_from_slice(&self.headers);
        let url = format!("{}/v1/{what}", self.endpoint);
        let call = OutgoingCall { method: "POST".to_owned(), url, headers, body: Some(Bytes::from(body)) };
        let cause = match Clock::System.timeout(SEND_TIME, self.calls.make(&call)).await {
            Ok(Ok(answer)) if (200..300).contains(&answer.status) => None,
            Ok(Ok(answer)) => Some(format!("it answers {}", answer.status)),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", SEND_TIME.as_secs())),
        };
        match (&cause, self.fails.swap(cause.is_some(), Ordering::Relaxed)) {
            (Some(cause), false) => tracing::warn!(cause, what, "cannot send to the collector"),
            (None, true) => tracing::info!(what, "the collector accepts data again"),
            _ => {}
        }
        cause.is_none()
    }
}

/// Fills a batch from the queue.
fn fill(batch: &mut Vec<SpanData>, spans: &mut mpsc::Receiver<SpanData>) {
    while batch.len() < BATCH_SPANS_MAX
        && let Ok(span) = spans.try_recv()
    {
        batch.push(span);
    }
}
