//! A connection that waits without end for the next request, but not for the rest of one that has begun, nor for a client
//! that hardly takes its answer.
//!
//! hyper's own header timeout also ends connections that are merely idle; devices keep theirs open for hours. Those that take
//! part of the memory of all do so for a short while: [`crate::pace`] bounds the answer, [`crate::body`] the request's body, and
//! a head is small.
//! A head that cannot be read is refused by hyper itself; here its refusal gets a body ([`crate::unread`]).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use isobar_model::error::Fault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::app::App;
use crate::doors::Seat;
use crate::line::Line;
use crate::pace::SlowPeer;
use crate::unread;

/// Longest time from the first byte of a request's head to its last.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// A socket that gives up on a head that does not end, and on a client that does not take its answer.
pub(crate) struct Patient {
    /// What was read already.
    read: Bytes,
    line: Line,
    seat: Arc<Seat>,
    app: App,
    /// Made only when a head comes in more than one piece.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Made only when an answer does not go out at once.
    slow: Option<SlowPeer>,
    /// Whether the last write went out as a whole: else the next one begins in the middle of an answer.
    whole: bool,
    /// What makes the head that is read unreadable, as far as its beginning shows.
    odd: Option<Fault>,
    /// A refusal on its way: its bytes, and how many of them went out.
    refusal: Option<(Vec<u8>, usize)>,
}

impl Patient {
    /// The socket, of which these bytes were read already.
    pub fn new(line: Line, read: Bytes, seat: Arc<Seat>, app: App) -> Self {
        Self { read, line, seat, app, deadline: None, slow: None, whole: true, odd: None, refusal: None }
    }

    /// Bytes were read: of a head, or of a request that is known.
    fn came(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.seat.bytes_came() {
            Some(false) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(true) => {
                self.deadline = None; // that of an earlier head
                self.odd = unread::odd_part(bytes);
            }
            None => {}
        }
        Ok(())
    }

    /// Writes to the socket, as long as the client takes enough of it.
    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.line.stream()).poll_write(cx, bytes);
        match &written {
            Poll::Ready(Ok(count)) => {
                if let Some(slow) = &mut self.slow {
                    slow.took(*count);
                }
                written
            }
            Poll::Ready(Err(_)) => written,
            Poll::Pending => {
                let slow = self.slow.get_or_insert_with(|| SlowPeer::new(self.app.patience()));
                ready!(slow.poll_waits(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn write_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, gone)) = self.refusal.take().filter(|(bytes, gone)| *gone < bytes.len()) {
            let written = self.write(cx, &bytes[gone..]);
            let count = if let Poll::Ready(Ok(count)) = written { count } else { 0 };
            self.refusal = Some((bytes, gone + count));
            if ready!(written)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match self.read.len().min(buffer.remaining()) {
            0 => self.line.poll_read(cx, buffer),
            count => {
                buffer.put_slice(&self.read.split_to(count));
                Poll::Ready(Ok(()))
            }
        };
        if read.is_ready() {
            if buffer.filled().len() > before {
                self.came(&buffer.filled()[before..])?;
            }
            return read;
        }
        if !self.seat.awaits_head() {
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
        let written = self.write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.whole = *count == bytes.len();
        }
        written
    }

    /// hyper comes here when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut *self.line.stream()).poll_flush(cx))?;
        if let Some(slow) = &mut self.slow {
            slow.has_all();
        }
        self.seat.sent(|| self.app.now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.line.stream()).poll_shutdown(cx)
    }
}
