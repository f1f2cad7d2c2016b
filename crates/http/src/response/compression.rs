//! Compression of responses, by br or gzip as the client asks (RFC 9110, 12.5.3).
//!
//! A complete, small body is compressed at once. Any other is compressed piece by piece as the connection takes it,
//! yielding in between, with the compressor's memory charged to the tenant like the response: without memory for it,
//! the response is sent uncompressed.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY};
use axum::http::{HeaderMap, HeaderValue};
use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Body as _, Frame};
use isobar_hub::TenantShare;

use super::{Coding, Response, ResponseBody};

/// Smallest body that is compressed, in bytes.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;
/// Bytes that are compressed before the task yields: about half a millisecond.
const COMPRESSION_TURN_BYTES: usize = 64 << 10;
/// Effort of br, of 11, and the bits of its window: output is a twentieth larger than with twice the memory.
const BROTLI_QUALITY: u32 = 3;
const BROTLI_WINDOW_BITS: u32 = 18;
/// Effort of gzip, of 9.
const GZIP_LEVEL: u32 = 1;
/// Memory of a compressor, in bytes.
const BROTLI_BYTES: usize = 1_200 << 10;
const GZIP_BYTES: usize = 360 << 10;
/// Bytes that br buffers before it passes them on.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// Returns the memory of a compressor, in bytes.
const fn compressor_bytes(coding: Coding) -> usize {
    match coding {
        Coding::Br => BROTLI_BYTES,
        Coding::Gzip => GZIP_BYTES,
    }
}

/// Compresses a response as the client asks; `memory` must be an empty share.
pub(crate) fn compressed(mut response: Response, coding: Option<Coding>, mut memory: TenantShare) -> Response {
    let is_small = matches!(response.body(), ResponseBody::Whole(bytes) if bytes.len() < COMPRESSED_BYTES_MIN);
    if is_small || !is_compressible(response.headers()) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = coding else { return response };
    match std::mem::take(response.body_mut()) {
        ResponseBody::Whole(bytes) => match Compressor::new(coding).compress_all(&bytes) {
            Ok(smaller) if smaller.len() < bytes.len() => *response.body_mut() = ResponseBody::Whole(smaller.into()),
            _ => {
                *response.body_mut() = ResponseBody::Whole(bytes);
                return response;
            }
        },
        body if memory.resize(compressor_bytes(coding)).is_ok() => {
            let compressor = Some(Compressor::new(coding));
            let body = CompressedBody { body, compressor, has_unsent: false, is_resting: false, _memory: memory };
            *response.body_mut() = Body::new(body).into();
        }
        body => {
            *response.body_mut() = body;
            return response;
        }
    }
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    tag_coded(response.headers_mut(), coding);
    response
}

/// Returns true if a body of its type is worth compressing: images already are, and events of a stream must not be
/// delayed.
fn is_compressible(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default();
    let is_text = media_type.starts_with("text/") && media_type != "text/event-stream";
    !headers.contains_key(CONTENT_ENCODING) && (is_text || media_type.ends_with("json"))
}

/// Gives a compressed response an entity tag of its own (RFC 9110, 8.8.3.3), which [`super::EntityTags`] matches with
/// the plain one.
fn tag_coded(headers: &mut HeaderMap, coding: Coding) {
    let plain = headers.get(ETAG).and_then(|tag| tag.to_str().ok()?.strip_suffix('"'));
    if let Some(Ok(tag)) = plain.map(|plain| HeaderValue::try_from(format!("{plain}-{}\"", coding.name()))) {
        headers.insert(ETAG, tag);
    }
}

/// A compressor of the bytes written into it.
enum Compressor {
    Br(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Compressor {
    fn new(coding: Coding) -> Self {
        match coding {
            Coding::Br => Self::Br(Box::new(CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER_BYTES,
                BROTLI_QUALITY,
                BROTLI_WINDOW_BITS,
            ))),
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Br(writer) => writer,
            Self::Gzip(writer) => writer,
        }
    }

    /// Takes out the compressed bytes so far.
    fn take(&mut self) -> Bytes {
        let out = match self {
            Self::Br(writer) => writer.get_mut(),
            Self::Gzip(writer) => writer.get_mut(),
        };
        std::mem::take(out).into()
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Br(writer) => Ok(writer.into_inner()),
            Self::Gzip(writer) => writer.finish(),
        }
    }

