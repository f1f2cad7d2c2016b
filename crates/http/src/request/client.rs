//! The client of a request: its address, and its socket while the response is made.
//!
//! A client that closes its side of the connection after a request may still read (RFC 9293, 3.6) and then gets its
//! response. Until something is written, it cannot be told apart from a client that is gone. So its call continues, but
//! if the call has to wait, nothing is taken from a queue for it any more. A connection that is reset or broken ends
//! the call.
//!
//! A call that only reads, and is not answered soon after that, probes its client with an interim response (RFC 9110,
//! 15.2), which every HTTP/1.1 client ignores. The system of a client that is gone answers with a reset, which ends the
//! call.
//!
//! The end of a connection follows all bytes that were sent before it: to detect it, those bytes are read and buffered
//! for the next reader.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::Version;
use bytes::{Buf as _, BytesMut};
use isobar_model::time::Clock;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::stream::Stream;

/// Most bytes that are buffered behind a request in flight.
const AHEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes of one such read: usually there are none, or a stray line break.
const AHEAD_PIECE_BYTES: usize = 512;

/// Interim response that probes a client that has closed its side.
const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";
/// Time until a client that has closed its side is probed, and the longest interval of probes.
const ASKED_AFTER: Duration = Duration::from_millis(500);
const ASKED_EVERY_MAX: Duration = Duration::from_secs(8);
/// Delay of the first check after a probe; each further delay doubles.
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// Address and socket of a client.
#[derive(Clone)]
pub(crate) struct Client {
    /// The client's own address, also behind trusted proxies.
    pub address: IpAddr,
    /// True if the peer is a proxy that the operator trusts.
    pub is_behind_proxy: bool,
    /// `None` on the fast path, which does not watch the client.
    pub socket: Option<ClientSocket>,
}

/// Socket of a connection, shared by the code that serves it and the code that watches the client. Both run in one
/// task, so the lock is never contended.
#[derive(Clone)]
pub(crate) struct ClientSocket(Arc<Mutex<SocketState>>);

struct SocketState {
    stream: Stream,
    /// Bytes read behind a request while waiting for the end of the connection.
    ahead: BytesMut,
    /// True if the last write was complete; else the next one continues the middle of a response.
    is_whole: bool,
}

