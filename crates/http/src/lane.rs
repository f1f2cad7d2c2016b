//! The main road's own lane. Events that come one by one, each whole in one piece, are read and answered here; with the
//! first request that is anything else, its connection goes to hyper, which can do everything, and stays there.
//!
//! hyper keeps two buffers and a map of headers for each connection. Where a thousand connections wait for the disk, these
//! have left the processor's caches whenever they are needed again; here little but the socket belongs to a connection.
//! Nothing is judged here: what is not plainly a request of the main road is hyper's to answer or to refuse.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use axum::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use futures::poll;
use httparse::{EMPTY_HEADER, Status};
use httpdate::HttpDate;
use isobar_model::time::Timestamp;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use crate::app::{App, Client};
use crate::doors::Seat;
use crate::ending::Stake;
use crate::frames::{Inbound, Outbound};
use crate::host;
use crate::routes::MAIN_ROAD;

/// What is read at a time. A longer request is hyper's.
const READ_BYTES: usize = 8 << 10;
/// Most headers of a request here.
const HEADERS_MAX: usize = 24;
/// Room for an answer as it goes out: that to an event has some 450 bytes.
const ANSWER_BYTES: usize = 640;
/// What says that there is more to a request than its head and a body of known length.
const SPECIAL: [HeaderName; 5] = [EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// A connection in the lane.
pub(crate) struct Lane {
    pub stream: TcpStream,
    pub app: App,
    pub peer: IpAddr,
    /// Whether the peer is a proxy that the operator trusts.
    pub is_proxy: bool,
    pub seat: Arc<Seat>,
    pub stake: Stake,
}

/// A connection that has left the lane, with the bytes that were read of its next request.
pub(crate) struct Left {
    pub lane: Lane,
    pub read: Bytes,
}

impl Lane {
    /// Answers events until the connection ends, or something else comes.
    pub async fn drive(mut self) -> io::Result<Option<Left>> {
        loop {
            let read = poll_fn(|cx| self.poll_read(cx)).await?;
            if read.is_empty() || !self.seat.begins() {
                return Ok(None);
            }
            let Some(request) = event(&read) else { return Ok(Some(Left { lane: self, read })) };
            drop(read);
            let address = if self.is_proxy { self.app.client_behind(self.peer, request.headers()) } else { self.peer };
            let (head, body) = self.app.answer_event(request, Client::of_lane(address)).await.into_parts();
            let body = match body {
                Outbound::Whole(body) => body,
                Outbound::Boxed(body) => axum::body::to_bytes(body, usize::MAX).await.map_err(io::Error::other)?,
            };
            let is_last = self.stake.is_told() || head.headers.contains_key(CONNECTION);
            let now = self.app.now();
            let answer = written(&head, &body, is_last, now);
            self.write(&answer).await?;
            if is_last {
                return self.close().await;
            }
            self.seat.rests(now);
        }
    }

    /// Writes an answer, which is a small one, to a client that takes it in time.
    async fn write(&mut self, answer: &[u8]) -> io::Result<()> {
        let mut writing = pin!(self.stream.write_all(answer));
        // Mostly it goes out at once: then no timer is needed.
        match poll!(&mut writing) {
            Poll::Ready(written) => written,
            Poll::Pending => Box::pin(tokio::time::timeout(self.app.patience(), writing)).await?,
        }
    }

    /// Ends the connection well: what has come meanwhile is not answered, but a close before it is read would be a reset,
    /// which may cost the client the answer before it.
    async fn close(mut self) -> io::Result<Option<Left>> {
        let _ = self.stream.try_read(&mut [0; READ_BYTES]);
        self.stream.shutdown().await?;
        Ok(None)
    }

    /// What comes next; nothing when the connection or the server ends.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if self.stake.rings(cx) {
            return Poll::Ready(Ok(Bytes::new()));
        }
        // On the stack, which is warm, whichever connection is read.
        let mut room = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut read = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
    }
}

