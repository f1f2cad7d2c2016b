//! Behind a proxy: the client's address comes from trusted proxies alone.

use isobar_hub::RateLimits;
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::support::app::with_json;
use crate::support::socket::Socket;
use crate::support::{Answer, TestApp};

/// Calls a minute for an address without credentials.
const LIMIT: u32 = 30;

/// Starts a server that trusts these proxies.
async fn behind(proxies: &[&str]) -> TestApp {
    let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
    TestApp::with(|settings| {
        settings.hub.rate_limit = RateLimits { user: 0, device: 0, address: LIMIT };
        settings.http.trusted_proxies = proxies;
    })
    .await
}

/// Returns the number of calls left to an address, for a request with these headers.
async fn left(app: &TestApp, said: &[(&str, &str)]) -> u32 {
    let request = app.request(Method::GET, "/v2/spec");
    let request = said.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    app.send(request).await.header("x-ratelimit-remaining").parse().unwrap()
}

fn login(app: &TestApp, client: &str, name: &str, password: &str) -> RequestBuilder {
    let body = json!({"usernameOrEmail": name, "password": password});
    with_json(app.request(Method::POST, "/v2/auth/login"), &body).header("x-forwarded-for", client)
}

// Holds: c14.proxies, c14.sites
#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_counted_separately() {
    let app = behind(&["127.0.0.0/8", "10.0.0.0/8"]).await;
    let most = LIMIT - 1;
    for (said, count) in [
        (&[("x-forwarded-for", "203.0.113.1")][..], most),
        (&[("x-forwarded-for", "203.0.113.2")], most),
        // The proxy's entry counts, whatever the client sends.
        (&[("x-forwarded-for", "198.51.100.1, 203.0.113.1")], most - 1),
        (&[("x-forwarded-for", "198.51.100.2"), ("x-forwarded-for", "203.0.113.1, 10.0.0.9")], most - 2),
        (&[("forwarded", "for=\"203.0.113.1:4711\";proto=https")], most - 3),
        (&[("forwarded", "for=198.51.100.3, for=203.0.113.1;by=10.0.0.9, for=10.0.0.9")], most - 4),
        (&[("x-forwarded-for", "::ffff:203.0.113.1")], most - 5),
        // A network of IPv6 is one site.
        (&[("forwarded", "for=\"[2001:db8:1:2::1]\"")], most),
        (&[("x-forwarded-for", "[2001:db8:1:2:ffff::9]:80")], most - 1),
        (&[("x-forwarded-for", "2001:db8:1:3::1")], most),
        // A header without an address counts as the proxy itself.
        (&[], most),
        (&[("x-forwarded-for", "unknown")], most - 1),
        (&[("x-forwarded-for", "203.0.113.1, ")], most - 2),
        (&[("forwarded", "for=_hidden")], most - 3),
        (&[("forwarded", "for=\"198.51.100.4, for=203.0.113.1")], most - 4),
        (&[("forwarded", "for=198.51.100.5"), ("x-forwarded-for", "203.0.113.1")], most - 5),
        (&[("x-real-ip", "198.51.100.6"), ("x-client-ip", "198.51.100.6")], most - 6),
    ] {
        assert_eq!(left(&app, said).await, count, "{said:?}");
    }
    // Events are refused on their own path.
    let stranger = |client: &str| {
        let request = app.request(Method::POST, "/v2/events/device?elementName=e").header("cloud", "a guess");
        with_json(request, &json!(1)).header("x-forwarded-for", client)
    };
    let counted = |answer: Answer| answer.is(401).header("x-ratelimit-remaining").to_owned();
    assert_eq!(counted(app.send(stranger("203.0.113.8")).await), most.to_string());
    assert_eq!(counted(app.send(stranger("203.0.113.9")).await), most.to_string());
    assert_eq!(counted(app.send(stranger("198.51.100.1, 203.0.113.9")).await), (most - 1).to_string());
}

// Holds: c14.proxies
#[tokio::test]
async fn forwarded_header_of_an_untrusted_peer_is_ignored() {
    for trusted in [&[][..], &["127.0.0.2", "10.0.0.0/8", "::1"]] {
        let app = behind(trusted).await;
        for number in 1..5 {
            let said = format!("203.0.113.{number}");
            assert_eq!(left(&app, &[("x-forwarded-for", &said)]).await, LIMIT - 2 * number + 1);
            assert_eq!(left(&app, &[("forwarded", &format!("for={said}"))]).await, LIMIT - 2 * number);
        }
    }
}

// Holds: c14.proxies
#[tokio::test]
async fn wrong_passwords_lock_out_the_guesser_behind_the_proxy() {
    let app = behind(&["127.0.0.1"]).await;
    let (thief, admin) = ("203.0.113.66", "203.0.113.7");
    for turn in 0..10 {
        // The client may send any header; the proxy appends its address.
        let client = format!("198.51.100.{turn}, {thief}");
        app.send(login(&app, &client, "admin", "a guess")).await.is(401);
    }
    app.send(login(&app, thief, "admin", "a guess")).await.is(429);
    app.send(login(&app, thief, "admin", "the-admin's-own")).await.is(429);
    app.send(login(&app, admin, "admin", "the-admin's-own")).await.created();
    // All addresses of one site count together.
    for turn in 0..10 {
        app.send(login(&app, &format!("2001:db8::{turn}"), "admin", "a guess")).await.is(401);
    }
    app.send(login(&app, "2001:db8::ffff", "admin", "the-admin's-own")).await.is(429);
    app.send(login(&app, "2001:db8:0:1::1", "admin", "the-admin's-own")).await.created();
}

// Holds: c14.proxies
#[tokio::test]
async fn sign_in_notice_has_the_address_behind_the_proxy() {
    let app = behind(&["127.0.0.1"]).await;
    let ana = app.developer("ana").await;
    let told = async || ana.get("/v2/notifications").await.list_of("/translations/en/message");
    for client in ["203.0.113.9", "203.0.113.9", "2001:db8::1", "2001:db8::2"] {
        app.send(login(&app, client, "ana", &ana.password)).await.created();
    }
    let news = told().await;
    assert_eq!(news.len(), 2, "{news:?}");
    for (news, address) in news.iter().zip(["2001:db8::1.", "203.0.113.9."]) {
        assert!(news.as_str().unwrap().contains(&format!("from a new address: {address}")), "{news}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_header_of_any_length_does_no_harm() {
    let app = behind(&["127.0.0.1"]).await;
    let asks = |said: &str| format!("GET /v2/spec HTTP/1.1\r\nhost: isobar\r\nconnection: close\r\n{said}\r\n\r\n");
    let long = "198.51.100.1, ".repeat(1_000);
    for name in ["x-forwarded-for: ", "forwarded: for=", "forwarded: for=\"", "forwarded: a=b;"] {
        let mut socket = Socket::to(&app);
        socket.sends(asks(&format!("{name}{long}203.0.113.9")));
        let heard = socket.hears_all();
        assert!(heard.starts_with("HTTP/1.1 200"), "{name}: {heard:.300}");
        // A header that is longer than a head may be is refused; the refusal may be lost if not all of it was read.
        let mut socket = Socket::to(&app);
        socket.sends_if_heard(asks(&format!("{name}{}203.0.113.9", long.repeat(24))));
        let heard = socket.counts_all();
        assert!(heard < 600, "{name}: {heard}");
        app.get("/v2/spec").await.is(200);
    }
}