    fn compress_all(mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.writer().write_all(bytes)?;
        self.finish()
    }
}

/// A body that is compressed while it is sent.
struct CompressedBody {
    body: ResponseBody,
    /// `None` when all is sent.
    compressor: Option<Compressor>,
    /// True if the compressor has input that it has not passed on.
    has_unsent: bool,
    /// True if the task must yield before it continues.
    is_resting: bool,
    _memory: TenantShare,
}

impl CompressedBody {
    /// Compresses until there is something to send; `None` when all is sent.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, axum::Error>> {
        let mut read = 0;
        loop {
            let Some(compressor) = &mut self.compressor else { return Poll::Ready(Ok(None)) };
            match Pin::new(&mut self.body).poll_frame(cx)? {
                Poll::Ready(Some(frame)) => {
                    // Our bodies have no trailers.
                    let Ok(piece) = frame.into_data() else { continue };
                    compressor.writer().write_all(&piece).map_err(axum::Error::new)?;
                    self.has_unsent = true;
                    read += piece.len();
                }
                Poll::Ready(None) => {
                    let last = self.compressor.take().map(Compressor::finish).transpose().map_err(axum::Error::new)?;
                    return Poll::Ready(Ok(last.map(Bytes::from)));
                }
                Poll::Pending if !std::mem::take(&mut self.has_unsent) => return Poll::Pending,
                Poll::Pending => {
                    // The source is pending: flush, so that available data is not delayed.
                    compressor.writer().flush().map_err(axum::Error::new)?;
                    return Poll::Ready(Ok(Some(compressor.take())));
                }
            }
            if read >= COMPRESSION_TURN_BYTES {
                let piece = compressor.take();
                if piece.is_empty() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.is_resting = true;
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }
}

impl hyper::body::Body for CompressedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.is_resting) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.poll_piece(cx).map(|piece| piece.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.compressor.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::Arc;

    use axum::http::StatusCode;
    use futures::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;
    use isobar_hub::{TenantShares, UNLIMITED};
    use isobar_model::error::Error;

    use super::*;
    use crate::response::{self, JSON};

    fn shares() -> Arc<TenantShares> {
        TenantShares::new(&UNLIMITED.with_total(100 << 20))
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..).flat_map(|number: u32| format!("{{\"n\":{number}}},").into_bytes()).take(bytes).collect()
    }

    fn plain(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Br => brotli::Decompressor::new(bytes, 4_096).read_to_end(&mut out).unwrap(),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
        };
        out
    }

    async fn sent(response: Response) -> Vec<u8> {
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    fn pieces(all: Vec<Bytes>) -> Response {
        let all = all.into_iter().map(Ok::<_, Error>);
        response::of_type(StatusCode::OK, JSON, Bytes::new()).map(|_| Body::from_stream(stream::iter(all)).into())
    }

    // Holds: c18.compression
    #[tokio::test]
    async fn compressed_body_unpacks_to_the_plain_one() {
        for coding in Coding::ALL {
            for size in [COMPRESSED_BYTES_MIN, 10_000, 500_000] {
                let (shares, text) = (shares(), text(size));
                let large = ResponseBody::Whole(text.clone().into()).charged(shares.share(None)).unwrap();
                let whole = response::of_type(StatusCode::OK, JSON, Bytes::new()).map(|_| large);
                let some = pieces(text.chunks(7_000).map(Bytes::copy_from_slice).collect());
                for response in [whole, some] {
                    let response = compressed(response, Some(coding), shares.share(None));
                    assert_eq!(response.headers()[CONTENT_ENCODING], coding.name());
                    assert_eq!(response.headers()[VARY], "accept-encoding");
                    let sent = sent(response).await;
                    assert!(sent.len() < size / 2, "{} of {size}", sent.len());
                    assert!(plain(coding, &sent) == text, "{coding:?} {size}");
                }
                assert_eq!(shares.held(), 0);
            }
        }
    }

    #[tokio::test]
    async fn small_body_picture_and_stream_stay_plain() {
        for (kind, size) in [
            ("application/json", COMPRESSED_BYTES_MIN - 1),
            ("image/png", 9_000),
            ("text/event-stream", 9_000),
            ("application/octet-stream", 9_000),
        ] {
            let plain = response::of_type(StatusCode::OK, HeaderValue::from_static(kind), text(size));
            let response = compressed(plain, Some(Coding::Br), shares().share(None));
            assert!(!response.headers().contains_key(CONTENT_ENCODING), "{kind}");
            assert!(!response.headers().contains_key(VARY), "{kind}");
            assert!(sent(response).await == text(size));
        }
        // An uncompressed response still varies by the header.
        let response = compressed(response::raw_json(StatusCode::OK, text(9_000)), None, shares().share(None));
        assert!(!response.headers().contains_key(CONTENT_ENCODING));
        assert_eq!(response.headers()[VARY], "accept-encoding");
        // A body that does not shrink is sent plain.
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(2_000)
        .collect();
        let response =
            compressed(response::raw_json(StatusCode::OK, noise.clone()), Some(Coding::Br), shares().share(None));
        assert!(!response.headers().contains_key(CONTENT_ENCODING));
        assert!(sent(response).await == noise);
    }

    #[tokio::test]
    async fn compressor_without_room_leaves_the_body_plain() {
        let full = TenantShares::new(&UNLIMITED.with_total(1_000));
        let response = compressed(pieces(vec![text(9_000).into()]), Some(Coding::Gzip), full.share(None));
        assert!(!response.headers().contains_key(CONTENT_ENCODING));
        assert!(sent(response).await == text(9_000));
        let (shares, response) = (shares(), pieces(vec![text(9_000).into()]));
        let response = compressed(response, Some(Coding::Gzip), shares.share(None));
        assert_eq!(shares.held(), GZIP_BYTES);
        drop(response);
        assert_eq!(shares.held(), 0);
    }

    #[tokio::test]
    async fn compressed_piece_is_sent_before_the_next_is_ready() {
        for coding in Coding::ALL {
            let first = stream::iter([Ok::<_, Error>(Bytes::from(text(2_000)))]);
            let endless = Body::from_stream(first.chain(stream::pending()));
            let response = response::of_type(StatusCode::OK, JSON, Bytes::new()).map(|_| endless.into());
            let mut body = compressed(response, Some(coding), shares().share(None)).into_body();
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let mut out = vec![0; 2_000];
            match coding {
                Coding::Br => brotli::Decompressor::new(&piece[..], 4_096).read_exact(&mut out).unwrap(),
                Coding::Gzip => flate2::read::GzDecoder::new(&piece[..]).read_exact(&mut out).unwrap(),
            }
            assert!(out == text(2_000), "{coding:?}");
        }
    }

    #[tokio::test]
    async fn compressed_body_that_breaks_off_is_an_error() {
        let parts = [Ok(Bytes::from(text(2_000))), Err(Error::Busy)];
        let broken = Body::from_stream(stream::iter(parts));
        let response = response::of_type(StatusCode::OK, JSON, Bytes::new()).map(|_| broken.into());
        let response = compressed(response, Some(Coding::Br), shares().share(None));
        assert!(response.into_body().collect().await.is_err());
    }

    #[test]
    fn compressed_response_has_a_tag_of_its_own() {
        let tagged = response::tagged(response::raw_json(StatusCode::OK, text(9_000)), "12");
        let response = compressed(tagged, Some(Coding::Gzip), shares().share(None));
        assert_eq!(response.headers()[ETAG], "\"12-gzip\"");
    }
}
