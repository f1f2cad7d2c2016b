//! Reading a body: bounded in size, in time, and without copying when it comes in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::poll;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::frames::Inbound;
use crate::problem::Problem;

/// Longest wait for the next piece of a body.
const STALL: Duration = Duration::from_secs(30);
/// Most bytes of a refused body that are read and thrown away, so that the client hears the refusal.
const DRAIN_BYTES_MAX: usize = 8 << 20;
/// Longest time for that.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The next piece of data; none at the end.
async fn next(body: &mut Inbound) -> Result<Option<Bytes>, Problem> {
    loop {
        let mut frame = std::pin::pin!(body.frame());
        // Mostly the piece is here already: then no timer is needed.
        let frame = match poll!(&mut frame) {
            std::task::Poll::Ready(frame) => frame,
            std::task::Poll::Pending => {
                Box::pin(tokio::time::timeout(STALL, frame)).await.map_err(|_| Problem::BodyCut)?
            }
        };
        match frame {
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

/// The whole body, at most `limit` bytes.
pub(crate) async fn collect(body: &mut Inbound, limit: usize) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Problem::TooLarge { limit });
    }
    let Some(first) = next(body).await? else { return Ok(Bytes::new()) };
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    Box::pin(rest(first, body, limit)).await
}

/// The first piece and what comes after it.
async fn rest(first: Bytes, body: &mut Inbound, limit: usize) -> Result<Bytes, Problem> {
    let mut whole = BytesMut::from(first);
    while whole.len() <= limit {
        match next(body).await? {
            Some(piece) => whole.extend_from_slice(&piece),
            None => return Ok(whole.freeze()),
        }
    }
    Err(Problem::TooLarge { limit })
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

    use super::*;

    fn pieces(pieces: &[&'static str]) -> Inbound {
        let pieces: Vec<Result<Bytes, std::io::Error>> = pieces.iter().map(|piece| Ok(Bytes::from(*piece))).collect();
        Inbound::Boxed(Body::from_stream(futures::stream::iter(pieces)))
    }

    fn whole(text: &'static str) -> Inbound {
        Inbound::Boxed(Body::from(text))
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(collect(&mut pieces(&["ab", "cd"]), 4).await.unwrap(), "abcd");
        assert_eq!(collect(&mut whole("abcd"), 4).await.unwrap(), "abcd");
        assert_eq!(collect(&mut whole(""), 4).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_known_length_or_not() {
        for mut body in [whole("abcde"), pieces(&["ab", "cde"]), pieces(&["abcde"])] {
            assert!(matches!(collect(&mut body, 4).await, Err(Problem::TooLarge { limit: 4 })));
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_body() {
        let broken = futures::stream::iter([Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))]);
        assert!(matches!(collect(&mut Inbound::Boxed(Body::from_stream(broken)), 4).await, Err(Problem::BodyCut)));
    }
}
