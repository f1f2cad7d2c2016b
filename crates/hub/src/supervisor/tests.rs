use std::sync::atomic::AtomicUsize;

use isobar_model::access::system;
use isobar_model::device::Device;
use isobar_model::page::PageRequest;
use isobar_model::role::Role;
use isobar_model::status::Status;
use isobar_model::user::NewUser;
use isobar_store::registry::DeliveryKind;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::*;
use crate::stage::{Stage, answering_server, until};

/// Each worker, with the point at which it begins its work.
const WORKERS: [(&str, &str); 10] = [
    ("outbox", "outbox"),
    ("activity", "activity"),
    ("usage", "usage"),
    ("registry_watch", "registry_watch"),
    ("retention", "retention"),
    ("timers", "timers"),
    ("calls", "calls"),
    ("device_notices", "device_notices"),
    ("notices", "notices"),
    ("deliveries_mail", "deliveries"),
];

/// Panics of each worker, enough for readiness to report it for some seconds.
const PANICS_EACH: u32 = PANICS_TOLD + 2;

/// Runs a test with a hub and its metrics.
fn played<F: Future<Output = ()>>(scene: impl FnOnce(Measured) -> F) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let measured = Measured(recorder.handle());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(scene(measured)));
}

struct Measured(PrometheusHandle);

impl Measured {
    fn restarts(&self, worker: &str) -> u32 {
        self.value(&format!("{RESTARTS}{{worker=\"{worker}\"}} "))
    }

    fn panics(&self, task: &str) -> u32 {
        self.value(&format!("{PANICS}{{task=\"{task}\"}} "))
    }

    fn value(&self, name: &str) -> u32 {
        let text = self.0.render();
        text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or_default()
    }
}

/// Returns a design whose every event makes work for the outbox, the calls and the notices.
fn busy(port: u16) -> String {
    let to = |element: &str, ability: &str| format!(r#"{{"element":"{element}","ability":"{ability}"}}"#);
    let links = [to("log", "store"), to("ask", "request"), to("tell", "notify"), to("warm", "evaluate")].join(",");
    let critical = r#"{"element":"state","ability":"setStatus","arguments":{"status":"critical"}}"#;
    format!(
        r#"{{
            "reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": [{links}]}}}},
            "log": {{"type": "storage"}},
            "ask": {{"type": "http", "properties": {{"method": "GET", "url": "http://127.0.0.1:{port}/"}},
                     "triggers": {{"response": [{}]}}}},
            "answers": {{"type": "storage"}},
            "tell": {{"type": "notification", "properties": {{"message": "'it talks'", "minimumRole": "technician"}}}},
            "warm": {{"type": "condition", "properties": {{"expression": "payload.temp > 8"}},
                      "triggers": {{"true": [{critical}]}}}},
            "state": {{"type": "deviceMeta"}},
            "tick": {{"type": "interval", "properties": {{"minutes": 5}}, "triggers": {{"elapsed": [{}]}}}},
            "ticks": {{"type": "storage"}}
        }}"#,
        to("answers", "store"),
        to("ticks", "store"),
    )
}

/// Returns a design that sets the status of a device with warm readings to critical.
fn warning() -> &'static str {
    r#"{
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "warm", "ability": "evaluate"}]}},
        "warm": {"type": "condition", "properties": {"expression": "payload.temp > 8"}, "triggers": {
            "true": [{"element": "state", "ability": "setStatus", "arguments": {"status": "critical"}}],
            "false": [{"element": "state", "ability": "setStatus", "arguments": {"status": "good"}}]
        }},
        "state": {"type": "deviceMeta"}
    }"#
}

fn user(name: &str) -> NewUser {
    NewUser {
        username: name.to_owned(),
        email: format!("{name}@example.com"),
        password: None,
        first_name: name.to_owned(),
        last_name: "Scene".to_owned(),
        company: "c".to_owned(),
        role: Role::Developer,
        organization: None,
        tos_hash: None,
        language: None,
    }
}

async fn status(stage: &Stage, device: &Device) -> Status {
    let entry = stage.entry(device).await;
    let permit = system(entry.device, "a test looks at a device").reading();
    stage.hub.0.env.registry().device_fetch(&permit).await.unwrap().unwrap().status
}

async fn notices(stage: &Stage) -> u64 {
    stage.hub.notification_list(&stage.admin, PageRequest::default(), false).await.unwrap().total
}

