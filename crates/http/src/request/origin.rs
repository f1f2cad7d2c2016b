//! Checks the `Origin` of a call whose cookie acts for a user: a page of another site must not refresh or end the
//! session of whoever visits it.

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;

use crate::state::HttpSettings;

/// Returns true if a browser sent the call from a page that is neither the platform's own nor of an origin that the
/// operator names. A call without `Origin` comes from no page of another site.
///
/// `*` among the operator's origins names none: it allows calls without cookies.
pub(crate) fn is_foreign(head: &Parts, public_url: &str, settings: &HttpSettings) -> bool {
    let mut origins = head.headers.get_all(ORIGIN).into_iter();
    let origin = match (origins.next(), origins.next()) {
        (None, _) => return false,
        (Some(origin), None) => origin.as_bytes(),
        (Some(_), Some(_)) => return true,
    };
    let is_named = settings.cors_origins.iter().any(|named| named != "*" && named.as_bytes() == origin);
    !is_named && !is_same(origin, origin_of(public_url).as_bytes()) && !is_host(origin, head)
}

/// Returns true for an origin of the host that the call names, by either scheme: TLS may end before this program.
fn is_host(origin: &[u8], head: &Parts) -> bool {
    let target = head.uri.authority().map(|target| target.as_str().as_bytes());
    let Some(host) = target.or_else(|| head.headers.get(HOST).map(|host| host.as_bytes())) else { return false };
    let authority = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    authority.is_some_and(|authority| is_same(authority, host))
}

/// Returns scheme, host and port of an address.
fn origin_of(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find('/').map_or(url.len(), |at| begin + at);
    &url[..end]
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn foreign(origins: &[&str], host: &str) -> bool {
        let mut request = Request::get("/v2/auth/refreshToken").header(HOST, host);
        for origin in origins {
            request = request.header(ORIGIN, *origin);
        }
        let cors_origins = vec!["*".to_owned(), "https://console.example".to_owned()];
        let settings = HttpSettings { cors_origins, ..HttpSettings::default() };
        let (head, ()) = request.body(()).unwrap().into_parts();
        is_foreign(&head, "https://iot.example/", &settings)
    }

    #[test]
    fn origin_is_own_by_address_host_or_setting() {
        for own in [
            &[][..],
            &["https://iot.example"],
            &["https://IOT.example"],
            &["http://10.0.0.7:8080"],
            &["https://10.0.0.7:8080"],
            &["https://console.example"],
        ] {
            assert!(!foreign(own, "10.0.0.7:8080"), "{own:?}");
        }
        for other in [
            &["https://evil.example"][..],
            &["null"],
            &[""],
            &["*"],
            &["http://iot.example"],
            &["https://iot.example.evil.example"],
            &["https://iot.example:8443"],
            &["http://10.0.0.7"],
            &["10.0.0.7:8080"],
            &["https://iot.example", "https://evil.example"],
        ] {
            assert!(foreign(other, "10.0.0.7:8080"), "{other:?}");
        }
    }
}