/// The one request of the main road that these bytes are, if they are that and nothing else.
pub(crate) fn event(bytes: &Bytes) -> Option<Request<Inbound>> {
    let mut room = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut room);
    let Ok(Status::Complete(head_length)) = head.parse(bytes) else { return None };
    let (path, method) = (head.path.filter(|path| path.starts_with('/'))?, head.method?);
    let uri = Uri::from_maybe_shared(bytes.slice_ref(path.as_bytes())).ok()?;
    if head.version != Some(1) || method != Method::POST.as_str() || !MAIN_ROAD.is_for(&Method::POST, uri.path()) {
        return None;
    }
    let (mut headers, mut length, mut hosts) = (HeaderMap::with_capacity(head.headers.len()), None, 0);
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        if name == CONTENT_LENGTH {
            // Twice is hyper's to judge.
            if length.replace(number(header.value)?).is_some() {
                return None;
            }
        } else if name == HOST {
            if !host::is_valid(header.value) {
                return None;
            }
            hosts += 1;
        } else if SPECIAL.contains(&name) || (name == CONNECTION && !header.value.eq_ignore_ascii_case(b"keep-alive")) {
            return None;
        }
        headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(header.value)).ok()?);
    }
    let body = bytes.slice(head_length..);
    if length != Some(body.len()) || hosts != 1 {
        return None;
    }
    let mut request = Request::new(Inbound::Whole(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some(request)
}

/// A number of digits alone.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// An answer as it goes out.
fn written(head: &Parts, body: &Bytes, is_last: bool, now: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let reason = head.status.canonical_reason().unwrap_or_default();
    put(&[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"]);
    for (name, value) in &head.headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    if is_last && !head.headers.contains_key(CONNECTION) {
        put(&[b"connection: close\r\n"]);
    }
    put(&[b"content-length: ", body.len().to_string().as_bytes(), b"\r\ndate: ", &date(now), b"\r\n\r\n", body]);
    out
}

/// The moment as headers have it (RFC 9110, 5.6.7); written once a second on each thread.
fn date(now: Timestamp) -> [u8; 29] {
    thread_local! {
        static NEWEST: Cell<(u64, [u8; 29])> = const { Cell::new((0, *b"Thu, 01 Jan 1970 00:00:00 GMT")) };
    }
    let second = now.seconds().max(0) as u64;
    let (known, text) = NEWEST.get();
    if known == second {
        return text;
    }
    let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
    let text = text.as_bytes().try_into().unwrap_or(NEWEST.get().1);
    NEWEST.set((second, text));
    text
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "POST /v2/events/device?elementName=a HTTP/1.1\r\nHost: h\r\nCloud: t\r\nContent-Length: 7\r\n";
    const BODY: &str = "{\"n\":1}";

    /// A post with more headers.
    fn post(more: &str) -> Bytes {
        format!("{HEAD}{more}\r\n{BODY}").into()
    }

    #[tokio::test]
    async fn a_plain_post_is_read_as_it_is() {
        for more in ["", "Connection: Keep-Alive\r\n", "X: 1\r\nX: \u{e9}\r\n"] {
            let request = event(&post(more)).unwrap();
            assert_eq!((request.method(), request.uri().query()), (&Method::POST, Some("elementName=a")));
            assert_eq!(request.headers()["cloud"], "t");
            assert_eq!(request.headers().get_all("x").into_iter().count(), more.matches("X: ").count());
            assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), BODY);
        }
    }

    #[test]
    fn everything_else_is_left_to_hyper() {
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
            &"X: 1\r\n".repeat(HEADERS_MAX),
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
        fn bytes_of_any_kind_do_no_harm(at in 0..HEAD.len(), bytes in prop::collection::vec(any::<u8>(), 1..20)) {
            let plain = post("");
            let _ = event(&[&plain[..at], &bytes, &plain[at..]].concat().into());
            let _ = event(&bytes.into());
        }
    }

    #[test]
    fn an_answer_has_its_length_and_the_date() {
        let mut response = crate::reply::raw_json(StatusCode::CREATED, "{}");
        response.headers_mut().insert("x", HeaderValue::from_static("y"));
        let (head, _) = response.into_parts();
        let (body, now) = (Bytes::from("{}"), Timestamp::from_millis(784_111_777_999));
        let common = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nx: y\r\n";
        let rest = "content-length: 2\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{}";
        assert_eq!(written(&head, &body, false, now), format!("{common}{rest}").into_bytes());
        assert_eq!(written(&head, &body, true, now), format!("{common}connection: close\r\n{rest}").into_bytes());
    }
}
