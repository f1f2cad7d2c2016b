//! Tests that compiled designs share the cache's memory, and that an evicted design is freed although entries point to
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use isobar_design::Plan;
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::json::parse;
use isobar_model::retention::{ProjectRetention, Retention};
use isobar_model::time::Timestamp;
use parking_lot::Mutex;
use uuid::Uuid;

use super::super::loading_cache::{CacheValue as _, LoadingCache};
use super::super::plan_entry::PlanEntry;
use crate::stage::Stage;

type Plans = LoadingCache<ProjectId, Arc<PlanEntry>>;

const KIB: usize = 1 << 10;
const STORES: &str = r#"{
    "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "out", "ability": "store"}]}},
    "out": {"type": "storage"}
}"#;

fn project(number: usize) -> ProjectId {
    ProjectId(Uuid::from_u128(number as u128 + 1))
}

fn tenant(number: usize) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number as u128 + 1))
}

/// Makes a plan entry of a project of this tenant whose design weighs about this many bytes.
fn design(of: usize, number: usize, bytes: usize) -> Arc<PlanEntry> {
    let text = "x".repeat(bytes / 4);
    let elements = format!(r#"{{"s":{{"type":"deviceSetting","properties":{{"defaultValue":"{text}"}}}}}}"#);
    let planes = format!(r#"{{"cloud":{{"elements":{elements}}}}}"#);
    let plan = Plan::compile(&parse(&planes).unwrap()).unwrap();
    assert!((bytes / 2..2 * bytes + 2 * KIB).contains(&plan.held_bytes()));
    PlanEntry::new(project(number), tenant(of), plan.into(), ProjectRetention::default())
}

fn bounded(bytes: usize) -> Plans {
    Plans::new(10_000, bytes)
}

/// Loads an entry and installs it.
fn put(plans: &Plans, entry: Arc<PlanEntry>) -> Arc<PlanEntry> {
    let key = entry.project();
    let load = plans.begin(&key);
    plans.install(entry, &load)
}

#[test]
fn design_memory_is_bounded_while_entries_are_referenced() {
    const MAX: usize = 1 << 20;
    let plans = bounded(MAX);
    let (mut held, mut made) = (Vec::new(), Vec::<(Weak<Plan>, usize)>::new());
    for number in 0..200 {
        let entry = put(&plans, design(number % 3, number, 60 * KIB));
        let plan = entry.plan().unwrap();
        made.push((Arc::downgrade(&plan), plan.held_bytes()));
        drop(plan);
        // The entries of the project's devices keep a reference.
        held.push(entry);
        let alive = made.iter().filter(|(plan, _)| plan.strong_count() > 0);
        let bytes: usize = alive.map(|(_, bytes)| bytes).sum();
        assert!(bytes <= plans.weight() && plans.weight() <= MAX, "{bytes} bytes of {number} designs");
    }
    assert!(plans.all().len() >= 8, "what has room is kept");
    assert!(held.iter().all(|entry| entry.plan().is_some() == entry.is_current()));
}

#[test]
fn tenant_with_large_designs_evicts_its_own() {
    let plans = bounded(1 << 20);
    for number in 0..40 {
        put(&plans, design(number, number, 4 * KIB));
    }
    for number in 100..200 {
        put(&plans, design(99, number, 100 * KIB));
    }
    let quiet = plans.all().iter().filter(|entry| entry.tenant() != tenant(99)).count();
    assert_eq!(quiet, 40);
}

#[test]
fn run_keeps_its_design_and_a_new_weight_is_counted() {
    let plans = bounded(usize::MAX);
    let entry = put(&plans, design(0, 0, KIB));
    let (plan, before) = (entry.plan().unwrap(), plans.weight());
    let bounds = (0..100).map(|at| (format!("element {at}").into(), Retention { days: Some(1), values: None }));
    let retention = ProjectRetention::default().replaced(&bounds.collect(), Timestamp::from_millis(0)).unwrap();
    entry.settle_retention(&Arc::new(retention.clone()));
    assert_eq!((plans.weight(), entry.retention().as_deref()), (before + retention.held_bytes(), Some(&retention)));
    plans.push_all_out();
    assert!(entry.plan().is_none() && entry.retention().is_none() && !entry.is_current());
    assert_eq!(plans.weight(), 0);
    assert!(plan.setting("s").is_some(), "a run goes on");
}

#[test]
fn design_changed_during_compilation_is_not_cached() {
    let plans = bounded(usize::MAX);
    let changes: [fn(&Plans); 2] = [|plans| plans.invalidate(&project(0)), |plans| plans.discard_loads()];
    for change in changes {
        let key = project(0);
        let load = plans.begin(&key);
        change(&plans);
        let old = plans.install(design(0, 0, KIB), &load);
        assert!(!old.is_current() && old.plan().is_none() && plans.get(&key).is_none());
    }
    // A change of another project has no effect.
    let key = project(0);
    let load = plans.begin(&key);
    plans.invalidate(&project(1));
    assert!(plans.install(design(0, 0, KIB), &load).is_current());
}

#[tokio::test]
async fn device_with_evicted_design_uses_a_newer_entry() {
    let stage = Stage::set().await;
    let device = stage.device(STORES).await;
    let (entry, caches) = (stage.entry(&device).await, &stage.hub.0.caches);
    caches.plans.push_all_out();
    assert!(entry.plan().is_none());
    assert!(caches.plan_of_device(&entry).await.unwrap().accepts("reading"));
    caches.plans.push_all_out();
    assert_eq!(*caches.retention_of_device(&entry).await.unwrap(), ProjectRetention::default());
    caches.plans.push_all_out();
    stage.posts(&device, "7").await;
    assert_eq!(stage.stored(&device, "out").await.as_deref(), Some("7"));
    stage.over().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "the test hears of its panics")]
async fn evicted_designs_lose_no_event_of_running_devices() {
    const ROUNDS: usize = 60;
    let stage = Stage::set().await;
    let mut devices = Vec::new();
    for _ in 0..4 {
        devices.push(stage.device(STORES).await);
    }
    let (over, caches) = (Arc::new(AtomicBool::new(false)), Arc::clone(&stage.hub.0.caches));
    let (ended, pushed) = (Arc::clone(&over), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&pushed);
    let pushing = tokio::task::spawn_blocking(move || {
        while !ended.load(Ordering::SeqCst) {
            *counted.lock() += usize::from(caches.plans.weight() > 0);
            caches.plans.push_all_out();
            // An evicted design makes room for one that took longer than this to compile.
            #[expect(clippy::disallowed_methods, reason = "lets runs come through, by a thread of its own")]
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let mut rounds = 0;
    // A fast machine is through with the rounds before designs have left as often.
    while rounds < ROUNDS || *pushed.lock() <= ROUNDS {
        futures::future::join_all(devices.iter().map(|device| stage.posts(device, "1"))).await;
        rounds += 1;
    }
    over.store(true, Ordering::SeqCst);
    pushing.await.unwrap();
    for device in &devices {
        let entry = stage.entry(device).await;
        let permit = isobar_model::access::system(entry.device, "a test counts what is stored").reading();
        let series = stage.hub.0.env.telemetry().series(&permit).await.unwrap();
        assert_eq!(series.iter().map(|series| series.bytes).sum::<u64>(), rounds as u64);
    }
    stage.over().await;
}
