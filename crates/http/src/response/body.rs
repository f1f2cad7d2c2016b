//! Response bodies. Nearly all belong to responses to events: whole, and without a box.
//!
//! A large body is charged to its caller's tenant until it is sent ([`ResponseBody::charged`]), and passed to the
//! connection in pieces, because the connection copies each and holds the copy until it is sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use isobar_hub::{TenantShare, TenantShares};
use isobar_model::error::Error;
use isobar_model::ids::OrganizationId;

/// Largest body in bytes that is written at once and not charged.
pub(crate) const SMALL_BODY_BYTES: usize = 64 << 10;
/// Bytes of a larger body that the connection is given at a time.
const BODY_PIECE_BYTES: usize = 64 << 10;
/// Largest piece in bytes that is not charged, of a body that is made piece by piece: a piece of a list with an item of
/// usual size.
const SMALL_PIECE_BYTES: usize = 128 << 10;

/// The body of a response.
#[derive(Debug)]
pub enum ResponseBody {
    /// Complete.
    Whole(Bytes),
    /// Complete and large.
    Large(Box<LargeBody>),
    /// Made piece by piece, or wrapped by a layer.
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
    /// Makes a body shared by all responses of its kind, which is not charged.
    pub(crate) fn shared(bytes: Bytes) -> Self {
        if bytes.len() <= SMALL_BODY_BYTES {
            return Self::Whole(bytes);
        }
        Self::Large(Box::new(LargeBody { rest: bytes, _memory: None }))
    }

    /// Makes a body whose memory was charged before.
    pub(crate) fn with_memory(bytes: Bytes, memory: TenantShare) -> Self {
        if bytes.len() <= SMALL_BODY_BYTES {
            return Self::Whole(bytes);
        }
        Self::Large(Box::new(LargeBody { rest: bytes, _memory: Some(memory) }))
    }

