//! The web console: embedded files, served at every path outside the API.

use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, IF_NONE_MATCH, VARY};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;

use crate::response::{Coding, EntityTags, Response, not_modified, protect_page, shared, tagged};

/// The page that is served at every address of the console.
const INDEX: &str = "/index.html";
/// Cache header of files whose name contains a hash of their content, which therefore never change.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Cache header of files that are cached but revalidated each time.
const ASKED_EACH_TIME: HeaderValue = HeaderValue::from_static("no-cache");
/// Content security policy: nothing from other origins, no inline script or style, no framing. Images that need
/// credentials are fetched and shown as blobs.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
);
const ACCEPT_ENCODING_VARIES: HeaderValue = HeaderValue::from_static("accept-encoding");

/// A file of the console, plain and compressed.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleFile {
    /// Path, which begins with a slash.
    pub path: &'static str,
    /// Media type.
    pub content_type: &'static str,
    /// Hash of the content.
    pub hash: &'static str,
    /// Plain content.
    pub plain: &'static [u8],
    /// Content compressed with brotli, if that is smaller.
    pub brotli: Option<&'static [u8]>,
    /// Content compressed with gzip, if that is smaller.
    pub gzip: Option<&'static [u8]>,
}

impl ConsoleFile {
    /// Returns true if the path changes with the content, so that a client may cache it for ever.
    fn is_immutable(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

/// Finds the file that a request is for: one of `files`, or the page, which routes by its address itself. Returns
/// `None` for paths of the API, for a missing asset and for methods other than GET and HEAD.
pub(crate) fn file(files: &'static [ConsoleFile], method: &Method, path: &str) -> Option<&'static ConsoleFile> {
    if !matches!(*method, Method::GET | Method::HEAD) || is_of_interface(path) {
        return None;
    }
    let named = |wanted: &str| files.iter().find(|file| file.path == wanted);
    // A missing asset belongs to an older console: the page would be a wrong answer.
    if path.starts_with("/assets/") { named(path) } else { named(path).or_else(|| named(INDEX)) }
}

/// Returns true if a path belongs to the API or to monitoring.
fn is_of_interface(path: &str) -> bool {
    let within = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ["/v2", "/health", "/metrics"].into_iter().any(within)
}

/// Returns the response with a file, in the smallest form that the client accepts; 304 if the client has it.
pub(crate) fn answer(file: &ConsoleFile, headers: &HeaderMap) -> Response {
    let (encoding, content) = smallest(file, headers);
    let tag = format!("{}{}", file.hash, encoding.map_or(String::new(), |name| format!("-{name}")));
    let mut response = match EntityTags::read(headers, &IF_NONE_MATCH) {
        Ok(Some(known)) if known.name(&tag) => not_modified(&tag),
        _ => {
            let mut response = shared(HeaderValue::from_static(file.content_type), Bytes::from_static(content));
            if let Some(name) = encoding {
                response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(name));
            }
            tagged(response, &tag)
        }
    };
    let own = response.headers_mut();
    own.insert(CACHE_CONTROL, if file.is_immutable() { FOR_EVER } else { ASKED_EACH_TIME });
    own.insert(VARY, ACCEPT_ENCODING_VARIES);
    protect_page(&mut response, POLICY);
    response
}

/// Returns the smallest form of a file that the client accepts, and the name of its encoding.
fn smallest(file: &ConsoleFile, headers: &HeaderMap) -> (Option<&'static str>, &'static [u8]) {
    let form = |coding| match coding {
        Coding::Br => file.brotli,
        Coding::Gzip => file.gzip,
    };
    let there: Vec<_> = Coding::ALL.into_iter().filter(|coding| form(*coding).is_some()).collect();
    let taken = Coding::asked_for(headers, &there).and_then(|coding| Some((coding.name(), form(coding)?)));
    taken.map_or((None, file.plain), |(name, form)| (Some(name), form))
}

#[cfg(test)]
mod tests {
    use axum::http::header::{ACCEPT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, X_FRAME_OPTIONS};
    use axum::http::{HeaderName, StatusCode};

    use super::*;
    use crate::response::ResponseBody;

    const FILES: &[ConsoleFile] = &[
        ConsoleFile {
            path: "/assets/index-abc.js",
            content_type: "text/javascript; charset=utf-8",
            hash: "abc",
            plain: b"plain",
            brotli: Some(b"br"),
            gzip: Some(b"gz"),
        },
        ConsoleFile {
            path: INDEX,
            content_type: "text/html; charset=utf-8",
            hash: "def",
            plain: b"page",
            brotli: None,
            gzip: None,
        },
    ];

    fn found(method: &Method, path: &str) -> Option<&'static str> {
        file(FILES, method, path).map(|file| file.path)
    }

    fn headers<const N: usize>(pairs: [(HeaderName, &'static str); N]) -> HeaderMap {
        pairs.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    }

    fn content(response: Response) -> Bytes {
        match response.into_body() {
            ResponseBody::Whole(bytes) => bytes,
            other => panic!("a small file is here as a whole: {other:?}"),
        }
    }

    #[test]
    fn path_outside_the_api_shows_the_page() {
        for path in ["/", "/devices", "/devices/01/events", "/index.html", "/v2x", "/healthy", "/metrics.txt"] {
            assert_eq!(found(&Method::GET, path), Some(INDEX), "{path}");
        }
        assert_eq!(found(&Method::HEAD, "/"), Some(INDEX));
        assert_eq!(found(&Method::GET, "/assets/index-abc.js"), Some("/assets/index-abc.js"));
    }

    #[test]
    fn api_paths_and_missing_assets_are_refused() {
        for path in
            ["/v2", "/v2/", "/v2/nothing", "/health", "/health/none", "/metrics", "/metrics/x", "/assets/index-old.js"]
        {
            assert_eq!(found(&Method::GET, path), None, "{path}");
        }
        assert_eq!(found(&Method::POST, "/"), None);
        assert!(file(&[], &Method::GET, "/").is_none(), "a program without the console has no page");
    }

    #[test]
    fn smallest_accepted_encoding_is_sent() {
        for (accepted, encoding, body) in [
            ("gzip, deflate, br", Some("br"), &b"br"[..]),
            ("gzip;q=1.0, br;q=0", Some("gzip"), b"gz"),
            ("BR", Some("br"), b"br"),
            ("br;q=0.5, gzip", Some("gzip"), b"gz"),
            ("*", Some("br"), b"br"),
            ("identity", None, b"plain"),
            ("brotli, gzipped", None, b"plain"),
        ] {
            let response = answer(&FILES[0], &headers([(ACCEPT_ENCODING, accepted)]));
            let sent = response.headers().get(CONTENT_ENCODING).map(|name| name.to_str().unwrap().to_owned());
            assert_eq!(sent.as_deref(), encoding, "{accepted}");
            assert_eq!(response.headers()[VARY], "accept-encoding");
            assert_eq!(content(response), body, "{accepted}");
        }
    }

    #[test]
    fn hashed_file_is_cached_and_the_page_is_revalidated() {
        let asset = answer(&FILES[0], &HeaderMap::new());
        assert_eq!(asset.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
        let page = answer(&FILES[1], &HeaderMap::new());
        assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
        assert_eq!(page.headers()[ETAG], "\"def\"");
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers()[X_FRAME_OPTIONS], "DENY");
    }

    #[test]
    fn cached_file_is_not_sent_again() {
        for known in ["\"def\"", "W/\"def\"", "\"other\", \"def\"", "*"] {
            let response = answer(&FILES[1], &headers([(IF_NONE_MATCH, known)]));
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(response.headers()[ETAG], "\"def\"");
            assert!(content(response).is_empty());
        }
        let other_form = headers([(IF_NONE_MATCH, "\"abc\""), (ACCEPT_ENCODING, "br")]);
        assert_eq!(answer(&FILES[0], &other_form).status(), StatusCode::OK, "another form is another content");
    }
}
