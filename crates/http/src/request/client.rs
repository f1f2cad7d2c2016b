//! Where a request comes from, and the socket of its client while the response is made.
//!
//! A client that closes its side of the connection after a request still reads (RFC 9293, 3.6): it gets its response. Nothing
//! tells it apart from a client that is gone until something is written to it. So its call goes on, but once the call would
//! have to wait, nothing is taken from a queue for it any more. Only a connection that was reset or broke ends the call.
//!
//! The end of a connection comes behind all bytes that were sent before it. Whoever waits for the end reads those bytes, and
//! keeps them for whoever reads next.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes that are kept of what comes behind a request whose response is waited for.
const AHEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes that are read of it at a time: mostly there are none, or a line break too many.
const AHEAD_PIECE_BYTES: usize = 512;

/// Where a request comes from.
#[derive(Clone)]
pub(crate) struct Client {
    /// The client's own address, also behind trusted proxies.
    pub address: IpAddr,
    /// None on the fast path, where nobody looks whether the client is still there.
    pub socket: Option<ClientSocket>,
}

/// The socket of a connection, shared by what serves the connection and what watches the client: both are one task, so that
/// neither waits for the lock.
#[derive(Clone)]
pub(crate) struct ClientSocket(Arc<Mutex<SocketState>>);

struct SocketState {
    stream: TcpStream,
    /// What came behind a request while somebody waited for the end.
    ahead: BytesMut,
}

impl ClientSocket {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(SocketState { stream, ahead: BytesMut::new() })))
    }

    /// The stream, for writing.
    pub fn stream(&self) -> MappedMutexGuard<'_, TcpStream> {
        MutexGuard::map(self.0.lock(), |state| &mut state.stream)
    }

    /// Reads what has come.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        match state.ahead.len().min(buffer.remaining()) {
            0 => Pin::new(&mut state.stream).poll_read(cx, buffer),
            count => {
                buffer.put_slice(&state.ahead[..count]);
                state.ahead.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Is done when the connection was reset or broke. It takes nothing from the socket, so it cannot see that while bytes
    /// wait to be read.
    pub async fn broken(&self) -> io::Error {
        poll_fn(|cx| match self.stream().poll_peek(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Is done when the client has closed its side, whatever it has sent before; an error when the connection was reset or
    /// broke. A client that sends more behind its request than is kept counts as one that has closed: whether it does cannot
    /// be seen any more.
    pub async fn closed(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        let SocketState { stream, ahead } = &mut *state;
        while ahead.len() < AHEAD_BYTES_MAX {
            let mut piece = [0; AHEAD_PIECE_BYTES];
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

    /// A socket of the server, and the client's end of it.
    async fn connected() -> (ClientSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ClientSocket::new(listener.accept().await.unwrap().0), client)
    }

    async fn closed(socket: &ClientSocket) -> io::Result<()> {
        tokio::time::timeout(PATIENCE, socket.closed()).await.expect("the end is not noticed")
    }

    /// All that is read of a socket.
    async fn all(socket: &ClientSocket) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), [0; 1000]);
        loop {
            let mut read = ReadBuf::new(&mut piece);
            std::future::poll_fn(|cx| socket.poll_read(cx, &mut read)).await.unwrap();
            match read.filled() {
                [] => return all,
                bytes => all.extend_from_slice(bytes),
            }
        }
    }

    #[tokio::test]
    async fn an_end_behind_other_bytes_is_noticed_and_nothing_of_them_is_lost() {
        for count in [0, 1, AHEAD_PIECE_BYTES, 5_000] {
            let (socket, mut client) = connected().await;
            let sent: Vec<u8> = (0..count).map(|number| number as u8).collect();
            let (first, last) = sent.split_at(count / 3);
            client.write_all(first).await.unwrap();
            // It waits before the rest comes, and goes on waiting.
            assert!(futures::poll!(std::pin::pin!(socket.closed())).is_pending());
            client.write_all(last).await.unwrap();
            client.shutdown().await.unwrap();
            closed(&socket).await.unwrap();
            assert_eq!(all(&socket).await, sent, "{count}");
        }
    }

    #[tokio::test]
    async fn who_sends_much_behind_a_request_waits_no_longer() {
        let (socket, mut client) = connected().await;
        let sent = vec![7; 3 * AHEAD_BYTES_MAX];
        client.write_all(&sent).await.unwrap();
        closed(&socket).await.unwrap();
        assert!(socket.0.lock().ahead.len() < AHEAD_BYTES_MAX + AHEAD_PIECE_BYTES);
        client.shutdown().await.unwrap();
        assert_eq!(all(&socket).await, sent);
    }

    #[tokio::test]
    async fn a_reset_behind_other_bytes_is_an_error() {
        let (socket, mut client) = connected().await;
        client.write_all(b"x").await.unwrap();
        client.set_zero_linger().unwrap();
        drop(client);
        assert!(closed(&socket).await.is_err());
    }

    #[tokio::test]
    async fn the_other_way_is_free() {
        let (socket, mut client) = connected().await;
        socket.stream().try_write(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}
