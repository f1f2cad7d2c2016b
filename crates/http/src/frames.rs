//! Bodies as connections have them. Nearly all that come and go are those of the main road: these are what they are,
//! without a box around each.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};

/// The body of a request.
pub(crate) enum Inbound {
    /// As the connection gives it.
    Incoming(Incoming),
    /// It came as a whole.
    Whole(Bytes),
    /// As the router gives it.
    Boxed(Body),
}

/// The body of an answer.
#[derive(Debug)]
pub enum Outbound {
    /// It is here as a whole.
    Whole(Bytes),
    /// Any other.
    Boxed(Body),
}

impl From<Inbound> for Body {
    fn from(body: Inbound) -> Self {
        match body {
            Inbound::Incoming(body) => Body::new(body),
            Inbound::Whole(bytes) => Body::from(bytes),
            Inbound::Boxed(body) => body,
        }
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl From<Body> for Outbound {
    fn from(body: Body) -> Self {
        Self::Boxed(body)
    }
}

impl From<Outbound> for Body {
    fn from(body: Outbound) -> Self {
        match body {
            Outbound::Whole(bytes) => Body::from(bytes),
            Outbound::Boxed(body) => body,
        }
    }
}

impl hyper::body::Body for Inbound {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Incoming(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|read| read.map_err(axum::Error::new)))
            }
            Self::Whole(bytes) => Poll::Ready(whole(bytes)),
            Self::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Incoming(body) => body.is_end_stream(),
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Incoming(body) => body.size_hint(),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}

impl hyper::body::Body for Outbound {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(whole(bytes)),
            Self::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}

/// The one frame of a body that is here as a whole, or its end.
fn whole(bytes: &mut Bytes) -> Option<Result<Frame<Bytes>, axum::Error>> {
    (!bytes.is_empty()).then(|| Ok(Frame::data(std::mem::take(bytes))))
}
