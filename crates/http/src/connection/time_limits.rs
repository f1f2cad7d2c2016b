//! Time limits of a connection that hyper serves: it may wait without limit for the next request, but not for the rest
//! of a head that has begun, nor for a client that barely reads its response.
//!
//! hyper's own header timeout also ends idle connections, which devices keep open for hours. A head is small
//! ([`super::http1`]); request bodies have limits in [`crate::request`].

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use isobar_model::error::Fault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head_lines::HeadLines;
use super::leaving::Leaving;
use super::slots::Slot;
use super::slow_peer::SlowPeer;
use super::unreadable;
use crate::app::App;
use crate::request::ClientSocket;

/// Longest time from the first to the last byte of a request's head.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Socket that fails when a head or the reading of a response exceeds its time limit.
pub(super) struct LimitedSocket {
    /// Bytes that were read before hyper took over.
    read: Bytes,
    socket: ClientSocket,
    slot: Arc<Slot>,
    leaving: Leaving,
    app: App,
    /// Result of the client's end of the connection, and the wait until it may be closed here.
    ended: Option<(io::Result<()>, BoxFuture<'static, ()>)>,
    /// Set only when a head comes in more than one piece.
    head_deadline: Option<BoxFuture<'static, ()>>,
    /// Fault that makes the current head unreadable, as far as its beginning shows.
    odd: Option<Fault>,
    /// Line ends of the current head.
    head_lines: HeadLines,
    /// Set only when a response is not sent at once.
    slow: Option<SlowPeer>,
    /// True if hyper has refused a head and its response was withheld.
    has_refused: bool,
}

impl LimitedSocket {
    /// Wraps the socket; `read` holds bytes that were already read.
    pub fn new(socket: ClientSocket, read: Bytes, slot: Arc<Slot>, leaving: Leaving, app: App) -> Self {
        Self {
            read,
            socket,
            slot,
            leaving,
            app,
            ended: None,
            head_deadline: None,
            odd: None,
            head_lines: HeadLines::new(),
            slow: None,
            has_refused: false,
        }
    }

    /// Sends the refusal that replaces hyper's and ends the connection. Returns false if hyper refused nothing.
    pub async fn refuse(mut self, error: &hyper::Error) -> io::Result<bool> {
        if !self.has_refused {
            return Ok(false);
        }
        let id = self.app.new_request_id();
        tracing::debug!(request_id = %id, %error, "cannot read the head of a request");
        let refusal = unreadable::refusal(id, error.is_parse_too_large(), self.odd.take(), self.app.now());
        let mut rest = &refusal[..];
        while !rest.is_empty() {
            match poll_fn(|cx| self.write(cx, rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
        poll_fn(|cx| Pin::new(&mut *self.socket.stream()).poll_shutdown(cx)).await?;
        Ok(true)
    }

    /// Notes bytes that were read: part of a head, or of a request whose head is known.
    fn came(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match self.slot.bytes_came() {
            Some(false) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(true) => {
                self.head_deadline = None; // that of an earlier head
                self.odd = unreadable::odd_part(bytes);
                self.head_lines = HeadLines::new();
            }
            None => {}
        }
        // Not the head of a request that came in one read with the end of the one before: proxies send none.
        if self.slot.awaits_head() {
            self.head_lines.spoil_bare_lf(bytes);
        }
        Ok(())
    }

    /// Writes to the socket, as long as the client reads fast enough.
    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.socket.poll_write(cx, bytes);
        match &written {
            Poll::Ready(Ok(count)) => {
                if let Some(slow) = &mut self.slow {
                    slow.took(*count);
                }
                written
            }
            Poll::Ready(Err(_)) => written,
            Poll::Pending => self.is_late(cx),
        }
    }

    /// Returns an error when the client has read too slowly.
    fn is_late<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let app = &self.app;
        let slow = self.slow.get_or_insert_with(|| SlowPeer::new(app.settings().transfer_time, app.clock().clone()));
        ready!(slow.poll_waits(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some((_, turn)) = &mut self.ended {
            ready!(turn.as_mut().poll(cx));
            return Poll::Ready(self.ended.take().map_or(Ok(()), |(how, _)| how));
        }
        let before = buffer.filled().len();
        let read = match self.read.len().min(buffer.remaining()) {
            0 => self.socket.poll_read(cx, buffer),
            count => {
                buffer.put_slice(&self.read.split_to(count));
                Poll::Ready(Ok(()))
            }
        };
        if let Poll::Ready(how) = read {
            if buffer.filled().len() > before {
                self.came(&mut buffer.filled_mut()[before..])?;
            } else if buffer.remaining() > 0 {
                self.ended = Some((how, Box::pin(self.leaving.clone().turn())));
                return self.poll_read(cx, buffer);
            }
            return Poll::Ready(how);
        }
        if !self.slot.awaits_head() {
            self.head_deadline = None;
            return Poll::Pending;
        }
        let Self { head_deadline, app, .. } = &mut *self;
        let deadline = head_deadline.get_or_insert_with(|| {
            let clock = app.clock().clone();
            Box::pin(async move { clock.sleep(HEAD_TIME).await })
        });
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for LimitedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // While no request is being answered and no response is half written, hyper writes only the refusal of a head.
        if self.socket.is_between_writes() && !self.slot.is_answering() {
            self.has_refused = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        self.write(cx, bytes)
    }

    /// Flushes the response; hyper calls this when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.socket.stream()).poll_flush(cx);
        // TLS may still hold data.
        if flushed.is_pending() {
            return self.is_late(cx);
        }
        ready!(flushed)?;
        if let Some(slow) = &mut self.slow {
            slow.has_all();
        }
        self.slot.all_sent(|| self.app.now());
        Poll::Ready(Ok(()))
    }

    /// Shuts the connection down, except after a refused head: then it stays open until the replacement is sent.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_refused {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.socket.stream()).poll_shutdown(cx)
    }
}
