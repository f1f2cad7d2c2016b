//! Writes lists in their envelope, and answers of many parts, piece by piece: each item is made, written and dropped
//! before the next. A long answer is sent as it is written, at its reader's pace, and yields between pieces; a short
//! one is sent as a whole, with its length.

use std::pin::Pin;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use isobar_model::error::Error;
use isobar_model::page::Meta;

use super::{Answer, Response, raw_json};

/// Bytes of a piece; the item that exceeds it still belongs to it.
const LIST_PIECE_BYTES: usize = 64 << 10;

/// An answer that is being written.
struct WrittenParts<S, W> {
    parts: Pin<Box<S>>,
    write: W,
    is_done: bool,
}

impl<T, S, W> WrittenParts<S, W>
where
    S: Stream<Item = Result<T, Error>>,
    W: FnMut(T, &mut Vec<u8>) -> Result<(), Error>,
{
    /// Writes until the piece is full or nothing is left.
    async fn fill(&mut self, piece: &mut Vec<u8>) -> Result<(), Error> {
        while piece.len() < LIST_PIECE_BYTES {
            let Some(part) = self.parts.next().await else {
                self.is_done = true;
                return Ok(());
            };
            (self.write)(part?, piece)?;
        }
        Ok(())
    }
}

/// Answers 200 with the pagination envelope around these items, by [`within`].
pub(crate) async fn answer<T, S, W>(meta: Meta, items: S, write: W) -> Answer
where
    T: Send + 'static,
    S: Stream<Item = Result<T, Error>> + Send + 'static,
    W: FnMut(T, &mut Vec<u8>) -> Result<(), Error> + Send + 'static,
{
    within(begin(&meta)?, items, write, b"]}".to_vec()).await
}

/// Writes the pagination envelope up to its items.
pub(super) fn begin(meta: &Meta) -> Result<Vec<u8>, Error> {
    let mut begin = b"{\"meta\":".to_vec();
    serde_json::to_writer(&mut begin, meta).map_err(Error::internal)?;
    begin.extend_from_slice(b",\"data\":[");
    Ok(begin)
}

/// Answers 200 with these items, comma-separated, between `begin` and `end`, by [`written`].
pub(super) async fn within<T, S, W>(begin: Vec<u8>, items: S, mut write: W, mut end: Vec<u8>) -> Answer
where
    T: Send + 'static,
    S: Stream<Item = Result<T, Error>> + Send + 'static,
    W: FnMut(T, &mut Vec<u8>) -> Result<(), Error> + Send + 'static,
{
    let mut is_first = true;
    // No comma after the last item.
    let write = move |item: Option<T>, out: &mut Vec<u8>| {
        let Some(item) = item else {
            out.append(&mut end);
            return Ok(());
        };
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        write(item, out)
    };
    written(begin, items.map_ok(Some).chain(stream::once(std::future::ready(Ok(None)))), write).await
}

/// Answers 200 with these parts of JSON behind `begin`. A failure within the first piece becomes a refusal; a later one
/// breaks the connection, so that nobody mistakes a part for the whole.
pub(super) async fn written<T, S, W>(begin: Vec<u8>, parts: S, write: W) -> Answer
where
    T: Send + 'static,
    S: Stream<Item = Result<T, Error>> + Send + 'static,
    W: FnMut(T, &mut Vec<u8>) -> Result<(), Error> + Send + 'static,
{
    let mut piece = begin;
    let mut parts = WrittenParts { parts: Box::pin(parts), write, is_done: false };
    parts.fill(&mut piece).await?;
    if parts.is_done {
        return Ok(raw_json(StatusCode::OK, piece));
    }
    let rest = stream::try_unfold(parts, |mut parts| async move {
        if parts.is_done {
            return Ok(None);
        }
        tokio::task::yield_now().await;
        let mut piece = Vec::with_capacity(LIST_PIECE_BYTES + LIST_PIECE_BYTES / 8);
        if let Err(error) = parts.fill(&mut piece).await {
            tracing::warn!(%error, "cannot finish a response");
            return Err(error);
        }
        Ok(Some((Bytes::from(piece), parts)))
    });
    let pieces = stream::once(std::future::ready(Ok::<_, Error>(Bytes::from(piece)))).chain(rest);
    let mut response: Response = raw_json(StatusCode::OK, Bytes::new());
    *response.body_mut() = Body::from_stream(pieces).into();
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;
    use isobar_model::page::{Page, PageRequest};

    use super::*;

    fn meta(total: u64) -> Meta {
        Page::<()>::new(Vec::new(), total, PageRequest::new(1, 10_000)).meta()
    }

    fn numbers(count: u64) -> impl Stream<Item = Result<u64, Error>> {
        stream::iter((0..count).map(Ok))
    }

    fn padded(number: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(format!("{number:>1000}").as_bytes());
        Ok(())
    }

    #[tokio::test]
    async fn short_list_has_a_length_and_a_long_one_has_pieces() {
        for (count, is_whole) in [(0, true), (1, true), (50, true), (10_000, false)] {
            let body = answer(meta(count), numbers(count), padded).await.unwrap().into_body();
            assert_eq!(body.size_hint().exact().is_some(), is_whole, "{count}");
            let body: serde_json::Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(body["meta"]["totalDocs"], count);
            let data: Vec<u64> = body["data"].as_array().unwrap().iter().map(|item| item.as_u64().unwrap()).collect();
            assert_eq!(data, (0..count).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn long_list_is_made_while_it_is_read() {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = {
            let made = Arc::clone(&made);
            numbers(10_000).inspect(move |_| {
                made.fetch_add(1, Ordering::Relaxed);
            })
        };
        let mut body = answer(meta(10_000), counted, padded).await.unwrap().into_body();
        for piece in 1..=3 {
            let read = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(read.len() < 2 * LIST_PIECE_BYTES);
            assert!(made.load(Ordering::Relaxed) <= piece * 70, "items of pieces that nobody has asked for");
        }
    }

    #[tokio::test]
    async fn failing_list_is_refused_or_cut_but_never_completed() {
        let broken = |after| numbers(after).chain(stream::once(async { Err(Error::Busy) }));
        assert!(answer(meta(2), broken(1), padded).await.is_err());
        let body = answer(meta(2), broken(5_000), padded).await.unwrap().into_body();
        assert!(body.collect().await.is_err());
    }
}