    /// Charges its memory to `memory`, which must be empty, until it is sent or dropped. A body that is made piece by
    /// piece is charged as it is made: it breaks off if there is no memory for a large piece.
    ///
    /// # Errors
    /// Returns `Busy` if there is no memory for it; the body is dropped.
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

/// Largest body or piece in bytes that a tenant may have untaken by HTTP/2 without being charged. A stream itself
/// takes as much.
const UNCHARGED_BYTES_MAX: usize = 1 << 10;

/// Bytes that are charged to a tenant as long as anybody has a part of them, the send queue of HTTP/2 included.
struct ChargedBytes {
    bytes: Bytes,
    _share: TenantShare,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Charges bytes to an empty share. What alone is more than a share can hold fills it.
fn charge(bytes: Bytes, mut share: TenantShare, most: usize) -> Result<Bytes, Error> {
    if bytes.len() <= UNCHARGED_BYTES_MAX {
        return Ok(bytes);
    }
    share.grow(bytes.len().min(most))?;
    Ok(Bytes::from_owner(ChargedBytes { bytes, _share: share }))
}

/// A body made piece by piece, whose pieces are charged until they are sent.
struct ChargedPieces {
    body: Body,
    shares: Arc<TenantShares>,
    tenant: Option<OrganizationId>,
    most: usize,
}

impl hyper::body::Body for ChargedPieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(match frame?.into_data() {
            Ok(piece) => {
                charge(piece, self.shares.share(self.tenant), self.most).map(Frame::data).map_err(axum::Error::new)
            }
            Err(trailers) => Ok(trailers),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl ResponseBody {
    /// Charges a body that is sent by HTTP/2 until the client has taken it, whatever its size: a connection has a
    /// hundred of them. Of `shares`, a tenant may hold `most` bytes. What all responses share is not charged.
    ///
    /// # Errors
    /// Returns `Busy` if the tenant has too much untaken; the body is dropped.
    pub(crate) fn charged_until_taken(
        self,
        shares: &Arc<TenantShares>,
        tenant: Option<OrganizationId>,
        most: usize,
    ) -> Result<Self, Error> {
        Ok(match self {
            Self::Whole(bytes) => Self::Whole(charge(bytes, shares.share(tenant), most)?),
            Self::Large(mut large) => {
                if large._memory.is_some() {
                    large.rest = charge(large.rest, shares.share(tenant), most)?;
                }
                Self::Large(large)
            }
            Self::Boxed(body) => {
                Self::Boxed(Body::new(ChargedPieces { body, shares: Arc::clone(shares), tenant, most }))
            }
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

/// Splits off the next piece; `None` if nothing is left.
fn next_piece(rest: &mut Bytes) -> Option<Frame<Bytes>> {
    let piece = rest.split_to(rest.len().min(BODY_PIECE_BYTES));
    (!piece.is_empty()).then(|| Frame::data(piece))
}

/// A complete large body, sent in pieces.
pub struct LargeBody {
    rest: Bytes,
    /// Memory of the whole body, which is freed only as a whole. `None`: other responses share it.
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

/// A body made piece by piece. A piece may contain one large value: it is charged until the next piece is polled.
struct PiecewiseBody {
    body: Body,
    /// Unsent rest of the current piece.
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
                tracing::warn!(
                    bytes = takes,
                    "cannot send a response: unsent responses of its tenant fill their memory"
                );
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
    use futures::stream;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;
    use isobar_hub::UNLIMITED;

    use super::*;

    fn share(quota: &Arc<TenantShares>) -> TenantShare {
        quota.share(None)
    }

    fn of(bytes: usize) -> ResponseBody {
        ResponseBody::Whole(vec![b'x'; bytes].into())
    }

    #[tokio::test]
    async fn large_body_is_charged_until_its_last_piece() {
        let quota = TenantShares::new(&UNLIMITED.with_total(900_000));
        let mut body = of(500_000).charged(share(&quota)).unwrap();
        assert_eq!(body.size_hint().exact(), Some(500_000));
        assert!(matches!(of(500_000).charged(share(&quota)), Err(Error::Busy)));
        // Small bodies always have room.
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
        // Also for a body wrapped by a layer, and for one that is dropped.
        drop(Body::from(of(500_000).charged(share(&quota)).unwrap()));
        assert_eq!(quota.held(), 0);
    }

    #[tokio::test]
    async fn large_pieces_are_charged_one_at_a_time() {
        let quota = TenantShares::new(&UNLIMITED.with_total(900_000));
        let pieces = |sizes: &[usize]| {
            let pieces: Vec<_> = sizes.iter().map(|size| Ok::<_, Error>(Bytes::from(vec![b'x'; *size]))).collect();
            ResponseBody::Boxed(Body::from_stream(stream::iter(pieces))).charged(share(&quota)).unwrap()
        };
        // Each has room, though not all together; the empty one does not end the body.
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
    async fn bytes_for_http2_are_charged_until_nobody_has_them() {
        let quota = TenantShares::new(&UNLIMITED.with_total(30_000));
        let taken = |body: ResponseBody| body.charged_until_taken(&quota, None, 10_000);
        let mut body = taken(of(9_000)).unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        drop(body);
        // It waits in a send queue.
        assert_eq!(quota.held(), 9_000);
        drop(frame);
        assert_eq!(quota.held(), 0);
        // One that is larger than all that a tenant may hold is sent alone.
        let large = taken(of(500_000)).unwrap();
        assert_eq!(quota.held(), 10_000);
        let pieces = taken(ResponseBody::Boxed(Body::from(vec![b'x'; 9_000]))).unwrap();
        let pieces = pieces.collect().await.unwrap();
        assert_eq!(quota.held(), 19_000);
        assert!(taken(of(9_000)).is_err() && taken(of(UNCHARGED_BYTES_MAX)).is_ok());
        drop((large, pieces));
        assert_eq!(quota.held(), 0);
    }

    #[tokio::test]
    async fn shared_body_is_charged_to_no_tenant() {
        let quota = TenantShares::new(&UNLIMITED.with_total(90));
        let shared = ResponseBody::shared(vec![b'x'; 500_000].into()).charged(share(&quota)).unwrap();
        assert_eq!(quota.held(), 0);
        assert_eq!(shared.collect().await.unwrap().to_bytes().len(), 500_000);
    }
}
