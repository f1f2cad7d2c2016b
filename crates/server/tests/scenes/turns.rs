//! Turns at a device: its events, and changes of its row by persons, of which neither may keep the other from going on.

use std::cell::Cell;

use serde_json::json;

use crate::nodes_runs::{counting, label, patches};
use crate::support::TestApp;

/// Events that are accepted while others change the device in two endless loops.
const EVENTS: usize = 20;
/// Changes of a device beside one of its events, at most: those before it in the line, and some that come before it is in
/// the line.
const CHANGES_BESIDE_EVENT_MAX: usize = 16;

/// Posts events at one server, while two callers change the device at another without a pause.
async fn take_turns(changing: &TestApp, posting: &TestApp) {
    let ana = changing.developer("ana").await;
    let project = ana.designs(counting()).await;
    let device = ana.creates_device_of(&project, "d").await;
    let (there, is_over, changes) = (device.through(posting), Cell::new(false), Cell::new(0));
    there.posts("reading", json!(0)).await.created();
    let renames = async {
        while !is_over.get() {
            let body = json!({"name": format!("d{}", changes.get()), "projectUuid": project});
            ana.put(&device.url(), body).await.ok();
            changes.set(changes.get() + 1);
        }
    };
    let labels = async {
        while !is_over.get() {
            patches(&ana, &device, &json!({"by": changes.get()})).await;
            changes.set(changes.get() + 1);
        }
    };
    let events = async {
        for number in 1..=EVENTS {
            let before = changes.get();
            there.posts("reading", json!(number)).await.created();
            let beside = changes.get() - before;
            assert!(beside <= CHANGES_BESIDE_EVENT_MAX, "event {number} waited for {beside} changes");
        }
        is_over.set(true);
    };
    futures::join!(events, renames, labels);
    assert!(changes.get() >= EVENTS / 8, "{} changes beside {EVENTS} events", changes.get());
    assert_eq!(label(&ana, &device, "n").await, EVENTS + 1, "no change has set back what an event did");
}

#[tokio::test]
async fn events_have_turns_beside_changes_in_one_process() {
    let app = TestApp::start().await;
    take_turns(&app, &app).await;
    app.end().await;
}

#[tokio::test]
async fn events_have_turns_beside_changes_at_the_same_node() {
    let (first, second) = TestApp::two_nodes().await;
    take_turns(&first, &first).await;
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn events_have_turns_beside_changes_at_another_node() {
    let (first, second) = TestApp::two_nodes().await;
    take_turns(&first, &second).await;
    first.end().await;
    second.end().await;
}
