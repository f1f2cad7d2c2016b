//! The fast path for device events. Requests that arrive one by one, each whole in one read, are parsed and answered
//! here. At the first request that is anything else, the connection moves to hyper and stays there.
//!
//! hyper has two buffers and a header map for each connection. With a thousand connections waiting for the disk, these
//! have left the processor's caches when they are needed again; here a connection is little more than its socket. That
//! gives 15 % more events a second at 1,024 connections (docs/decisions/0005).
//!
//! Nothing is refused here: hyper answers or refuses whatever is not clearly an event request.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use httparse::{EMPTY_HEADER, Status};
use isobar_model::time::Timestamp;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use super::encode::{encoded, encoded_created};
use super::head_lines::has_bare_lf;
use super::leaving::Leaving;
use super::shutdown::ShutdownSignal;
use super::slots::Slot;
use crate::app::App;
use crate::request::{Client, RequestBody, Stream, host};
use crate::response::{EventResponse, Response, ResponseBody};
use crate::routes::MAIN_ROAD;

/// Bytes of one read. A longer request goes to hyper.
const FAST_PATH_READ_BYTES: usize = 8 << 10;
/// Most headers of a request. One with more goes to hyper.
const FAST_PATH_HEADERS_MAX: usize = 24;

/// A connection on the fast path.
pub(super) struct FastPath {
    pub stream: Stream,
    pub app: App,
    pub peer: IpAddr,
    /// True if the peer is a proxy that the operator trusts.
    pub is_proxy: bool,
    pub slot: Arc<Slot>,
    pub leaving: Leaving,
    pub shutdown: ShutdownSignal,
}

/// A connection that leaves the fast path, with the bytes already read of its next request.
pub(super) struct Handover {
    pub connection: FastPath,
    pub read: Bytes,
}

impl FastPath {
    /// Answers events until the connection ends (`None`) or something else arrives.
    ///
    /// This future is dropped only while idle ([`super::slots`]): an event that has begun is answered even if its
    /// client has gone. Little state lives across an `await`: with a thousand connections it has left the processor's
    /// caches each time.
    pub async fn serve(mut self) -> io::Result<Option<Handover>> {
        loop {
            let read = poll_fn(|cx| self.poll_read(cx)).await;
            if read.as_ref().map_or(true, Bytes::is_empty) {
                Box::pin(self.leaving.turn()).await;
                return read.map(|_| None);
            }
            let read = read?;
            if !self.slot.begin() {
                return Ok(None);
            }
            let Some(request) = event(&read) else { return Ok(Some(Handover { connection: self, read })) };
            drop(read);
            let address = if self.is_proxy { self.app.client_behind(self.peer, request.headers()) } else { self.peer };
            let client = Client { address, is_behind_proxy: self.is_proxy, socket: None };
            let response = self.app.answer_event(request, client).await;
            let (now, mut is_last) = (self.app.now(), self.shutdown.is_requested());
            let response = match response {
                EventResponse::Created(created) => encoded_created(&created, is_last, now),
                EventResponse::Other(response) => {
                    is_last |= response.headers().contains_key(CONNECTION);
                    Box::pin(encoded_whole(response, is_last, now)).await?
                }
            };
            self.write(response).await?;
            if is_last {
                self.close().await?;
                return Ok(None);
            }
            self.slot.becomes_idle(now);
        }
    }

    /// Reads the next bytes; empty when the connection ends.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        // On the stack, which is in the processor's caches whichever connection is read.
        let mut buffer = [const { MaybeUninit::uninit() }; FAST_PATH_READ_BYTES];
        let mut read = ReadBuf::uninit(&mut buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
    }

    /// Writes a small response, within the time limit of slow peers.
    async fn write(&mut self, response: Vec<u8>) -> io::Result<()> {
        // Usually written at once, without a timer.
        let (written, is_out) = poll_fn(|cx| Poll::Ready(self.stream.write_at_once(cx, &response))).await?;
        if is_out {
            return Ok(());
        }
        let stream = &mut self.stream;
        let rest = async {
            stream.write_all(&response[written..]).await?;
            stream.flush().await
        };
        let written = Box::pin(self.app.clock().timeout(self.app.settings().transfer_time, rest)).await;
        written.map_err(|late| io::Error::new(io::ErrorKind::TimedOut, late))?
    }

    /// Closes the connection. Bytes that arrived meanwhile are read first: closing with unread bytes would send a
    /// reset, which can cost the client the response.
    async fn close(&mut self) -> io::Result<()> {
        let _ = self.stream.socket().try_read(&mut [0; FAST_PATH_READ_BYTES]);
        self.stream.shutdown().await
    }
}

/// Encodes a response with its body, which may come in pieces.
async fn encoded_whole(response: Response, is_last: bool, now: Timestamp) -> io::Result<Vec<u8>> {
    let (head, body) = response.into_parts();
    let body = match body {
        ResponseBody::Whole(body) => body,
        other => axum::body::to_bytes(other.into(), usize::MAX).await.map_err(io::Error::other)?,
    };
    Ok(encoded(head, body, is_last, now))
}

