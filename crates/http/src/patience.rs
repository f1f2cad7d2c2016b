//! A connection that waits without end for the next request, but not for the rest of one that has begun.
//!
//! hyper's own header timeout also ends connections that are merely idle; devices keep theirs open for hours.
//! A head that cannot be read is refused by hyper itself; here its refusal gets a body ([`crate::unread`]).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use isobar_model::error::Fault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::line::Line;
use crate::unread;

/// Longest time from the first byte of a request's head to its last.
const HEAD_TIME: Duration = Duration::from_secs(10);

const IDLE: u8 = 0;
const HEAD_BEGUN: u8 = 1;
const ANSWERING: u8 = 2;

/// What a connection is doing, shared by its socket and its service.
#[derive(Clone, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A request's head is complete.
    pub fn answering(&self) {
        self.0.store(ANSWERING, Ordering::Relaxed);
    }

    /// Its answer is made.
    pub fn answered(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }

    /// Whether a head begins with them.
    fn bytes_came(&self) -> bool {
        self.0.compare_exchange(IDLE, HEAD_BEGUN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn awaits_head(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HEAD_BEGUN
    }
}

/// A socket that gives up on a head that does not end.
pub(crate) struct Patient {
    /// What was read already.
    read: Bytes,
    line: Line,
    phase: Phase,
    /// Made only when a head comes in more than one piece.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether the last write went out as a whole: else the next one begins in the middle of an answer.
    whole: bool,
    /// What makes the head that is read unreadable, as far as its beginning shows.
    odd: Option<Fault>,
    /// A refusal on its way: its bytes, and how many of them went out.
    refusal: Option<(Vec<u8>, usize)>,
}

impl Patient {
    /// The socket, of which these bytes were read already.
    pub fn new(line: Line, read: Bytes, phase: Phase) -> Self {
        Self { read, line, phase, deadline: None, whole: true, odd: None, refusal: None }
    }
}

impl Patient {
    fn write_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, gone)) = &mut self.refusal {
            if *gone == bytes.len() {
                self.refusal = None;
                break;
            }
            match ready!(Pin::new(&mut *self.line.stream()).poll_write(cx, &bytes[*gone..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *gone += count,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match self.read.len().min(buffer.remaining()) {
            0 => Pin::new(&mut *self.line.stream()).poll_read(cx, buffer),
            count => {
                buffer.put_slice(&self.read.split_to(count));
                Poll::Ready(Ok(()))
            }
        };
        if read.is_ready() {
            if buffer.filled().len() > before && self.phase.bytes_came() {
                self.deadline = None; // that of an earlier head
                self.odd = unread::odd_part(&buffer.filled()[before..]);
            }
            return read;
        }
        if !self.phase.awaits_head() {
            self.deadline = None;
            return Poll::Pending;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(HEAD_TIME)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A refusal of ours is never without a body: what looks like one is hyper's.
        if self.refusal.is_none() && self.whole {
            self.refusal = unread::with_body(bytes, self.odd.as_ref()).map(|refusal| (refusal, 0));
        }
        if self.refusal.is_some() {
            ready!(self.write_refusal(cx))?;
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut *self.line.stream()).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.whole = *count == bytes.len();
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.line.stream()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.line.stream().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.line.stream()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.line.stream()).poll_shutdown(cx)
    }
}
