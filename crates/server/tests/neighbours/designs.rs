//! Designs and payloads that are hostile in combination.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::{join, join_all};
use reqwest::Method;
use serde_json::json;

use crate::malice;
use crate::street::Street;

/// Limits in bytes of a series' last values, and of a device's metadata (contract: The project design).
const LAST_BYTES_MAX: usize = 256 << 10;
const META_BYTES_MAX: usize = 64 << 10;
/// Links of a design, and bytes of the payload that passes them.
const LINKS: usize = 2_000;
const LADEN_BYTES: usize = 200_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_in_another_order_delay_nobody() {
    let street = Street::open().await;
    let bodies = malice::in_two_orders(240_000);
    for design in [malice::stores(), malice::changed(1)] {
        let device = street.device(&design).await;
        for body in bodies.iter().chain(&bodies) {
            street.posts(&device, body.clone()).await.created();
            assert_eq!(street.errors(&device).await, [""; 0]);
        }
        street
            .beside(async || {
                let posts = bodies.iter().map(|body| street.posts(&device, body.clone()));
                join_all(posts).await.iter().for_each(|answer| drop(answer.created()));
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colliding_names_delay_nobody() {
    let hasher = rustc_hash::FxBuildHasher;
    let hash = |name: String| std::hash::BuildHasher::hash_one(&hasher, name.as_str());
    let mut hashes: Vec<u64> = malice::colliding_names(1_000).map(hash).collect();
    hashes.dedup();
    assert_eq!(hashes.len(), 1, "they do not collide: this would test nothing");

    let street = Street::open().await;
    let device = street.device(&malice::stores()).await;
    let body = malice::colliding(240_000);
    street.posts(&device, body.clone()).await.created();
    street.beside(async || drop(street.posts(&device, body.clone()).await.created())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_to_any_element_keep_the_budget_of_a_run() {
    let street = Street::open().await;
    let mut devices = Vec::new();
    for kind in malice::LINKED {
        let device = street.device(&malice::links_to(kind, LINKS)).await;
        let payload = malice::laden(1, LADEN_BYTES);
        street.posts(&device, payload).await.created();
        // A window takes numbers and a throttle times, which is within a run's budget.
        let is_within = matches!(kind, "window" | "throttle");
        let errors = street.errors(&device).await;
        let names_bound = |error: &String| ["at most", "too long", "more than"].iter().any(|word| error.contains(word));
        assert!(is_within || errors.iter().any(names_bound), "{kind}: {errors:?}");
        street.is_within_bounds();
        devices.push(device);
    }
    street
        .beside(async || {
            let posts = devices.iter().map(|device| street.posts(device, malice::laden(2, LADEN_BYTES / 8)));
            join_all(posts).await.iter().for_each(|answer| drop(answer.created()));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_elements_are_bounded() {
    let street = Street::open().await;
    let (changed, windows) =
        (street.device(&malice::changed(998)).await, street.device(&malice::windows(900, 11)).await);
    let value = malice::label("", &"x".repeat(900));
    for number in 0..3 {
        street.posts(&changed, malice::laden(number, LADEN_BYTES)).await.created();
    }
    for _ in 0..16 {
        street.posts(&windows, value.clone()).await.created();
    }
    let errors = street.errors(&windows).await;
    assert!(errors.iter().any(|error| error.contains("at most")), "{errors:?}");
    street
        .beside(async || {
            let posts = [(&changed, malice::laden(9, LADEN_BYTES / 8)), (&windows, value.clone())];
            let posts = posts.map(|(device, body)| street.posts(device, body));
            join_all(posts).await.iter().for_each(|answer| drop(answer.created()));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_names_and_labels_are_bounded() {
    let street = Street::open().await;
    let (names, labels) = (street.device(&malice::stores()).await, street.device(&malice::labels()).await);
    for number in 0..8 {
        street.posts(&names, malice::new_name(number, 50_000)).await.created();
    }
    let value = "x".repeat(2_000);
    for number in 0..40 {
        street.posts(&labels, malice::label(&format!("t{number}"), &value)).await.created();
    }
    for (device, bound) in [(&names, "256 KiB"), (&labels, "65536 bytes")] {
        let errors = street.errors(device).await;
        assert!(errors.iter().any(|error| error.contains(bound)), "no error tells of {bound}: {errors:?}");
    }
    let last = street.hostile.get(&format!("/v2/devices/{}/last/stored", names.id)).await;
    assert!(last["values"].to_string().len() <= LAST_BYTES_MAX);
    let meta = street.hostile.get(&format!("/v2/devices/{}", labels.id)).await;
    assert!(meta["meta"].to_string().len() <= META_BYTES_MAX);
    assert_eq!(meta["meta"]["t0"], json!(value), "what was there before the bound stays");
    street
        .beside(async || {
            let posts = (100..108).map(|number| street.posts(&names, malice::new_name(number, 20_000)));
            join_all(posts).await.iter().for_each(|answer| drop(answer.created()));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changing_labels_delay_no_other_tenant() {
    let street = Street::open().await;
    let devices = street.hostile.found(&malice::labels(), 8).await;
    let changes = async |device, round: usize| {
        for number in 0..20 {
            let answer = street.posts(device, malice::label("state", &format!("{round} {number}"))).await;
            // The queue for the registry is bounded: further changes are refused.
            assert!(matches!(answer.status, 201 | 503), "{} {}", answer.status, answer.body);
        }
    };
    let round = std::cell::Cell::new(0);
    street
        .beside(async || {
            round.set(round.get() + 1);
            join_all(devices.iter().map(|device| changes(device, round.get()))).await;
        })
        .await;
    for device in &devices {
        street.posts(device, malice::label("state", "last")).await.created();
        let seen = street.calls(Method::GET, &format!("/v2/devices/{}", device.id), None).await.json();
        assert_eq!(seen["meta"]["state"], "last");
    }
}

/// Projects of the hostile tenant per thread for long runs, events of the good tenant, and bytes of each event, which
/// leaves more than five times as much for the writer.
const PROJECTS_A_THREAD: usize = 16;
const TURNS: usize = 20;
const MUCH_LINKS: usize = 5;
const MUCH_BYTES: usize = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_projects_leave_other_tenants_their_turns() {
    let street = Street::open().await;
    let design = malice::links_to("storage", MUCH_LINKS);
    let projects = PROJECTS_A_THREAD * std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let mut devices = Vec::new();
    for _ in 0..projects {
        devices.push(street.device(&design).await);
    }
    let good = street.good.api.found(&design, 1).await.remove(0);
    let (done, stops) = (AtomicUsize::new(0), AtomicBool::new(false));
    let posts = async |device| {
        while !stops.load(Ordering::Relaxed) {
            street.posts(device, malice::laden(1, MUCH_BYTES)).await.created();
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let turns = async {
        isobar_power::becomes("all are at work", async || done.load(Ordering::Relaxed) >= projects).await;
        let before = done.load(Ordering::Relaxed);
        for number in 0..TURNS {
            let payload = serde_json::from_str(&malice::laden(number, MUCH_BYTES)).unwrap();
            street.good.api.post(&good, malice::EVENT, &payload).await.created();
        }
        let beside = done.load(Ordering::Relaxed) - before;
        stops.store(true, Ordering::Relaxed);
        beside
    };
    let (_, beside) = join(join_all(devices.iter().map(posts)), turns).await;
    // In a single queue each event would have waited for all projects.
    assert!(
        beside < TURNS * projects / 2,
        "{beside} runs of {projects} projects went before {TURNS} of the other tenant"
    );
}
