//! The line to a client, as it is looked at while its answer is made.
//!
//! Who ends its own side after a request still reads (RFC 9293, 3.6): it gets its answer. Nothing tells it apart from one
//! that is gone, until something is written to it. So its call goes on, but nothing is taken from a queue for it any
//! more once it would have to wait; only a line that was reset, or broke, ends the call.
//!
//! The end stands behind whatever came before it. Who waits for the end reads that, and keeps it for whoever reads next.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes that are kept of what comes behind a request whose answer is waited for.
const AHEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes that are read of it at a time: mostly there are none, or a line break too many.
const PIECE_BYTES: usize = 512;

/// A connection's socket, shared by what serves it and what looks after it: one task, so that nobody waits for the lock.
#[derive(Clone)]
pub(crate) struct Line(Arc<Mutex<Wire>>);

struct Wire {
    stream: TcpStream,
    /// What came behind a request while somebody waited for the end.
    ahead: BytesMut,
}

impl Line {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(Wire { stream, ahead: BytesMut::new() })))
    }

    /// The socket, to be written to.
    pub fn stream(&self) -> MappedMutexGuard<'_, TcpStream> {
        MutexGuard::map(self.0.lock(), |wire| &mut wire.stream)
    }

    /// Reads what has come.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.lock();
        match wire.ahead.len().min(buffer.remaining()) {
            0 => Pin::new(&mut wire.stream).poll_read(cx, buffer),
            count => {
                buffer.put_slice(&wire.ahead[..count]);
                wire.ahead.advance(count);
                Poll::Ready(Ok(()))
            }
        }
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

    /// Is done when the client has ended its side, whatever it has sent before that; an error when the line was reset or
    /// broke. Who sends more behind its request than is kept is one who ends its side: that it does cannot be seen any more.
    pub async fn end(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_end_behind(cx)).await
    }

    fn poll_end_behind(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.lock();
        let Wire { stream, ahead } = &mut *wire;
        while ahead.len() < AHEAD_BYTES_MAX {
            let mut piece = [0; PIECE_BYTES];
            let mut read = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            ahead.extend_from_slice(read.filled());
            // Whoever reads requests would not be woken for what is no longer in the socket.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Longest wait for what should come.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A line, and the client's end of it.
    async fn line() -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Line::new(listener.accept().await.unwrap().0), client)
    }

    async fn ends(line: &Line) -> io::Result<()> {
        tokio::time::timeout(PATIENCE, line.end()).await.expect("its end is not noticed")
    }

    /// All that is read of a line.
    async fn all(line: &Line) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), [0; 1000]);
        loop {
            let mut read = ReadBuf::new(&mut piece);
            std::future::poll_fn(|cx| line.poll_read(cx, &mut read)).await.unwrap();
            match read.filled() {
                [] => return all,
                bytes => all.extend_from_slice(bytes),
            }
        }
    }

    #[tokio::test]
    async fn an_end_behind_other_bytes_is_noticed_and_nothing_of_them_is_lost() {
        for count in [0, 1, PIECE_BYTES, 5_000] {
            let (line, mut client) = line().await;
            let sent: Vec<u8> = (0..count).map(|number| number as u8).collect();
            let (first, last) = sent.split_at(count / 3);
            client.write_all(first).await.unwrap();
            // It waits before the rest comes, and goes on waiting.
            assert!(futures::poll!(std::pin::pin!(line.end())).is_pending());
            client.write_all(last).await.unwrap();
            client.shutdown().await.unwrap();
            ends(&line).await.unwrap();
            assert_eq!(all(&line).await, sent, "{count}");
        }
    }

    #[tokio::test]
    async fn who_sends_much_behind_a_request_waits_no_longer() {
        let (line, mut client) = line().await;
        let sent = vec![7; 3 * AHEAD_BYTES_MAX];
        client.write_all(&sent).await.unwrap();
        ends(&line).await.unwrap();
        assert!(line.0.lock().ahead.len() < AHEAD_BYTES_MAX + PIECE_BYTES);
        client.shutdown().await.unwrap();
        assert_eq!(all(&line).await, sent);
    }

    #[tokio::test]
    async fn a_reset_behind_other_bytes_is_an_error() {
        let (line, mut client) = line().await;
        client.write_all(b"x").await.unwrap();
        client.set_zero_linger().unwrap();
        drop(client);
        assert!(ends(&line).await.is_err());
    }

    #[tokio::test]
    async fn the_other_way_is_free() {
        let (line, mut client) = line().await;
        line.stream().try_write(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}
