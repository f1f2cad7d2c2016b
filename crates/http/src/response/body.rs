//! The body of a response. Nearly all responses are those of the main road: their bodies are here as a whole, without a box
//! around each.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The body of a response.
#[derive(Debug)]
pub enum ResponseBody {
    /// It is here as a whole.
    Whole(Bytes),
    /// It is made piece by piece, or went through a layer.
    Boxed(Body),
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl From<Body> for ResponseBody {
    fn from(body: Body) -> Self {
        Self::Boxed(body)
    }
}

impl From<ResponseBody> for Body {
    fn from(body: ResponseBody) -> Self {
        match body {
            ResponseBody::Whole(bytes) => Body::from(bytes),
            ResponseBody::Boxed(body) => body,
        }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
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
