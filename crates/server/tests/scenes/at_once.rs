//! Concurrent changes: none undoes another, and a resource that is deleted meanwhile is reported as usual.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::new_user;
use crate::support::designs::{fridge, to};
use crate::support::{TestApp, on_both_registries};

on_both_registries!(
    revoked_rights_survive_concurrent_updates,
    concurrent_changes_of_a_device_are_both_kept,
    concurrent_changes_by_user_and_design_are_both_kept,
    values_dropped_by_a_project_move_stay_dropped,
    organization_deleted_meanwhile_is_a_fault_of_the_body,
);

/// Number of attempts to make calls coincide: not all do.
const ROUNDS: usize = 8;
/// Number of attempts for short calls.
const MANY_ROUNDS: usize = 40;

fn profile(role: &str, change: &Value) -> Value {
    let mut body = json!({"role": role, "company": "Acme"});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

async fn revoked_rights_survive_concurrent_updates(app: &TestApp) {
    let ana = app.developer("ana").await;
    let max = ana.invites("max", "manager").await;
    let url = format!("/v2/users/{}", max.id);
    for round in 0..ROUNDS {
        ana.put(&url, profile("manager", &json!({"disabled": false}))).await.ok();
        let title = json!({"jobTitle": format!("{round}")});
        let own = async || max.put(&url, profile("manager", &title)).await.status.as_u16();
        let (answers, ()) = futures::join!(join_all((0..8).map(|_| own())), async {
            ana.put(&url, profile("basicUser", &json!({"disabled": true}))).await.ok();
        });
        assert!(answers.iter().all(|status| matches!(status, 200 | 400 | 401)), "{answers:?}");
        let now = ana.get(&url).await.ok();
        assert_eq!((&now["role"], &now["disabled"]), (&json!("basicUser"), &json!(true)), "round {round}");
    }
}

async fn concurrent_changes_of_a_device_are_both_kept(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let project = ana.project().await;
    for round in 0..ROUNDS {
        let text = format!("{round}");
        let put = async |member: &str| {
            ana.put(&device.url(), json!({"name": "fridge", "projectUuid": project, member: text})).await.ok();
        };
        futures::join!(put("description"), put("versionUuid"), put("protocol"));
        let now = ana.get(&device.url()).await.ok();
        for member in ["description", "versionUuid", "protocol"] {
            assert_eq!(now[member], json!(text), "{member}");
        }
    }
}

async fn concurrent_changes_by_user_and_design_are_both_kept(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    for round in 0..MANY_ROUNDS {
        // The design sets the status and a label; users set all their fields, and labels every other time.
        let (name, temp, names_labels) = (format!("f{round}"), 20 + round, round % 2 == 1);
        device.posts("reading", json!({"temp": 0})).await.created();
        let changes = async |number: usize| {
            let mut body = json!({"name": name, "projectUuid": project});
            match number {
                0 if names_labels => body["meta"] = json!({"floor": round}),
                0 | 1 => body["description"] = json!(name),
                _ => body["versionUuid"] = json!(name),
            }
            ana.put(&device.url(), body).await.ok();
        };
        let speaks = async {
            device.posts("reading", json!({"temp": temp})).await.created();
        };
        futures::join!(changes(0), changes(1), speaks, changes(2), changes(3));
        let now = ana.get(&device.url()).await.ok();
        let text = json!(name);
        assert_eq!((&now["name"], &now["description"], &now["versionUuid"]), (&text, &text, &text), "round {round}");
        assert_eq!(now["statusText"], "critical", "round {round}");
        let label = &now["meta"]["lastAlarm"];
        if names_labels {
            // The user's label is kept in any order; the design's is current or was replaced.
            assert_eq!(now["meta"]["floor"], json!(round), "round {round}");
            assert!(label.is_null() || *label == json!(temp), "round {round}: {label}");
        } else {
            assert_eq!(*label, json!(temp), "round {round}");
        }
    }
}

/// Returns a design that retains this many values of `log`.
fn keeping(values: u64) -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store")]}},
        "log": {"type": "storage", "properties": {"valuesMax": values}},
    })
}

async fn values_dropped_by_a_project_move_stay_dropped(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (three, one) = (ana.designs(keeping(3)).await, ana.designs(keeping(1)).await);
    let device = ana.creates_device_of(&three, "fridge").await;
    let put = async |project: &str| {
        ana.put(&device.url(), json!({"name": "fridge", "projectUuid": project})).await.ok();
    };
    for round in 0..MANY_ROUNDS {
        put(&three).await;
        for number in 0..3 {
            device.posts("reading", json!(number)).await.created();
        }
        // In any order the device was in the project that retains one value.
        futures::join!(put(&three), put(&three), put(&one), put(&three), put(&three));
        let shown = ana.get(&device.at("data/log")).await.ok();
        assert_eq!(shown["meta"]["totalDocs"], 1, "round {round}");
    }
}

async fn organization_deleted_meanwhile_is_a_fault_of_the_body(app: &TestApp) {
    let ana = app.developer("ana").await;
    for round in 0..ROUNDS {
        let north = ana.founds("North", &ana.organization).await;
        let mut user = new_user(&format!("tom{round}"), "basicUser");
        user["organizationId"] = json!(north);
        let made = async |path: &str, body: Value| ana.post(path, body).await.status.as_u16();
        let (ended, project, organization, user) = futures::join!(
            async { ana.delete(&format!("/v2/organizations/{north}")).await.status.as_u16() },
            made("/v2/projects", json!({"name": "cold", "organizationId": north})),
            made("/v2/organizations", json!({"name": "beneath", "parentId": north})),
            made("/v2/users", user),
        );
        let answers = [project, organization, user];
        assert!(answers.iter().all(|status| matches!(status, 201 | 400)), "{answers:?}");
        assert_eq!(ended, if answers.contains(&201) { 400 } else { 204 });
    }
}
