//! Counts of two nodes over one registry: what is limited is limited once, whichever node a caller asks.

use futures::future::join_all;
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
