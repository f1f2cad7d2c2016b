//! Counts of two nodes over one registry: what is limited is limited once, whichever node a caller asks.

use futures::future::join_all;
use isobar_hub::RateLimits;
use isobar_power::becomes;
use serde_json::json;

use crate::support::{Answer, TestApp};

// Holds: c3.throttle
#[tokio::test]
async fn password_guesses_at_two_nodes_count_together() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let guess = async |node: &TestApp, name: &str| node.login(name, "a guess").await.status.as_u16();
    for account in ["ana", "nobody"] {
        for name in [account.to_owned(), format!("{account}@example.com")] {
            for _ in 0..5 {
                assert_eq!([guess(&first, &name).await, guess(&second, &name.to_uppercase()).await], [401, 401]);
            }
            assert_eq!([guess(&first, &name).await, guess(&second, &name).await], [429, 429], "{name}");
        }
    }
    first.wait_seconds(15 * 60 - 1);
    let waits = second.login("ana", &ana.password).await.is(429);
    assert_eq!(waits.header("retry-after"), "2");
    first.wait_seconds(1);
    // Five guesses with each name are ten for the account, also for a user who changes the password.
    for _ in 0..5 {
        assert_eq!([guess(&first, "ana").await, guess(&second, "ana@example.com").await], [401, 401]);
    }
    for node in [&first, &second] {
        node.login("ana", &ana.password).await.is(401);
    }
    first.wait_seconds(15 * 60);
    second.login("ana", &ana.password).await.created();
    // Guesses that are under way together are told no more than those that are allowed.
    let guesses = (0..40).map(|number| if number % 2 == 0 { &first } else { &second });
    let told = join_all(guesses.map(|node| guess(node, "ana"))).await;
    assert!(told.iter().all(|status| [401, 429].contains(status)), "{told:?}");
    assert!(told.contains(&429), "{told:?}");
    first.login("ana", &ana.password).await.is(429);
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn links_asked_for_at_two_nodes_count_together() {
    let (first, second) = TestApp::two_nodes().await;
    for name in ["ana", "bob"] {
        first.developer(name).await;
    }
    let asks = async |node: &TestApp, name: &str| {
        node.post("/v2/auth/forgot", json!({"emailOrUsername": name})).await.no_content();
    };
    let resets = |name: &str| {
        let to = format!("{name}@example.com");
        let mails = [first.mails(), second.mails()].concat();
        mails.iter().filter(|mail| mail.contains(&to) && mail.contains("resetToken")).count()
    };
    for _ in 0..4 {
        asks(&first, "ana").await;
        asks(&second, "ana").await;
    }
    asks(&first, "bob").await;
    becomes("the links", async || resets("ana") >= 5 && resets("bob") == 1).await;
    assert_eq!(resets("ana"), 5);
    first.wait_seconds(15 * 60);
    asks(&second, "ana").await;
    becomes("one more link", async || resets("ana") == 6).await;
    first.end().await;
    second.end().await;
}

// Holds: c10.window
#[tokio::test]
async fn calls_at_two_nodes_spend_one_rate() {
    const LIMIT: usize = 1_000;
    let limits = RateLimits { user: LIMIT as u32, device: 0, address: 0 };
    let (first, second) = TestApp::two_nodes_with(|settings| settings.hub.rate_limit = limits).await;
    let ana = first.developer("ana").await;
    let near = ana.through(&second);
    let path = "/v2/auth/user";
    let left = |answer: Answer| answer.header("x-ratelimit-remaining").parse::<usize>().unwrap();
    let mut remaining = LIMIT;
    while remaining > LIMIT / 2 {
        remaining = left(ana.get(path).await);
    }
    let mut calls = 0;
    becomes("the calls of the first node", async || {
        calls += 1;
        left(near.get(path).await) + calls == LIMIT / 2
    })
    .await;
    while near.get(path).await.status == 200 {
        calls += 1;
    }
    assert_eq!(calls, LIMIT / 2);
    becomes("the calls of the second node", async || ana.get(path).await.status == 429).await;
    let minute = first.clock.now().seconds() / 60;
    let shares = async || first.registry().rate_shares_of_others("", minute).await.unwrap();
    let user = format!("user {}", ana.id);
    becomes("the last calls", async || shares().await.iter().any(|(of, calls)| *of == user && *calls >= LIMIT as u64))
        .await;
    // The next minutes begin for both, and what was counted before is removed.
    first.wait_seconds(120);
    for caller in [&ana, &near] {
        assert_eq!(left(caller.get(path).await.is(200)), LIMIT - 1);
    }
    becomes("no calls of the past", async || shares().await.is_empty()).await;
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn limits_reached_at_two_nodes_are_told_once() {
    const LIMIT: usize = 4;
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let (near, project) = (ana.through(&second), ana.project().await);
    let mut administrators = Vec::new();
    for round in 0..5 {
        let low = ana.founds(&format!("low {round}"), &ana.organization).await;
        administrators.push(ana.invites_into(&low, &format!("lou{round}"), "administrator").await);
        let body = json!({"name": "d", "projectUuid": project, "organizationId": low});
        join_all((0..LIMIT).map(|number| if number % 2 == 0 { &ana } else { &near }.creates_device_as(body.clone())))
            .await;
        // Both nodes look at limits when one has changed.
        ana.changes(&low, json!({"name": "low", "deviceCountLimit": LIMIT})).await.ok();
    }
    for lou in &administrators {
        let told = async || lou.through(&second).get("/v2/notifications").await.list_of("/translations/en/message");
        becomes("a notice", async || !told().await.is_empty()).await;
    }
    for lou in &administrators {
        let told = lou.get("/v2/notifications").await.list_of("/translations/en/message");
        let message = format!("low has reached 100% of its limit of {LIMIT} devices. No more devices can be added.");
        assert_eq!(told, [json!(message)]);
    }
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn orderly_stop_of_a_node_claims_no_count_of_all() {
    let (first, second) = TestApp::two_nodes().await;
    let ana = first.developer("ana").await;
    let low = ana.founds("low", &ana.organization).await;
    let body = json!({"name": "d", "projectUuid": ana.project().await, "organizationId": low});
    let device = ana.creates_device_as(body).await;
    device.through(&second).posts("reading", json!("stored")).await.created();
    let stored = async || first.registry().organizations_limited().await.unwrap().first().map(|of| of.bytes_stored);
    ana.changes(&low, json!({"dataUsageMbLimit": 1})).await.ok();
    second.end().await;
    assert!(stored().await.is_some_and(|bytes| bytes > 0), "a node that stops writes its figures");
    assert!(!first.registry().usage_begin().await.unwrap(), "the other node still stores");
    // A figure that was missed is right after the next daily count, whichever node begins it.
    let missed = isobar_model::ids::DeviceKey(1);
    first.registry().usage_write(&[(missed, 0)]).await.unwrap();
    assert_eq!(stored().await, Some(0));
    first.wait_seconds(86_400);
    let third = first.another_node().await;
    becomes("a count of all", async || stored().await.is_some_and(|bytes| bytes > 0)).await;
    third.end().await;
    first.end().await;
}
