//! The host that a request is for (RFC 9112, 3.2): on the fast path of events, and everywhere else.

use crate::support::TestApp;
use crate::support::socket::Socket;

/// Returns a post of an event with this version, target, host lines and further headers.
fn post(token: &str, version: &str, target: &str, hosts: &[&str], more: &str) -> String {
    let hosts: String = hosts.iter().map(|host| format!("Host:{host}\r\n")).collect();
    format!(
        "POST {target} HTTP/{version}\r\n{hosts}cloud: {token}\r\ncontent-type: application/json\r\n\
         content-length: 7\r\n{more}\r\n{{\"n\":1}}"
    )
}

// Holds: c1.host
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_must_have_one_valid_host() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let plain = "/v2/events/device?elementName=reading";
    let whole = format!("http://isobar.example{plain}");
    let mut taken = 0;
    for target in [plain, &whole] {
        // The second line keeps it off the fast path.
        for more in ["", "connection: keep-alive, x\r\n"] {
            for (version, hosts, is_sound) in [
                ("1.1", &[" isobar.example"][..], true),
                ("1.1", &[" [::1]:8080 "], true),
                ("1.1", &[], false),
                ("1.1", &[""], false),
                ("1.1", &[" a", " a"], false),
                ("1.1", &[" a b"], false),
                ("1.1", &[" me@a"], false),
                ("1.1", &[" a:port"], false),
                ("1.1", &[" a/b"], false),
                ("1.0", &[], true),
                ("1.0", &[" a"], true),
                ("1.0", &[" a", " b"], false),
            ] {
                let told = format!("{target} {more} {version} {hosts:?}");
                let mut socket = Socket::to(&app);
                socket.sends(post(&device.token, version, target, hosts, more));
                let answer = if is_sound { socket.hears_one() } else { socket.hears_all() };
                assert_eq!(answer.starts_with(&format!("HTTP/{version} 201")), is_sound, "{told}: {answer}");
                taken += usize::from(is_sound);
                if !is_sound {
                    assert!(answer.contains(" 400 ") && answer.contains("x-request-id: "), "{told}: {answer}");
                    assert!(answer.contains(r#""errors":[{"field":"header.Host","message":"#), "{told}: {answer}");
                }
            }
        }
    }
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], taken);
}

// Holds: c1.host
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_host_closes_the_connection() {
    let app = TestApp::with(|settings| settings.http.cors_origins = vec!["*".to_owned()]).await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let plain = "/v2/events/device?elementName=reading";
    let (sound, odd) = ([" isobar.example"], [" a", " b"]);
    let all = post(&device.token, "1.1", plain, &odd, "") + &post(&device.token, "1.1", plain, &sound, "");
    let mut socket = Socket::to(&app);
    socket.sends(&all);
    let heard = socket.hears_all();
    assert_eq!((heard.matches("HTTP/1.1 400").count(), heard.matches("HTTP/1.1 ").count()), (1, 1), "{heard}");
    assert!(heard.contains("connection: close"), "{heard}");
    for path in ["/health/live", "/v2/nothing", "/v2/devices"] {
        let mut socket = Socket::to(&app);
        socket.sends(format!("OPTIONS {path} HTTP/1.1\r\n\r\n"));
        assert!(socket.hears_all().starts_with("HTTP/1.1 400"), "{path}");
    }
    assert_eq!(ana.get(&device.at("events")).await.ok()["meta"]["totalDocs"], 0);
}
