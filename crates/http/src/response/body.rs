//! The body of a response. Nearly all responses are those of the main road: their bodies are here as a whole, without a box
//! around each.
//!
//! Whatever is large is charged to its caller's tenant for as long as it waits for its reader ([`ResponseBody::charged`]),
//! and goes out in pieces: what the connection is given it copies, and holds until it is sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use isobar_hub::TenantShare;
use isobar_model::error::Error;

/// A body of no more bytes is written at once, and is charged to nobody.
pub(crate) const SMALL_BODY_BYTES: usize = 64 << 10;
/// Bytes of a larger one that the connection is given at a time.
const BODY_PIECE_BYTES: usize = 64 << 10;
/// A piece of no more bytes is charged to nobody, where a body is made piece by piece: a piece of a list with an item of the
/// usual size.
const SMALL_PIECE_BYTES: usize = 128 << 10;

/// The body of a response.
#[derive(Debug)]
pub enum ResponseBody {
    /// It is here as a whole.
    Whole(Bytes),
    /// It is here as a whole, and large.
    Large(Box<LargeBody>),
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
            ResponseBody::Large(large) => Body::new(*large),
            ResponseBody::Boxed(body) => body,
        }
    }
}

impl ResponseBody {
    /// A body that every response of its kind shares: its memory is nobody's.
    pub(crate) fn shared(bytes: Bytes) -> Self {
        if bytes.len() <= SMALL_BODY_BYTES {
            return Self::Whole(bytes);
        }
        Self::Large(Box::new(LargeBody { rest: bytes, _memory: None }))
    }

    /// A body whose memory was charged before it was made.
    pub(crate) fn with_memory(bytes: Bytes, memory: TenantShare) -> Self {
        if bytes.len() <= SMALL_BODY_BYTES {
            return Self::Whole(bytes);
        }
        Self::Large(Box::new(LargeBody { rest: bytes, _memory: Some(memory) }))
    }

    /// Charges the memory that it takes, in which `memory` is a share of nothing yet, until it is sent or given up. What is
    /// made piece by piece is charged as it is made: where there is no room for a large piece, it breaks off.
    ///
    /// # Errors
    /// `Busy`: there is no room for it. It is gone.
    pub(crate) fn charged(self, mut memory: TenantShare) -> Result<Self, Error> {
        Ok(match self {
            Self::Whole(bytes) if bytes.len() > SMALL_BODY_BYTES => {
                memory.grow(bytes.len())?;
                Self::with_memory(bytes, memory)
            }
            Self::Whole(_) | Self::Large(_) => self,
            Self::Boxed(body) => Self::Boxed(Body::new(PiecewiseBody { body, rest: Bytes::new(), memory })),
        })
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Large(large) => Pin::new(&mut **large).poll_frame(cx),
            Self::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Large(large) => large.is_end_stream(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Large(large) => large.size_hint(),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}

/// The next piece of what is here; none when nothing is.
fn next_piece(rest: &mut Bytes) -> Option<Frame<Bytes>> {
    let piece = rest.split_to(rest.len().min(BODY_PIECE_BYTES));
    (!piece.is_empty()).then(|| Frame::data(piece))
}

/// A large body that is here as a whole, and goes out in pieces.
pub struct LargeBody {
    rest: Bytes,
    /// What it takes, whatever of it is left: it is one piece of memory. None: others share it.
    _memory: Option<TenantShare>,
}

impl fmt::Debug for LargeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.rest.len())
    }
}

impl hyper::body::Body for LargeBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(next_piece(&mut self.get_mut().rest).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// A body that is made piece by piece. A piece is as large as what is in it, which may be one large value: it is charged until
/// the next is asked for.
struct PiecewiseBody {
    body: Body,
    /// What is not sent yet of the piece that is under way.
    rest: Bytes,
    memory: TenantShare,
}

impl hyper::body::Body for PiecewiseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, rest, memory } = self.get_mut();
        loop {
            if let Some(piece) = next_piece(rest) {
                return Poll::Ready(Some(Ok(piece)));
            }
            let next = ready!(Pin::new(&mut *body).poll_frame(cx));
            let piece = match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(piece))) => piece,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            let takes = if piece.len() > SMALL_PIECE_BYTES { piece.len() } else { 0 };
            if let Err(error) = memory.resize(takes) {
                tracing::warn!(bytes = takes, "an answer broke off: its tenant has too many that are not taken");
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            }
            *rest = piece;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(most) = of_body.upper() {
            hint.set_upper(most.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;
    use isobar_hub::TenantShares;

    use super::*;

    fn share(quota: &Arc<TenantShares>) -> TenantShare {
        quota.share(None)
    }

    fn of(bytes: usize) -> ResponseBody {
        ResponseBody::Whole(vec![b'x'; bytes].into())
    }

    #[tokio::test]
    async fn a_large_body_is_charged_until_the_last_of_it_is_asked_for() {
        let quota = TenantShares::fair(900_000);
        let mut body = of(500_000).charged(share(&quota)).unwrap();
        assert_eq!(body.size_hint().exact(), Some(500_000));
        assert!(matches!(of(500_000).charged(share(&quota)), Err(Error::Busy)));
        // Small ones have room all the while.
        assert!(of(SMALL_BODY_BYTES).charged(share(&quota)).is_ok());
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= BODY_PIECE_BYTES && quota.held() > 0);
            read += piece.len();
        }
        assert_eq!(read, 500_000);
        drop(body);
        assert_eq!(quota.held(), 0);
        // Also of one that went through a layer, and of one that is given up.
        drop(Body::from(of(500_000).charged(share(&quota)).unwrap()));
        assert_eq!(quota.held(), 0);
    }

    #[tokio::test]
    async fn large_pieces_are_charged_one_after_the_other() {
        let quota = TenantShares::fair(900_000);
        let pieces = |sizes: &[usize]| {
            let pieces: Vec<_> = sizes.iter().map(|size| Ok::<_, Error>(Bytes::from(vec![b'x'; *size]))).collect();
            ResponseBody::Boxed(Body::from_stream(stream::iter(pieces))).charged(share(&quota)).unwrap()
        };
        // Each has room, though not all of them together; the empty one ends nothing.
        let all = pieces(&[400_000, 400_000, 0, 10, 400_000]).collect().await.unwrap().to_bytes();
        assert_eq!(all.len(), 1_200_010);
        assert_eq!(quota.held(), 0);
        let mut first = pieces(&[400_000, 10]);
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap().len(), BODY_PIECE_BYTES);
        assert!(pieces(&[400_000]).collect().await.is_err());
        assert_eq!(pieces(&[SMALL_PIECE_BYTES]).collect().await.unwrap().to_bytes().len(), SMALL_PIECE_BYTES);
        first.collect().await.unwrap();
        assert_eq!(quota.held(), 0);
    }

    #[tokio::test]
    async fn what_all_share_is_charged_to_nobody() {
        let quota = TenantShares::fair(90);
        let shared = ResponseBody::shared(vec![b'x'; 500_000].into()).charged(share(&quota)).unwrap();
        assert_eq!(quota.held(), 0);
        assert_eq!(shared.collect().await.unwrap().to_bytes().len(), 500_000);
    }
}
