//! Traces and metrics in an OpenTelemetry collector, and slow or absent collectors, which delay nobody.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use futures::future::join_all;
use isobar_power::{becomes, settled};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::Span;
use program_support::collector::{Collector, hex, texts};
use program_support::house::{House, until};
use program_support::site::{Api, ENVIRONMENT};
use program_support::{Serving, isobar, serve};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

const ENDPOINT: &str = "ISOBAR_OBSERVABILITY__OTLP_ENDPOINT";
const SAMPLE_RATIO: &str = "ISOBAR_OBSERVABILITY__OTLP_SAMPLE_RATIO";
const TRUSTED_PROXIES: &str = "ISOBAR_HTTP__TRUSTED_PROXIES";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Starts a server that exports to a collector; the caller's header decides on sampling.
async fn house(endpoint: &str, sample_ratio: &str) -> House {
    House::with(|folder| {
        let mut command = serve(folder, &ENVIRONMENT);
        command.env(ENDPOINT, endpoint).env(SAMPLE_RATIO, sample_ratio);
        // The tests are a trusted proxy, whose header decides.
        command.env(TRUSTED_PROXIES, "127.0.0.1");
        command
    })
    .await
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// Posts an event with additional headers on a connection of its own.
async fn posts(house: &House, headers: &str) {
    let body = "{\"n\":1}";
    let mut stream = house.connect().await;
    let request = format!("{}{body}", house.head(&format!("content-length: {}\r\n{headers}", body.len())));
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Returns spans by name, which must be unique.
fn by_name(spans: Vec<Span>) -> BTreeMap<String, Span> {
    let count = spans.len();
    let named: BTreeMap<_, _> = spans.into_iter().map(|span| (span.name.clone(), span)).collect();
    assert_eq!(named.len(), count, "{named:#?}");
    named
}

// Holds: c16.otlp
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posted_event_gives_spans_beneath_that_of_its_caller() {
    let collector = Collector::start().await;
    let house = house(&collector.url, "0").await;
    posts(&house, &format!("traceparent: {}\r\n", traceparent("01"))).await;
    let spans = by_name(collector.trace(TRACE, 3).await);
    let request = &spans["POST /v2/events/device"];
    assert_eq!(hex(&request.parent_span_id), PARENT);
    for child in ["run design", "commit telemetry"] {
        let child = &spans[child];
        assert_eq!(child.parent_span_id, request.span_id, "{child:?}");
        assert!(request.start_time_unix_nano <= child.start_time_unix_nano, "{child:?}");
        assert!(child.start_time_unix_nano <= child.end_time_unix_nano, "{child:?}");
    }
    let expected =
        [("http.request.method", "POST"), ("http.response.status_code", "201"), ("http.route", "/v2/events/device")];
    let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(texts(&request.attributes), expected);
    assert_eq!(collector.resource()["service.name"], "isobar");
    // The spans contain no part of the payload, and no identifier or token of the device.
    let all = format!("{spans:?}");
    assert!(!all.contains(&house.device.token) && !all.contains("reading"), "{all}");
    assert_eq!(house.serving.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_group_is_linked_to_each_request_in_it() {
    const POSTS: usize = 32;
    let collector = Collector::start().await;
    let house = house(&collector.url, "1").await;
    join_all((0..POSTS).map(|_| posts(&house, ""))).await;
    let requests = collector.named("POST /v2/events/device", POSTS).await;
    assert_eq!(house.serving.stop(), Some(0));
    let groups = collector.named("commit telemetry", 1).await;
    let links = groups.iter().flat_map(|group| group.links.iter().map(|link| &link.span_id));
    let served: BTreeSet<_> = groups.iter().map(|group| &group.parent_span_id).chain(links).collect();
    assert!(requests.iter().all(|request| served.contains(&request.span_id)), "{groups:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_that_is_sent_has_a_span_without_its_address() {
    let collector = Collector::start().await;
    let house = house(&collector.url, "1").await;
    Api::registered(&house.serving, "ana").await;
    let sent = collector.named("send e-mail", 1).await.remove(0);
    assert_eq!(texts(&sent.attributes), BTreeMap::from([("isobar.delivery.kind".to_owned(), "link".to_owned())]));
    assert!(sent.parent_span_id.is_empty());
    assert_eq!(house.serving.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_design_carries_its_span_to_the_server() {
    let collector = Collector::start().await;
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in?secret=1", outside.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve(folder.path(), &ENVIRONMENT);
    command.env(ENDPOINT, &collector.url).env("ISOBAR_OUTGOING__ALLOW", "127.0.0.1");
    let serving = Serving::of(command);
    let api = Api::of(&serving).await;
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "ask", "ability": "request"}]}},
        "ask": {"type": "http", "properties": {"method": "POST", "url": url, "body": "{}"}},
    });
    let device = api.found(&design, 1).await.remove(0);
    api.post(&device, "reading", &json!({"n": 1})).await.created();
    let (mut stream, _) = outside.accept().await.unwrap();
    let head = until(&mut stream, "\r\n\r\n").await.to_lowercase();
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    let request = collector.named("POST /v2/events/device", 1).await.remove(0);
    let call = collector.named("POST", 1).await.remove(0);
    assert_eq!((&call.trace_id, &call.parent_span_id), (&request.trace_id, &request.span_id));
    let carried = format!("traceparent: 00-{}-{}-01\r\n", hex(&call.trace_id), hex(&call.span_id));
    assert!(head.contains(&carried), "{head}");
    let noted = texts(&call.attributes);
    let known = (noted["server.address"].as_str(), noted["http.response.status_code"].as_str());
    assert_eq!(known, ("127.0.0.1", "204"));
    assert!(!format!("{call:?}").contains("secret"), "{call:?}");
    assert_eq!(serving.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_keeps_the_decision_of_the_caller() {
    let collector = Collector::start().await;
    let none = house(&collector.url, "0").await;
    let sampled = traceparent("01");
    let unsampled = traceparent("00");
    for headers in [
        String::new(),
        format!("traceparent: {unsampled}\r\n"),
        // Malformed or repeated headers are ignored.
        format!("traceparent: {sampled}{}\r\n", "0".repeat(4_000)),
        format!("traceparent: {sampled}\r\ntraceparent: {sampled}\r\n"),
        format!("traceparent: {}\r\n", sampled.to_uppercase()),
        "traceparent: \u{e9}\r\n".to_owned(),
    ] {
        posts(&none, &headers).await;
    }
    posts(&none, &format!("traceparent: {sampled}\r\n")).await;
    collector.trace(TRACE, 3).await;
    assert_eq!(none.serving.stop(), Some(0));
    // Only the last one; all waiting spans were sent at the stop.
    assert_eq!(collector.spans(), 3);
    let all = house(&collector.url, "1").await;
    posts(&all, &format!("traceparent: {unsampled}\r\n")).await;
    posts(&all, "").await;
    let requests = collector.named("POST /v2/events/device", 2).await;
    assert_eq!(all.serving.stop(), Some(0));
    assert!(requests[1].parent_span_id.is_empty());
    assert_eq!(collector.spans_of(TRACE).len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sampling_ignores_the_decision_of_a_stranger() {
    let collector = Collector::start().await;
    for (ratio, traced) in [("0", 0), ("1", 2)] {
        let strangers = House::with(|folder| {
            let mut command = serve(folder, &ENVIRONMENT);
            command.env(ENDPOINT, &collector.url).env(SAMPLE_RATIO, ratio);
            command
        });
        let strangers = strangers.await;
        for flags in ["00", "01"] {
            posts(&strangers, &format!("traceparent: {}\r\n", traceparent(flags))).await;
        }
        // All waiting spans are sent at the stop.
        assert_eq!(strangers.serving.stop(), Some(0));
        let spans = collector.spans_of(TRACE);
        let requests: Vec<_> = spans.iter().filter(|span| span.name == "POST /v2/events/device").collect();
        assert_eq!(requests.len(), traced, "{spans:#?}");
        assert!(requests.iter().all(|span| hex(&span.parent_span_id) == PARENT), "{spans:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absent_collector_loses_spans_and_nothing_else() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let house = house(&endpoint, "1").await;
    posts(&house, "").await;
    becomes("spans that nobody took", async || house.api.metric("isobar_spans_failed_total").await > 0.0).await;
    posts(&house, "").await;
    assert_eq!(house.history().await.len(), 2);
    assert_eq!(house.api.metric("isobar_spans_sent_total").await, 0.0);
    assert_eq!(house.serving.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_collector_delays_nobody() {
    // It accepts connections and data, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let taken = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            taken.push(stream);
        }
    });
    let house = house(&endpoint, "1").await;
    let mut stream = house.connect().await;
    let mut posted = 0;
    // Spans beyond the queue are dropped, while all posts are acknowledged.
    settled("dropped spans", async || {
        for _ in 0..100 {
            stream.write_all(house.post("{\"n\":1}").as_bytes()).await.unwrap();
            assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 201"));
            posted += 1;
        }
        (house.api.metric("isobar_spans_dropped_total").await > 0.0).then_some(())
    })
    .await;
    assert_eq!(house.history().await.len(), posted);
    // A stop takes no longer than its limit.
    assert_eq!(house.serving.stops_meanwhile(), Some(0));
    taken.abort();
}

/// Returns the JSON log of a server during a traced post.
async fn logged(folder: &Path, endpoint: Option<&str>) -> Vec<Value> {
    let log = folder.join("log");
    let house = House::with(|data| {
        let mut command =
            isobar(&["serve", "--listen", "127.0.0.1:0", "--log", "warn,isobar_http=debug,json", "--data"]);
        command.arg(data).envs(ENVIRONMENT).stderr(File::create(&log).unwrap());
        command.envs(endpoint.map(|endpoint| (ENDPOINT, endpoint)));
        command
    })
    .await;
    posts(&house, &format!("traceparent: {}\r\n", traceparent("01"))).await;
    assert_eq!(house.serving.stop(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["message"] == "answered" && line["route"] == "/v2/events/device").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_carry_the_trace_where_there_is_one() {
    let (collector, folder) = (Collector::start().await, tempfile::tempdir().unwrap());
    let traced = logged(folder.path(), Some(&collector.url)).await;
    assert_eq!(traced.len(), 1);
    assert_eq!(traced[0]["span"]["trace_id"], TRACE);
    let untraced = logged(folder.path(), None).await;
    assert_eq!(untraced.len(), 1);
    assert_eq!(untraced[0].get("span"), None);
}

// Holds: c16.otlp
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_metrics_match_those_shown() {
    let collector = Collector::start().await;
    let house = House::with(|folder| {
        let mut command = serve(folder, &ENVIRONMENT);
        command.env(ENDPOINT, &collector.url).env("ISOBAR_OBSERVABILITY__OTLP_HEADERS", "authorization=Bearer t,x-a=b");
        command
    })
    .await;
    posts(&house, "").await;
    let shown = house.serving.get("/metrics");
    collector.named("POST /v2/events/device", 1).await;
    assert_eq!(house.serving.stop(), Some(0));
    let heads = collector.heads();
    let sent = (&heads[0]["authorization"], &heads[0]["x-a"], &heads[0]["content-type"]);
    assert_eq!(sent, (&"Bearer t".parse().unwrap(), &"b".parse().unwrap(), &"application/x-protobuf".parse().unwrap()));
    let metrics: BTreeMap<_, _> =
        collector.metrics().into_iter().map(|metric| (metric.name, metric.data.unwrap())).collect();
    for name in shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(metrics.contains_key(name), "{name}");
    }
    let Data::Sum(accepted) = &metrics["isobar_events_accepted_total"] else { panic!("no sum") };
    assert!(accepted.is_monotonic && accepted.data_points[0].value == Some(Number::AsDouble(1.0)), "{accepted:?}");
    let Data::Gauge(ready) = &metrics["isobar_ready"] else { panic!("no gauge") };
    assert!(ready.data_points.iter().any(|point| texts(&point.attributes)["part"] == "telemetry"), "{ready:?}");
    let Data::Histogram(took) = &metrics["isobar_http_request_duration_seconds"] else { panic!("no histogram") };
    for point in &took.data_points {
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    }
}
