//! Properties that hold for any bytes from the network. `fuzz/` searches for inputs that violate them; the tests below
//! replay the known ones. Built only for these two.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a property that does not hold is a panic")]

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{io, mem};

use axum::http::{Request, Response};
use bytes::Bytes;
use futures::executor::block_on;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use isobar_hub::{Filter, FilterField, Operand, Operator};
use isobar_model::path::quoted;

use crate::connection::fast_path_event;
use crate::request::filter::filters;

/// Lengths in bytes of the pieces in which hyper reads what the fast path reads whole.
const PIECES: [usize; 4] = [usize::MAX, 64, 7, 1];

/// Checks that each `filter` parameter of a query string is read or reported as a fault, and that a filter survives
/// writing and reading. Returns true if the input has a filter.
pub fn filter(input: &[u8]) -> bool {
    let pairs: Vec<_> = form_urlencoded::parse(input).collect();
    let (read, faults) = filters(&pairs);
    let named = pairs.iter().filter(|(key, _)| key == "filter" || key.starts_with("filter[")).count();
    let are_too_many = faults.iter().any(|fault| fault.field == "query.filter" && fault.message.contains("at most"));
    assert_eq!(read.len() + faults.len(), named + usize::from(are_too_many), "{faults:?}");
    let is_one = !read.is_empty();
    for filter in read {
        let (key, value) = written(&filter);
        let (again, faults) = filters(&[(key.as_str().into(), value.as_str().into())]);
        assert_eq!((&again[..], &faults[..]), (&[filter][..], &[][..]), "{key}={value}");
    }
    is_one
}

/// Writes a filter as a query parameter.
fn written(filter: &Filter) -> (String, String) {
    let field = match &filter.field {
        FilterField::Id => "id".to_owned(),
        FilterField::CreatedAt => "createdAt".to_owned(),
        FilterField::Payload(path) => quoted("payload", path),
    };
    let operator = match filter.operator {
        Operator::Eq => "eq",
        Operator::Ne => "ne",
        Operator::Lt => "lt",
        Operator::Lte => "lte",
        Operator::Gt => "gt",
        Operator::Gte => "gte",
        Operator::In => "in",
        Operator::Nin => "nin",
    };
    let operands = filter.operands.iter().map(|operand| match operand {
        Operand::Null => "null".to_owned(),
        Operand::Bool(value) => value.to_string(),
        Operand::Number(text) | Operand::Text(text) => text.clone(),
        Operand::Time(time) => time.to_string(),
    });
    (format!("filter[{field}][{operator}]"), operands.collect::<Vec<_>>().join(","))
}

/// Checks that hyper reads a request that the fast path takes in the same way, to the last byte and in pieces of any
/// size, and that its prefixes are left to hyper. Returns true if the fast path takes the input.
pub fn head(input: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(input);
    let Some(ours) = fast_path_event(&bytes) else { return false };
    for end in 0..bytes.len() {
        assert!(fast_path_event(&bytes.slice(..end)).is_none(), "the first {end} bytes are taken too");
    }
    let (ours, our_body) = ours.into_parts();
    let our_body = block_on(our_body.collect()).unwrap().to_bytes();
    for piece in PIECES {
        let theirs = read_by_hyper(bytes.clone(), piece).unwrap_or_else(|| panic!("hyper reads no request"));
        let (theirs, their_body) = theirs.into_parts();
        assert_eq!((&ours.method, &ours.uri, ours.version), (&theirs.method, &theirs.uri, theirs.version));
        assert_eq!(ours.headers, theirs.headers);
        assert_eq!(our_body, their_body);
    }
    true
}

/// Returns the one request that hyper reads from these bytes, which arrive in pieces of this length.
fn read_by_hyper(bytes: Bytes, piece: usize) -> Option<Request<Bytes>> {
    let read = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        let read = &read;
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            read.borrow_mut().push(Request::from_parts(head, body));
            Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let wire = Wire { bytes, piece, is_pause: true };
    block_on(http1::Builder::new().half_close(true).serve_connection(wire, service)).ok()?;
    let mut read = read.take();
    let request = read.pop()?;
    read.is_empty().then_some(request)
}

/// A connection that delivers bytes with a pause before each piece and discards what is written to it.
struct Wire {
    bytes: Bytes,
    piece: usize,
    is_pause: bool,
}

impl hyper::rt::Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if mem::replace(&mut self.is_pause, false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = self.bytes.len().min(self.piece).min(into.remaining());
        into.put_slice(&self.bytes.split_to(length));
        self.is_pause = true;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    // Holds: fuzz.filter
    #[test]
    fn written_filter_is_read_back() {
        let read = replay("filter", [], filter);
        assert!(read > 250, "{read}");
    }

    // Holds: fuzz.head
    #[test]
    fn fast_path_and_hyper_read_requests_alike() {
        let seed = b"POST /v2/events/device HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";
        assert!(fast_path_event(&Bytes::from_static(seed)).is_some());
        let taken = replay("head", [seed.to_vec()], head);
        assert!(taken > 250, "{taken}");
    }
}