#[test]
fn panicking_worker_is_restarted_and_does_its_work() {
    played(async |measured| {
        let stage = Stage::set().await;
        let (hub, faults) = (&stage.hub, &stage.hub.0.env.faults);
        WORKERS.iter().for_each(|(_, point)| faults.panic_at(point, PANICS_EACH));
        let device = stage.device(&busy(answering_server().await)).await;
        stage.posts(&device, r#"{"temp":9}"#).await;
        hub.user_create(&stage.admin, user("ana")).await.unwrap();
        hub.system_notification_emit(&stage.admin, "hear".to_owned()).await.unwrap();
        stage.clock.advance_seconds(300);
        hub.employ_all();
        // Each failing worker is named while it fails.
        until("readiness tells", || async {
            let told = hub.ready().await.err().unwrap_or_default();
            told.iter().any(|fault| fault.field == "outbox" && fault.message.contains("fails again and again"))
        })
        .await;
        until("the registry learns of the status", async || status(&stage, &device).await == Status::Critical).await;
        until("the call is made and its answer stored", async || stage.stored(&device, "answers").await.is_some())
            .await;
        until("the interval elapses", async || stage.stored(&device, "ticks").await.is_some()).await;
        until("the letter is sent", async || stage.mails() > 0).await;
        until("the notices are told", async || notices(&stage).await == 2).await;
        until("the notice is spread", async || hub.0.env.registry().notice_to_spread().await.unwrap().is_none()).await;
        until("all have begun", async || WORKERS.iter().all(|(_, point)| faults.left_at(point) == 0)).await;
        until("all are well again", async || hub.ready().await.is_ok()).await;
        for (worker, _) in WORKERS {
            assert_eq!(measured.restarts(worker), PANICS_EACH, "{worker}");
        }
        // Activity and stored bytes are written at the end.
        stage.ends().await;
        let entry = stage.entry(&device).await;
        let permit = system(entry.device, "a test looks at a device").reading();
        assert!(hub.0.env.registry().device_fetch(&permit).await.unwrap().unwrap().last_active.is_some());
        let organization = hub.organization_fetch(&stage.admin, device.organization).await.unwrap();
        assert!(organization.bytes_stored > 0);
        stage.over().await;
    });
}

#[test]
fn worker_panicking_at_the_stop_delays_nothing() {
    played(async |measured| {
        let stage = Stage::set().await;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        stage.hub.employ("stubborn", move |mut shift| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                shift.end().await;
                assert!(!shift.ends(), "at the end");
            }
        });
        until("it works", async || runs.load(Ordering::SeqCst) == 1).await;
        stage.ends().await;
        assert_eq!((runs.load(Ordering::SeqCst), measured.restarts("stubborn")), (1, 1));
        stage.over().await;
    });
}

