//! Counts of two nodes over one registry: what is limited is limited once, whichever node a caller asks.

use futures::future::join_all;
use isobar_hub::RateLimits;
use isobar_power::becomes;
use serde_json::json;

use crate::support::TestApp;

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
    let left = |answer: crate::support::Answer| answer.header("x-ratelimit-remaining").parse::<usize>().unwrap();
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
