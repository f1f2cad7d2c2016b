//! Reads request bodies, with limits on size, time and the memory of all bodies together. A body that arrives in one
//! piece is not copied.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::poll;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use isobar_hub::{TenantShare, TenantShares};
use isobar_model::ids::OrganizationId;
use isobar_model::time::Clock;
use tokio::task::yield_now;

use super::transfer::time_for;
use crate::problem::Problem;

/// Most bytes of a refused body that are read and discarded, so that the client can read the refusal.
const DRAIN_BYTES_MAX: usize = 8 << 20;
/// Longest time to drain a refused body.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Bytes of a body after which the task yields. Pieces that are already here are read without waiting, and the runtime
/// polls for other connections only after 61 of them: a millisecond or two.
const BYTES_AT_ONCE: usize = 64 << 10;

/// Body of a request. Those of events, nearly all, need no box.
pub(crate) enum RequestBody {
    /// Comes from the connection, piece by piece.
    Incoming(Incoming),
    /// Arrived as a whole.
    Whole(Bytes),
    /// Comes from the router.
    Boxed(Body),
}

impl From<RequestBody> for Body {
    fn from(body: RequestBody) -> Self {
        match body {
            RequestBody::Incoming(body) => Body::new(body),
            RequestBody::Whole(bytes) => Body::from(bytes),
            RequestBody::Boxed(body) => body,
        }
    }
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Incoming(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|read| read.map_err(axum::Error::new)))
            }
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
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

/// Limits of one body.
pub(crate) struct BodyLimits<'a> {
    /// Most bytes.
    pub bytes_max: usize,
    /// Time that every body has. A large one has more ([`time_for`]).
    pub time: Duration,
    /// Shared memory in bytes of all bodies that arrive in more than one piece.
    pub memory: &'a Arc<TenantShares>,
    /// Tenant that the memory is charged to.
    pub tenant: Option<OrganizationId>,
    /// Clock of the time limit.
    pub clock: &'a Clock,
}

/// Reads the next piece of data; `None` at the end.
async fn next(body: &mut RequestBody) -> Result<Option<Bytes>, Problem> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Problem::BodyCut),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Reads the whole body.
pub(crate) async fn collect(body: &mut RequestBody, limits: BodyLimits<'_>) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > limits.bytes_max as u64 {
        return Err(Problem::TooLarge { limit: limits.bytes_max });
    }
    let first = poll!(pin!(next(body)));
    let begun = match first {
        Poll::Ready(piece) => match piece? {
            None => return Ok(Bytes::new()),
            // Usually the first piece is the whole body.
            Some(piece) if body.is_end_stream() && piece.len() <= limits.bytes_max => return Ok(piece),
            Some(piece) => piece,
        },
        Poll::Pending => Bytes::new(),
    };
    Box::pin(rest(begun, body, limits)).await
}

/// Reads the rest of a body and appends it to `begun`.
async fn rest(begun: Bytes, body: &mut RequestBody, limits: BodyLimits<'_>) -> Result<Bytes, Problem> {
    let left = body.size_hint().exact().and_then(|left| usize::try_from(left).ok());
    let capacity_max = left.map_or(limits.bytes_max, |left| limits.bytes_max.min(begun.len().saturating_add(left)));
    let share = limits.memory.share(limits.tenant);
    let mut whole = BodyBuffer { bytes: Vec::new(), capacity_max, limit: limits.bytes_max, share };
    whole.add(&begun)?;
    let since = limits.clock.instant();
    let mut at_once = whole.bytes.len();
    loop {
        if at_once >= BYTES_AT_ONCE {
            at_once = 0;
            yield_now().await;
        }
        let left = time_for(whole.bytes.len(), limits.time).saturating_sub(limits.clock.elapsed(since));
        let piece = limits.clock.timeout(left, next(body)).await;
        match piece.map_err(|_| Problem::BodyLate { time: limits.time })?? {
            Some(piece) if whole.bytes.is_empty() && body.is_end_stream() && piece.len() <= limits.bytes_max => {
                return Ok(piece);
            }
            Some(piece) => {
                whole.add(&piece)?;
                at_once += piece.len();
            }
            None => return Ok(whole.bytes.into()),
        }
    }
}

/// Bytes of a body received so far, and their share of the memory of all bodies.
struct BodyBuffer {
    bytes: Vec<u8>,
    /// Most capacity that it can need, in bytes.
    capacity_max: usize,
    limit: usize,
    share: TenantShare,
}

