//! Notifications of designs: their recipients and channels.

use isobar_power::becomes;
use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(device_notice_follows_preferences_of_its_organization);

async fn prefers(person: &Person<'_>, inapp: bool, email: bool) {
    let mut user = person.get("/v2/auth/user").await.ok();
    user["preferences"] = json!({"notifications": {"deviceNotification": {"inapp": inapp, "email": email}}});
    person.put(&format!("/v2/users/{}", person.id), user).await.ok();
}

async fn told(person: &Person<'_>) -> Vec<Value> {
    person.get("/v2/notifications").await.list_of("/translations/en/message")
}

async fn hears(person: &Person<'_>, count: usize) {
    becomes(&format!("{count} notifications"), async || told(person).await.len() >= count).await;
}

// Holds: c5.notices
async fn device_notice_follows_preferences_of_its_organization(app: &TestApp) {
    let ana = app.developer("ana").await;
    let middle = ana.founds("Middle", &ana.organization).await;
    let low = ana.founds("Low", &middle).await;
    let mia = ana.invites_into(&middle, "mia", "developer").await;
    let max = ana.invites_into(&middle, "max", "technician").await;
    let basic = ana.invites_into(&middle, "basic", "basicUser").await;
    let lou = ana.invites_into(&low, "lou", "developer").await;
    app.verifies("max").await;
    prefers(&max, false, true).await;
    let project = ana
        .designs(json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tell", "notify")]}},
            "tell": {"type": "notification", "properties": {"message": "at {{ payload }}", "minimumRole": "technician"}},
        }))
        .await;
    let body = json!({"name": "d", "projectUuid": project, "organizationId": middle});
    let device = ana.creates_device_as(body).await;
    device.posts("reading", json!("first")).await.created();
    hears(&mia, 1).await;
    let letters = async |count: usize, to: &str| app.emails_to(to, count).await;
    // The first e-mail verifies the address.
    let heard = letters(2, "max@example.com").await;
    assert!(heard[1].text.contains("at first"), "{heard:?}");
    device.posts("reading", json!("second")).await.created();
    hears(&mia, 2).await;
    letters(3, "max@example.com").await;
    assert_eq!(told(&mia).await, ["at second", "at first"]);
    for (person, words) in [(&max, "it has no wish to"), (&basic, "its role"), (&ana, "above"), (&lou, "below")] {
        assert_eq!(told(person).await, [] as [Value; 0], "{words}");
    }
    for quiet in ["mia", "basic", "ana", "lou"] {
        assert_eq!(letters(1, &format!("{quiet}@example.com")).await.len(), 1, "{quiet} gets no letter");
    }
}
