//! Tests that the workers that accept and supervise connections continue after a panic.
//!
//! The panics come from outside the server: from a recorder of metrics that panics.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use isobar_http::HttpSettings;
use isobar_power::{becomes, within_patience};
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::TestApp;

/// Metric that is set when a connection is accepted.
const OPEN: &str = "isobar_http_connections";
/// Metric that is set when idle connections were closed for others.
const ENDED: &str = "isobar_http_connections_ended_total";
const RESTARTS: &str = "isobar_worker_restarts_total";
/// Most connections, and how many of their slots are kept free of idle ones.
const CONNECTIONS: usize = 16;
const KEPT_FREE: usize = CONNECTIONS / 8;

/// A recorder in which one metric panics this many times.
struct Failing<R> {
    inner: R,
    metric: &'static str,
    panics: Arc<AtomicU32>,
}

struct FailingMetric(Arc<AtomicU32>);

impl FailingMetric {
    fn told(&self) {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "the test has the recorder panic");
    }
}

impl CounterFn for FailingMetric {
    fn increment(&self, _: u64) {
        self.told();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for FailingMetric {
    fn increment(&self, _: f64) {
        self.told();
    }

    fn decrement(&self, _: f64) {}

    fn set(&self, _: f64) {}
}

impl<R: Recorder> Recorder for Failing<R> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_counter(key, unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_gauge(key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_histogram(key, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        match key.name() == self.metric {
            true => Counter::from_arc(Arc::new(FailingMetric(Arc::clone(&self.panics)))),
            false => self.inner.register_counter(key, metadata),
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        match key.name() == self.metric {
            true => Gauge::from_arc(Arc::new(FailingMetric(Arc::clone(&self.panics)))),
            false => self.inner.register_gauge(key, metadata),
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.inner.register_histogram(key, metadata)
    }
}

/// A server in which the recorder of one metric panics on demand.
struct Scene {
    app: TestApp,
    panics: Arc<AtomicU32>,
    /// Renders the text of /metrics.
    rendered: Box<dyn Fn() -> String>,
}

impl Scene {
    /// Returns how often a worker was restarted.
    fn restarts(&self, worker: &str) -> u32 {
        self.metric(&format!("{RESTARTS}{{worker=\"{worker}\"}}"))
    }

    /// Returns the number of open connections.
    fn open(&self) -> usize {
        self.metric(OPEN)
    }

    fn metric<T: FromStr + Default>(&self, name: &str) -> T {
        let text = (self.rendered)();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_default()
    }

    async fn connects(&self) -> TcpStream {
        TcpStream::connect(self.app.address).await.unwrap()
    }
}

/// Plays a scene in which recording `metric` panics. The whole server runs on this thread, like its recorder.
fn with_failing(metric: &'static str, play: impl AsyncFnOnce(Scene)) {
    let inner = isobar_http::prometheus().unwrap().build_recorder();
    let handle = inner.handle();
    let panics = Arc::new(AtomicU32::new(0));
    let recorder = Failing { inner, metric, panics: Arc::clone(&panics) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let app = TestApp::with(|settings| {
                settings.http = HttpSettings { max_connections: CONNECTIONS, ..HttpSettings::default() };
            })
            .await;
            play(Scene { app, panics, rendered: Box::new(move || handle.render()) }).await;
        });
    });
}

/// Waits for the end of a connection without an answer.
async fn ends(mut stream: TcpStream) {
    let ended = within_patience("the end of the connection", stream.read(&mut [0; 1])).await;
    // Unread bytes of the client make it end by a reset.
    assert!(!matches!(ended, Ok(1..)), "it was served");
}

/// Returns true if a request on a connection of its own is answered.
async fn is_served(scene: &Scene) -> bool {
    let mut stream = scene.connects().await;
    stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: isobar\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.is_ok() && answer.starts_with("HTTP/1.1 200")
}

#[test]
fn connection_is_served_after_two_panics_while_accepting() {
    with_failing(OPEN, async |scene| {
        let ana = scene.app.developer("ana").await;
        let device = ana.creates_device("fridge").await;
        for panics in 1..=2 {
            scene.panics.store(1, Ordering::SeqCst);
            // Only that connection ends: existing ones are served.
            ends(scene.connects().await).await;
            assert_eq!(scene.restarts("accept"), panics);
            device.posts("reading", json!(panics)).await.created();
        }
        assert!(is_served(&scene).await);
        assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 2);
        assert_eq!((scene.restarts("accept"), scene.restarts("meters")), (2, 0));
        scene.app.end().await;
    });
}

/// Opens more idle connections than may stay idle for long, until one is closed.
async fn closes_an_idle_one(scene: &Scene) {
    becomes("the others end", async || scene.open() == 0).await;
    let mut silent = Vec::new();
    while silent.len() <= CONNECTIONS - KEPT_FREE {
        silent.push(scene.connects().await);
    }
    becomes("all are accepted", async || scene.open() == silent.len()).await;
    scene.app.wait_seconds(3_600);
    let has_ended = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 1]), Ok(0));
    becomes("an idle connection is closed", async || silent.iter().any(has_ended)).await;
}

#[test]
fn idle_connections_are_closed_after_a_panic() {
    with_failing(ENDED, async |scene| {
        scene.panics.store(1, Ordering::SeqCst);
        closes_an_idle_one(&scene).await;
        assert_eq!((scene.restarts("meters"), scene.panics.load(Ordering::SeqCst)), (1, 0));
        closes_an_idle_one(&scene).await;
        assert_eq!((scene.restarts("accept"), scene.restarts("meters")), (0, 1));
        assert!(is_served(&scene).await);
        scene.app.end().await;
    });
}
