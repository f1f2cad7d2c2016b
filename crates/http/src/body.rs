//! Reading a body: bounded in size, in time and in what all of them take together, and without copying when it comes in one
//! piece.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::poll;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout_at};

use crate::frames::Inbound;
use crate::pace::time_for;
use crate::problem::Problem;
use crate::shares::{Holder, Share, Shares};

/// Most bytes of a refused body that are read and thrown away, so that the client hears the refusal.
const DRAIN_BYTES_MAX: usize = 8 << 20;
/// Longest time for that.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// What a body has to keep to.
pub(crate) struct Terms<'a> {
    /// Most bytes of it.
    pub limit: usize,
    /// The time that every body has; a large one has longer ([`crate::pace`]).
    pub time: Duration,
    /// What all bodies take together that come in more than one piece.
    pub receiving: &'a Arc<Shares>,
    /// Whose part of it this body takes.
    pub holder: Holder,
}

/// The next piece of data; none at the end.
async fn next(body: &mut Inbound) -> Result<Option<Bytes>, Problem> {
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

/// The whole body.
pub(crate) async fn collect(body: &mut Inbound, terms: Terms<'_>) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > terms.limit as u64 {
        return Err(Problem::TooLarge { limit: terms.limit });
    }
    let first = poll!(pin!(next(body)));
    let begun = match first {
        Poll::Ready(piece) => match piece? {
            None => return Ok(Bytes::new()),
            // Mostly all of it is here already.
            Some(piece) if body.is_end_stream() && piece.len() <= terms.limit => return Ok(piece),
            Some(piece) => piece,
        },
        Poll::Pending => Bytes::new(),
    };
    Box::pin(rest(begun, body, terms)).await
}

/// How a body has begun and what comes after it.
async fn rest(begun: Bytes, body: &mut Inbound, terms: Terms<'_>) -> Result<Bytes, Problem> {
    let left = body.size_hint().exact().and_then(|left| usize::try_from(left).ok());
    let room = left.map_or(terms.limit, |left| terms.limit.min(begun.len().saturating_add(left)));
    let share = terms.receiving.share(terms.holder);
    let mut whole = Whole { bytes: Vec::new(), room, limit: terms.limit, share };
    whole.add(&begun)?;
    let since = Instant::now();
    loop {
        let until = since + time_for(whole.bytes.len(), terms.time);
        match timeout_at(until, next(body)).await.map_err(|_| Problem::BodyLate { time: terms.time })?? {
            Some(piece) if whole.bytes.is_empty() && body.is_end_stream() && piece.len() <= terms.limit => {
                return Ok(piece);
            }
            Some(piece) => whole.add(&piece)?,
            None => return Ok(whole.bytes.into()),
        }
    }
}

/// What has come of a body.
struct Whole {
    bytes: Vec<u8>,
    /// Most room that it will need.
    room: usize,
    limit: usize,
    share: Share,
}

impl Whole {
    fn add(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let (needed, before) = (self.bytes.len() + piece.len(), self.bytes.capacity());
        if needed > self.limit {
            return Err(Problem::TooLarge { limit: self.limit });
        }
        if needed > before {
            // No more than will come: what is kept of a body is kept with its room.
            let room = needed.max((2 * before).min(self.room));
            self.share.take(room - before)?;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Reads what is left of a refused body, within bounds: a connection that is closed on unread bytes is reset, and
/// the refusal would be lost on its way.
pub(crate) async fn drain(body: &mut Inbound) {
    let reading = async {
        let mut read = 0;
        while read < DRAIN_BYTES_MAX {
            match next(body).await {
                Ok(Some(piece)) => read += piece.len(),
                Ok(None) | Err(_) => return,
            }
        }
    };
    // Whether it was read in time makes no difference to the answer.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::{StreamExt as _, stream};
    use proptest::prelude::*;
    use tokio::time::sleep;

    use super::*;
    use crate::pace::TIME;

    fn terms(limit: usize, receiving: &Arc<Shares>) -> Terms<'_> {
        Terms { limit, time: TIME, receiving, holder: Holder::NOBODY }
    }

    async fn collected(mut body: Inbound, limit: usize) -> Result<Bytes, Problem> {
        let receiving = Shares::new(1 << 30);
        let collected = collect(&mut body, terms(limit, &receiving)).await;
        // Nothing of it is counted any more.
        assert!(receiving.is_untouched());
        collected
    }

    fn pieces(pieces: &[&'static str]) -> Inbound {
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.iter().map(|piece| Ok(Bytes::from(*piece))).collect();
        Inbound::Boxed(Body::from_stream(stream::iter(pieces)))
    }

    fn whole(text: &'static str) -> Inbound {
        Inbound::Boxed(Body::from(text))
    }

    /// So many pieces of so many bytes, each after so many milliseconds.
    fn slow(count: usize, bytes: usize, pause: u64) -> Inbound {
        let pieces = stream::iter(0..count).then(move |_| async move {
            sleep(Duration::from_millis(pause)).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes]))
        });
        Inbound::Boxed(Body::from_stream(pieces.boxed()))
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(collected(pieces(&["ab", "cd"]), 4).await.unwrap(), "abcd");
        assert_eq!(collected(whole("abcd"), 4).await.unwrap(), "abcd");
        assert_eq!(collected(whole(""), 4).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_known_length_or_not() {
        for body in [whole("abcde"), pieces(&["ab", "cde"]), pieces(&["abcde"])] {
            assert!(matches!(collected(body, 4).await, Err(Problem::TooLarge { limit: 4 })));
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_body() {
        let broken = stream::iter([Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))]);
        assert!(matches!(collected(Inbound::Boxed(Body::from_stream(broken)), 4).await, Err(Problem::BodyCut)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_late_and_one_that_keeps_up_is_not() {
        const MIB: usize = 1 << 20;
        for (count, bytes, pause, comes) in [
            // Whatever it is like, it has its minute.
            (59, 1, 1_000, true),
            (1, 10, 59_900, true),
            (61, 1, 1_000, false),
            (2, 1, 31_000, false),
            // A pause of half a minute is no fault by itself.
            (2, 1, 29_000, true),
            // A large one may take as long as it needs at 16 KiB a second.
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
    async fn bodies_in_pieces_have_a_common_bound_and_whole_ones_are_not_counted() {
        let receiving = Shares::new(100);
        let collect = async |mut body| collect(&mut body, terms(1_000, &receiving)).await;
        let mut other = receiving.share(Holder::NOBODY);
        other.take(60).unwrap();
        assert!(matches!(collect(slow(2, 20, 0)).await, Err(Problem::Refused(_))));
        assert_eq!(collect(slow(2, 3, 0)).await.unwrap().len(), 6);
        assert_eq!(collect(Inbound::Whole(vec![b'x'; 1_000].into())).await.unwrap().len(), 1_000);
        drop(other);
        assert_eq!(collect(slow(2, 20, 0)).await.unwrap().len(), 40);
        assert!(receiving.is_untouched());
    }

    proptest! {
        #[test]
        fn a_body_is_what_its_pieces_are_and_takes_no_more_room_than_it_may(
            sizes in prop::collection::vec(0..3_000_usize, 1..20),
            known: bool,
        ) {
            let all: Vec<u8> = (0..sizes.iter().sum()).map(|number| number as u8).collect();
            let receiving = Shares::new(1 << 30);
            let share = receiving.share(Holder::NOBODY);
            let room = if known { all.len() } else { 100_000 };
            let mut whole = Whole { bytes: Vec::new(), room, limit: 100_000, share };
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