/// Parses the bytes as one event request; `None` if they are anything less, more or else.
pub(crate) fn event(bytes: &Bytes) -> Option<Request<RequestBody>> {
    let mut buffer = [EMPTY_HEADER; FAST_PATH_HEADERS_MAX];
    let mut head = httparse::Request::new(&mut buffer);
    let Ok(Status::Complete(head_length)) = head.parse(bytes) else { return None };
    if has_bare_lf(&bytes[..head_length]) {
        return None;
    }
    let (path, method) = (head.path.filter(|path| path.starts_with('/'))?, head.method?);
    let uri = Uri::from_maybe_shared(bytes.slice_ref(path.as_bytes())).ok()?;
    if head.version != Some(1) || method != Method::POST.as_str() || !MAIN_ROAD.is_for(&Method::POST, uri.path()) {
        return None;
    }
    let (mut headers, mut length, mut hosts) = (HeaderMap::with_capacity(head.headers.len()), None, 0);
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        match name.as_str() {
            // hyper decides on a repeated length.
            "content-length" if length.replace(number(header.value)?).is_some() => return None,
            "host" if !host::is_valid(header.value) => return None,
            "host" => hosts += 1,
            "connection" if !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            // These headers mean more than a head and a body of known length.
            "expect" | "te" | "trailer" | "transfer-encoding" | "upgrade" => return None,
            _ => {}
        }
        headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(header.value)).ok()?);
    }
    let body = bytes.slice(head_length..);
    if length != Some(body.len()) || hosts != 1 {
        return None;
    }
    let mut request = Request::new(RequestBody::Whole(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some(request)
}

/// Parses a number of digits only.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "POST /v2/events/device?elementName=a HTTP/1.1\r\nHost: h\r\nCloud: t\r\nContent-Length: 7\r\n";
    const BODY: &str = "{\"n\":1}";

    /// Returns a request with additional headers.
    fn post(more: &str) -> Bytes {
        format!("{HEAD}{more}\r\n{BODY}").into()
    }

    #[tokio::test]
    async fn plain_post_is_read_by_the_fast_path() {
        for more in ["", "Connection: Keep-Alive\r\n", "X: 1\r\nX: \u{e9}\r\n"] {
            let request = event(&post(more)).unwrap();
            assert_eq!((request.method(), request.uri().query()), (&Method::POST, Some("elementName=a")));
            assert_eq!(request.headers()["cloud"], "t");
            assert_eq!(request.headers().get_all("x").into_iter().count(), more.matches("X: ").count());
            assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), BODY);
        }
    }

    #[test]
    fn request_of_another_form_is_left_to_hyper() {
        let plain = post("");
        assert!(event(&plain).is_some());
        for more in [
            "Content-Length: 7\r\n",
            "Host: h\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Expect: 100-continue\r\n",
            "Upgrade: h2c\r\n",
            "Connection: close\r\n",
            "Connection: keep-alive, x\r\n",
            "X : 1\r\n",
            "X: \u{1}\r\n",
            "X: 1\r\n folded\r\n",
            "X: 1\n",
            &"X: 1\r\n".repeat(FAST_PATH_HEADERS_MAX),
        ] {
            assert!(event(&post(more)).is_none(), "{more}");
        }
        let plain = String::from_utf8(plain.into()).unwrap();
        for (this, that) in [
            ("POST", "post"),
            ("POST", "GET"),
            ("HTTP/1.1", "HTTP/1.0"),
            (" /v2", " http://h/v2"),
            ("device?", "cloud?"),
            ("device?", "d%65vice?"),
            ("device?", "device/?"),
            ("Host: h\r\n", ""),
            ("Host: h", "Host: a b"),
            ("Host: h", "Host:"),
            (": 7", ": 6"),
            (": 7", ": 8"),
            (": 7", ": +7"),
            (": 7", ": 7, 7"),
            (": 7", ":"),
            ("Content-Length: 7\r\n", ""),
            ("HTTP/1.1\r\n", "HTTP/1.1\n"),
            ("\r\n\r\n", "\r\n\n"),
        ] {
            let other = plain.replacen(this, that, 1);
            assert_ne!(other, plain);
            assert!(event(&other.into()).is_none(), "{that}");
        }
    }

    proptest! {
        #[test]
        fn only_whole_requests_are_taken(cut in 0..HEAD.len() + 9, more in "[ -~\r\n]{1,40}") {
            let plain = post("");
            prop_assert!(event(&plain.slice(..cut)).is_none());
            prop_assert!(event(&[&plain[..], more.as_bytes()].concat().into()).is_none());
        }

        #[test]
        fn random_bytes_never_panic(at in 0..HEAD.len(), bytes in prop::collection::vec(any::<u8>(), 1..20)) {
            let plain = post("");
            let _ = event(&[&plain[..at], &bytes, &plain[at..]].concat().into());
            let _ = event(&bytes.into());
        }
    }
}