#[test]
fn work_of_a_panicked_run_is_not_waited_for() {
    played(async |measured| {
        let stage = Stage::set().await;
        let device = stage.device(warning()).await;
        stage.hub.0.env.faults.panic_at("hand_over", 1);
        let panicked = guarded("test", stage.posts(&device, r#"{"temp":9}"#)).await;
        assert_eq!((panicked, measured.panics("test")), (None, 1));
        assert!(stage.hub.0.outbox.pending(device.key).is_none());
        // The device continues as if that run had never happened.
        stage.posts(&device, r#"{"temp":1}"#).await;
        assert!(stage.hub.0.outbox.pending(device.key).is_some());
        stage.hub.0.delivery.work_off_now().await.unwrap();
        assert_eq!(status(&stage, &device).await, Status::Good);
        stage.over().await;
    });
}

#[test]
fn panicking_delivery_is_retried_without_delaying_others() {
    played(async |measured| {
        let stage = Stage::set().await;
        let (hub, faults) = (&stage.hub, &stage.hub.0.env.faults);
        faults.panic_at("delivery", 1);
        for name in ["ana", "bob", "cleo"] {
            hub.user_create(&stage.admin, user(name)).await.unwrap();
        }
        let all = stage.waiting(DeliveryKind::Link).await;
        hub.employ_all();
        until("the others are sent", async || stage.mails() == all - 1 && stage.waiting(DeliveryKind::Link).await == 1)
            .await;
        assert_eq!(measured.panics("delivery"), 1);
        // The pause depends on the clock, which does not move by itself.
        stage.clock.advance_seconds(10);
        until("it is sent too", async || stage.mails() == all && stage.waiting(DeliveryKind::Link).await == 0).await;
        // A delivery that always panics is dropped once it is too old.
        faults.panic_at("delivery", u32::MAX);
        hub.user_create(&stage.admin, user("dora")).await.unwrap();
        until("it was tried", async || measured.panics("delivery") >= 2).await;
        assert!(stage.waiting(DeliveryKind::Link).await > 0);
        stage.clock.advance_seconds(4 * 24 * 3600);
        until("it is given up", async || stage.waiting(DeliveryKind::Link).await == 0).await;
        assert_eq!((stage.mails(), measured.restarts("deliveries_mail")), (all, 0));
        stage.over().await;
    });
}

#[test]
fn panicking_call_and_notice_are_retried() {
    played(async |measured| {
        let stage = Stage::set().await;
        let (hub, faults) = (&stage.hub, &stage.hub.0.env.faults);
        let device = stage.device(&busy(answering_server().await)).await;
        faults.panic_at("call", 1);
        faults.panic_at("device_notice", 1);
        stage.posts(&device, r#"{"temp":9}"#).await;
        hub.employ_all();
        until("both panic", async || measured.panics("call") == 1 && measured.panics("device_notice") == 1).await;
        until("both are put off", async || {
            stage.is_put_off(DeliveryKind::Call).await && stage.is_put_off(DeliveryKind::Notice).await
        })
        .await;
        assert_eq!((stage.stored(&device, "answers").await, notices(&stage).await), (None, 0));
        stage.clock.advance_seconds(10);
        until("the call is made", async || stage.stored(&device, "answers").await.is_some()).await;
        until("the notice is told", async || notices(&stage).await == 1).await;
        assert_eq!((measured.restarts("calls"), measured.restarts("device_notices")), (0, 0));
        stage.over().await;
    });
}

#[test]
fn panicking_timer_is_retried_without_delaying_others() {
    played(async |measured| {
        let stage = Stage::set().await;
        let first = stage.device(&busy(1)).await;
        let second = stage.another(&format!(r#"{{"name":"e","projectUuid":"{}"}}"#, first.project)).await;
        stage.hub.0.env.faults.panic_at("timer", 1);
        stage.clock.advance_seconds(300);
        stage.hub.employ_all();
        let ticks = async || {
            let [one, other] = [stage.stored(&first, "ticks").await, stage.stored(&second, "ticks").await];
            usize::from(one.is_some()) + usize::from(other.is_some())
        };
        until("one elapses", async || ticks().await == 1).await;
        assert_eq!(measured.panics("timer"), 1);
        stage.clock.advance_seconds(60);
        until("the other one elapses", async || ticks().await == 2).await;
        assert_eq!(measured.restarts("timers"), 0);
        stage.over().await;
    });
}

#[test]
fn notice_that_always_panics_is_dropped_after_its_tries() {
    played(async |_| {
        let stage = Stage::set().await;
        let hub = &stage.hub;
        for message in ["first", "second"] {
            hub.system_notification_emit(&stage.admin, message.to_owned()).await.unwrap();
        }
        hub.0.env.faults.panic_at("notice", TRIES_MAX);
        for _ in 0..TRIES_MAX {
            assert!(guarded("test", hub.0.delivery.spread_next()).await.is_none());
        }
        while hub.0.delivery.spread_next().await.unwrap() {}
        assert!(hub.0.env.registry().notice_to_spread().await.unwrap().is_none());
        assert_eq!(notices(&stage).await, 2);
        stage.over().await;
    });
}

#[test]
fn usage_is_written_after_a_panicked_write() {
    played(async |_| {
        let stage = Stage::set().await;
        let (hub, faults) = (&stage.hub, &stage.hub.0.env.faults);
        let device = stage.device(&busy(1)).await;
        stage.posts(&device, r#"{"temp":1}"#).await;
        faults.panic_at("usage_part", 1);
        assert!(guarded("test", hub.0.usage.usage_settled()).await.is_none());
        hub.0.usage.usage_settled().await.unwrap();
        let organization = hub.organization_fetch(&stage.admin, device.organization).await.unwrap();
        assert_eq!(organization.bytes_stored, 10);
        stage.over().await;
    });
}

#[test]
fn pause_grows_up_to_half_a_minute() {
    let pauses = [1, 2, 3, 9, 10, u32::MAX].map(pause_after).map(|pause| pause.as_millis());
    assert_eq!(pauses, [100, 200, 400, 25_600, 30_000, 30_000]);
}
