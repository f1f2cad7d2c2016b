//! The limits that tenants share, as operators see them at /metrics.

use isobar_power::becomes;
use isobar_quota::limits::LIMITS;

use crate::support::TestApp;
use crate::support::stream::Stream;

/// Connections of the server; three quarters of them are places for long waits.
const CONNECTIONS: usize = 32;
const PLACES: usize = 24;
/// Places of a single tenant.
const OF_ONE: usize = 16;

/// Plays a scene whose server records its metrics. The whole server runs on this thread, like its recorder.
fn with_metrics(play: impl AsyncFnOnce(TestApp)) {
    let recorder = isobar_http::prometheus().unwrap().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let app = TestApp::with(|settings| {
                settings.http.max_connections = CONNECTIONS;
                settings.metrics = Some(recorder.handle());
            })
            .await;
            play(app).await;
        });
    });
}

/// Returns what /metrics shows of a limit, if anything.
async fn shown(app: &TestApp, metric: &str, limit: &str) -> Option<usize> {
    let page = app.get("/metrics").await.is(200).text;
    let start = format!("{metric}{{limit=\"{limit}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&*start)?.parse().ok())
}

async fn used_and_refused(app: &TestApp) -> (Option<usize>, Option<usize>) {
    let used = shown(app, "isobar_limit_used", "long_waits").await;
    (used, shown(app, "isobar_limit_refused_total", "long_waits").await)
}

#[test]
fn full_limit_shows_its_use_and_its_refusals() {
    with_metrics(async |app| {
        let ana = app.developer("ana").await;
        assert_eq!(shown(&app, "isobar_limit", "long_waits").await, Some(PLACES));
        assert_eq!(used_and_refused(&app).await, (Some(0), Some(0)));
        let mut streams = Vec::new();
        for _ in 0..OF_ONE {
            streams.push(Stream::open(&ana, "", None).await);
        }
        assert_eq!(used_and_refused(&app).await, (Some(OF_ONE), Some(0)));
        ana.get("/v2/events/stream").await.is(503);
        assert_eq!(used_and_refused(&app).await, (Some(OF_ONE), Some(1)));
        drop(streams);
        becomes("all places are free", async || used_and_refused(&app).await == (Some(0), Some(1))).await;
        app.end().await;
    });
}

#[test]
fn metrics_show_every_limit_of_the_table() {
    with_metrics(async |app| {
        for limit in LIMITS {
            let is_shown = async || shown(&app, "isobar_limit_used", limit.name).await.is_some();
            becomes(&format!("{} is shown", limit.name), is_shown).await;
            assert!(shown(&app, "isobar_limit_refused_total", limit.name).await.is_some(), "{}", limit.name);
            let total = shown(&app, "isobar_limit", limit.name).await;
            let set = match limit.name {
                "long_waits" => PLACES,
                _ => limit.of_all,
            };
            assert_eq!(total, (set != usize::MAX).then_some(set), "{}", limit.name);
        }
        app.end().await;
    });
}
