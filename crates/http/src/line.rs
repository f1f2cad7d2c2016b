//! The line to a client, as it is looked at while its answer is made.
//!
//! Who ends its own side after a request still reads (RFC 9293, 3.6): it gets its answer. Nothing tells it apart from one
//! that is gone, until something is written to it. So its call goes on, but nothing is taken from a queue for it any
//! more once it would have to wait; only a line that was reset, or broke, ends the call.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// A connection's socket, shared by what serves it and what looks after it: one task, so that nobody waits for the lock.
#[derive(Clone)]
pub(crate) struct Line(Arc<Mutex<TcpStream>>);

impl Line {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    /// The socket.
    pub fn stream(&self) -> MutexGuard<'_, TcpStream> {
        self.0.lock()
    }

    /// Whether the client has ended its side; an error when the line was reset or broke. It cannot be seen while bytes
    /// wait to be read before the end.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        match ready!(self.stream().poll_peek(cx, &mut ReadBuf::new(&mut byte)))? {
            0 => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    /// The same, to be awaited.
    pub async fn end(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }
}
