//! Tests concurrent calls while their device is deleted: they are refused, or deleted with it. No data of the device is
//! left.

use futures::future::join_all;
use isobar_power::settled;
use isobar_store::telemetry::Examined;
use serde_json::json;

use crate::support::designs::fridge;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(requests_during_a_device_deletion_leave_nothing);

/// Number of attempts to make calls coincide: not all do.
const ROUNDS: usize = 20;
/// Calls of each kind during a deletion.
const AT_ONCE: usize = 24;

/// Returns the stored data once no work is pending for the registry.
async fn nothing_waits(app: &TestApp) -> Examined {
    settled("the end of work for the registry", async || {
        let left = app.telemetry().examine().await.unwrap();
        (left.outbox == 0).then_some(left)
    })
    .await
}

async fn requests_during_a_device_deletion_leave_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    for round in 0..ROUNDS {
        let device = ana.creates_device_of(&project, "fridge").await;
        let queue = format!("{}&elementName=alarm", device.queue());
        let queues = async |number: usize| {
            let answer = ana.post(&queue, json!(number)).await;
            assert!(matches!(answer.status.as_u16(), 201 | 404), "{answer:?}");
        };
        // The design sends a cloud event too.
        let posts = async |number: usize| {
            let answer = device.posts("reading", json!({"temp": 20 + number})).await;
            assert!(matches!(answer.status.as_u16(), 201 | 400 | 401), "{answer:?}");
        };
        let changes = async |number: usize| {
            let answer = ana.put(&device.at("settings/limit"), json!(number)).await;
            assert!(matches!(answer.status.as_u16(), 200 | 404), "{answer:?}");
        };
        let deletes = async {
            // The deletion comes earlier or later among the calls, and the device is loaded again meanwhile.
            for _ in 0..round % 4 {
                ana.put(&device.url(), json!({"name": "renamed", "projectUuid": project})).await.ok();
            }
            ana.delete(&device.url()).await.no_content();
        };
        let others = async |number| {
            tokio::join!(queues(number), posts(number), changes(number));
        };
        tokio::join!(join_all((0..AT_ONCE).map(others)), deletes);
        let numbers = app.registry().device_numbers().await.unwrap();
        let left = nothing_waits(app).await;
        let gone = left.devices.iter().filter(|key| numbers.present.binary_search(key).is_err()).count();
        assert_eq!((gone, &left.faults), (0, &Vec::new()), "round {round}");
    }
}