impl BodyBuffer {
    fn add(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let (needed, before) = (self.bytes.len() + piece.len(), self.bytes.capacity());
        if needed > self.limit {
            return Err(Problem::TooLarge { limit: self.limit });
        }
        if needed > before {
            // Capped at the expected length: the body keeps its whole capacity.
            let capacity = needed.max((2 * before).min(self.capacity_max));
            self.share.grow(capacity - before).map_err(isobar_model::error::Error::from)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Drains a refused body, within limits: closing a connection with unread bytes resets it, and the refusal would be
/// lost.
pub(crate) async fn drain(body: &mut RequestBody, clock: &Clock) {
    let reading = async {
        let mut read = 0;
        while read < DRAIN_BYTES_MAX {
            match next(body).await {
                Ok(Some(piece)) => read += piece.len(),
                Ok(None) | Err(_) => return,
            }
        }
    };
    // The response is the same if draining times out.
    let _ = clock.timeout(DRAIN_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use isobar_hub::UNLIMITED;
    use proptest::prelude::*;

    use super::*;
    use crate::request::transfer::TRANSFER_TIME;

    fn limits(bytes_max: usize, memory: &Arc<TenantShares>) -> BodyLimits<'_> {
        BodyLimits { bytes_max, time: TRANSFER_TIME, memory, tenant: None, clock: &Clock::System }
    }

    async fn collected(mut body: RequestBody, limit: usize) -> Result<Bytes, Problem> {
        let receiving = TenantShares::new(&UNLIMITED.with_total(1 << 30));
        let collected = collect(&mut body, limits(limit, &receiving)).await;
        // No byte of it is charged any more.
        assert_eq!(receiving.held(), 0);
        collected
    }

    fn pieces(pieces: &[&'static str]) -> RequestBody {
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.iter().map(|piece| Ok(Bytes::from(*piece))).collect();
        RequestBody::Boxed(Body::from_stream(stream::iter(pieces)))
    }

    fn whole(text: &'static str) -> RequestBody {
        RequestBody::Boxed(Body::from(text))
    }

    /// Returns a body of `count` pieces of `bytes` bytes, each after `pause` milliseconds.
    fn slow(count: usize, bytes: usize, pause: u64) -> RequestBody {
        let pieces = stream::iter(0..count).then(move |_| async move {
            Clock::System.sleep(Duration::from_millis(pause)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes]))
        });
        RequestBody::Boxed(Body::from_stream(pieces.boxed()))
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(collected(pieces(&["ab", "cd"]), 4).await.unwrap(), "abcd");
        assert_eq!(collected(whole("abcd"), 4).await.unwrap(), "abcd");
        assert_eq!(collected(whole(""), 4).await.unwrap(), "");
    }

    #[tokio::test]
    async fn body_over_the_limit_is_refused_with_or_without_length() {
        for body in [whole("abcde"), pieces(&["ab", "cde"]), pieces(&["abcde"])] {
            assert!(matches!(collected(body, 4).await, Err(Problem::TooLarge { limit: 4 })));
        }
    }

    #[tokio::test]
    async fn body_that_breaks_off_is_an_error() {
        let broken = stream::iter([Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))]);
        assert!(matches!(collected(RequestBody::Boxed(Body::from_stream(broken)), 4).await, Err(Problem::BodyCut)));
    }

    // Holds: c14.bodies
    #[tokio::test(start_paused = true)]
    async fn only_a_body_below_the_rate_is_late() {
        const MIB: usize = 1 << 20;
        for (count, bytes, pause, comes) in [
            // Any body has a minute.
            (59, 1, 1_000, true),
            (1, 10, 59_900, true),
            (61, 1, 1_000, false),
            (2, 1, 31_000, false),
            // A pause of half a minute alone is allowed.
            (2, 1, 29_000, true),
            // A large body may take as long as it needs at 16 KiB a second.
            (300, 17 << 10, 1_000, true),
            (300, 15 << 10, 1_000, false),
        ] {
            let body = collected(slow(count, bytes, pause), 8 * MIB).await;
            match comes {
                true => assert_eq!(body.unwrap().len(), count * bytes),
                false => assert!(matches!(body, Err(Problem::BodyLate { .. })), "{count} {bytes} {pause}"),
            }
        }
    }

    #[tokio::test]
    async fn long_body_yields_while_it_is_read() {
        let pieces = stream::iter(0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 16 << 10])));
        let mut got_in = 0;
        let other = async {
            loop {
                got_in += 1;
                yield_now().await;
            }
        };
        let body = tokio::select! {
            biased;
            body = collected(RequestBody::Boxed(Body::from_stream(pieces)), 1 << 20) => body.unwrap(),
            () = other => unreachable!(),
        };
        assert_eq!(body.len(), 1 << 20);
        assert!(got_in >= 15, "{got_in}");
    }

    #[tokio::test]
    async fn only_bodies_in_pieces_share_the_memory_limit() {
        let receiving = TenantShares::new(&UNLIMITED.with_total(100));
        let collect = async |mut body| collect(&mut body, limits(1_000, &receiving)).await;
        let mut other = receiving.share(None);
        other.grow(60).unwrap();
        assert!(matches!(collect(slow(2, 20, 0)).await, Err(Problem::Refused(_))));
        assert_eq!(collect(slow(2, 3, 0)).await.unwrap().len(), 6);
        assert_eq!(collect(RequestBody::Whole(vec![b'x'; 1_000].into())).await.unwrap().len(), 1_000);
        drop(other);
        assert_eq!(collect(slow(2, 20, 0)).await.unwrap().len(), 40);
        assert_eq!(receiving.held(), 0);
    }

    proptest! {
        #[test]
        fn body_joins_its_pieces_within_its_capacity(
            sizes in prop::collection::vec(0..3_000_usize, 1..20),
            known: bool,
        ) {
            let all: Vec<u8> = (0..sizes.iter().sum()).map(|number| number as u8).collect();
            let receiving = TenantShares::new(&UNLIMITED.with_total(1 << 30));
            let share = receiving.share(None);
            let capacity_max = if known { all.len() } else { 100_000 };
            let mut whole = BodyBuffer { bytes: Vec::new(), capacity_max, limit: 100_000, share };
            let mut rest = &all[..];
            for size in sizes {
                let (piece, behind) = rest.split_at(size);
                prop_assert!(whole.add(piece).is_ok());
                rest = behind;
            }
            let most = if known { all.len() } else { 2 * all.len() };
            prop_assert!(whole.bytes.capacity() <= most);
            prop_assert_eq!(whole.share.amount(), whole.bytes.capacity());
            prop_assert_eq!(whole.bytes, all);
        }
    }
}