impl ClientSocket {
    pub fn new(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(SocketState { stream, ahead: BytesMut::new(), is_whole: true })))
    }

    /// Locks and returns the stream.
    pub fn stream(&self) -> MappedMutexGuard<'_, Stream> {
        MutexGuard::map(self.0.lock(), |state| &mut state.stream)
    }

    /// Writes part of a response.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        let written = Pin::new(&mut state.stream).poll_write(cx, bytes);
        state.is_whole = matches!(&written, Poll::Ready(Ok(count)) if *count == bytes.len());
        written
    }

    /// Returns true if no write is incomplete.
    pub fn is_between_writes(&self) -> bool {
        self.0.lock().is_whole
    }

    /// Reads buffered bytes first, then from the socket.
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

    /// Completes when the connection is reset or broken. It consumes nothing, so it cannot notice that while unread
    /// bytes remain.
    pub async fn broken(&self) -> io::Error {
        poll_fn(|cx| self.stream().poll_broken(cx)).await
    }

    /// Completes when the client has closed its side, whatever it sent before; with an error if the connection is reset
    /// or broken. A client that sends more behind its request than the buffer holds counts as closed, as its end can no
    /// longer be seen.
    pub async fn closed(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    /// Completes when the client of a read whose response has not begun is gone. Probes a client that has closed its
    /// side and has no response soon after; one of HTTP/1.0 cannot be probed and counts as present.
    pub async fn gone(&self, version: Version, clock: &Clock) -> io::Error {
        if let Err(error) = self.closed().await {
            return error;
        }
        if version != Version::HTTP_11 {
            return std::future::pending().await;
        }
        clock.sleep(ASKED_AFTER).await;
        let mut pause = FIRST_LOOK;
        loop {
            // The previous response of a pipelining client may not be sent yet.
            if self.is_between_writes()
                && let Err(error) = poll_fn(|cx| Poll::Ready(self.ask(cx))).await
            {
                return error;
            }
            clock.sleep(pause).await;
            match self.stream().socket().take_error() {
                Ok(None) => pause = ASKED_EVERY_MAX.min(pause * 2),
                Ok(Some(error)) | Err(error) => return error,
            }
        }
    }

    /// Sends an interim response. Sending none of it is fine; sending a part of it would corrupt the response, and is
    /// an error.
    fn ask(&self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.stream().write_at_once(cx, INTERIM)?.0 {
            count if count == 0 || count == INTERIM.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        let SocketState { stream, ahead, .. } = &mut *state;
        while ahead.len() < AHEAD_BYTES_MAX {
            let mut piece = [0; AHEAD_PIECE_BYTES];
            let mut read = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            ahead.extend_from_slice(read.filled());
            // The reader of requests would not be woken for bytes that have left the socket.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use isobar_power::within_patience;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns a server socket and its client.
    async fn connected() -> (ClientSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ClientSocket::new(Stream::Plain(listener.accept().await.unwrap().0)), client)
    }

    async fn closed(socket: &ClientSocket) -> io::Result<()> {
        within_patience("the end is noticed", socket.closed()).await
    }

    /// Reads all bytes of a socket.
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
    async fn client_end_behind_unread_bytes_is_seen_and_they_are_kept() {
        for count in [0, 1, AHEAD_PIECE_BYTES, 5_000] {
            let (socket, mut client) = connected().await;
            let sent: Vec<u8> = (0..count).map(|number| number as u8).collect();
            let (first, last) = sent.split_at(count / 3);
            client.write_all(first).await.unwrap();
            // It waits before the rest arrives, and continues to wait.
            assert!(futures::poll!(std::pin::pin!(socket.closed())).is_pending());
            client.write_all(last).await.unwrap();
            client.shutdown().await.unwrap();
            closed(&socket).await.unwrap();
            assert_eq!(all(&socket).await, sent, "{count}");
        }
    }

    #[tokio::test]
    async fn client_that_sends_past_the_buffer_counts_as_closed() {
        let (socket, mut client) = connected().await;
        let sent = vec![7; 3 * AHEAD_BYTES_MAX];
        client.write_all(&sent).await.unwrap();
        closed(&socket).await.unwrap();
        assert!(socket.0.lock().ahead.len() < AHEAD_BYTES_MAX + AHEAD_PIECE_BYTES);
        client.shutdown().await.unwrap();
        assert_eq!(all(&socket).await, sent);
    }

    #[tokio::test]
    async fn reset_behind_unread_bytes_is_an_error() {
        let (socket, mut client) = connected().await;
        client.write_all(b"x").await.unwrap();
        client.set_zero_linger().unwrap();
        drop(client);
        assert!(closed(&socket).await.is_err());
    }

    async fn is_noticed_as_gone(socket: &ClientSocket) {
        within_patience("it is noticed as gone", socket.gone(Version::HTTP_11, &Clock::System)).await;
    }

    #[tokio::test]
    async fn only_a_closed_client_counts_as_gone() {
        for behind in [0, 3, 3 * AHEAD_BYTES_MAX] {
            let (socket, mut client) = connected().await;
            client.write_all(&vec![7; behind]).await.unwrap();
            drop(client);
            is_noticed_as_gone(&socket).await;
        }
        let (socket, mut client) = connected().await;
        client.shutdown().await.unwrap();
        let mut gone = std::pin::pin!(socket.gone(Version::HTTP_11, &Clock::System));
        let asked_twice = async {
            let mut heard = vec![0; 2 * INTERIM.len()];
            client.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, [INTERIM, INTERIM].concat());
        };
        tokio::select! {
            error = &mut gone => panic!("{error}"),
            () = asked_twice => {}
        }
        drop(client);
        within_patience("it is noticed as gone", gone).await;
    }

    #[tokio::test(start_paused = true)]
    async fn half_written_response_and_http_1_0_are_not_probed() {
        for (version, is_whole) in [(Version::HTTP_11, false), (Version::HTTP_10, true)] {
            let (socket, mut client) = connected().await;
            socket.0.lock().is_whole = is_whole;
            client.shutdown().await.unwrap();
            closed(&socket).await.unwrap();
            let waited = Clock::System.timeout(Duration::from_secs(60), socket.gone(version, &Clock::System)).await;
            assert!(waited.is_err());
            drop(socket);
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0, "nothing was said");
        }
    }

    #[tokio::test]
    async fn socket_is_written_while_its_end_is_awaited() {
        let (socket, mut client) = connected().await;
        socket.stream().socket().try_write(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}
