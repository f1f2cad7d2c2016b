//! Changes that meet: none undoes another, and what ends meanwhile is told as ever.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::new_user;
use crate::support::{TestApp, on_both_registries};

on_both_registries!(
    what_is_taken_from_a_user_stays_taken,
    two_changes_of_a_device_both_hold,
    an_organization_that_ends_meanwhile_is_a_fault_of_the_body,
);

/// Times that a meeting is arranged: not every one comes about.
const ROUNDS: usize = 8;

fn profile(role: &str, change: &Value) -> Value {
    let mut body = json!({"role": role, "company": "Acme"});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

async fn what_is_taken_from_a_user_stays_taken(app: &TestApp) {
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

async fn two_changes_of_a_device_both_hold(app: &TestApp) {
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

async fn an_organization_that_ends_meanwhile_is_a_fault_of_the_body(app: &TestApp) {
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
