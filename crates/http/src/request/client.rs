//! Where a request comes from, and the socket of its client while the response is made.
//!
//! A client that closes its side of the connection after a request may still read (RFC 9293, 3.6): then it gets its response.
//! Nothing tells it apart from a client that is gone until something is written to it. So its call goes on, but once the call
//! would have to wait, nothing is taken from a queue for it any more. A connection that was reset or broke ends the call.
//!
//! What only reads, and is not answered soon after that, is worth a question: an interim response (RFC 9110, 15.2), which
//! every client of HTTP/1.1 passes over. The system of one that is gone answers it with a reset, and the call ends.
//!
//! The end of a connection comes behind all bytes that were sent before it. Whoever waits for the end reads those bytes, and
//! keeps them for whoever reads next.

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

/// Most bytes that are kept of what comes behind a request whose response is waited for.
const AHEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes that are read of it at a time: mostly there are none, or a line break too many.
const AHEAD_PIECE_BYTES: usize = 512;

/// The question to a client that has closed its side.
const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";
/// How long a client that has closed its side waits before it is asked whether it is there, and between two questions at most.
const ASKED_AFTER: Duration = Duration::from_millis(500);
const ASKED_EVERY_MAX: Duration = Duration::from_secs(8);
/// The first look for what came of a question; between two looks passes twice as long, each time.
const FIRST_LOOK: Duration = Duration::from_millis(20);

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
    stream: Stream,
    /// What came behind a request while somebody waited for the end.
    ahead: BytesMut,
    /// Whether the last write went out as a whole: else the next one begins in the middle of a response.
    is_whole: bool,
}

impl ClientSocket {
    pub fn new(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(SocketState { stream, ahead: BytesMut::new(), is_whole: true })))
    }

    /// The stream, for its end and for what is asked of it.
    pub fn stream(&self) -> MappedMutexGuard<'_, Stream> {
        MutexGuard::map(self.0.lock(), |state| &mut state.stream)
    }

    /// Writes of a response.
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        let written = Pin::new(&mut state.stream).poll_write(cx, bytes);
        state.is_whole = matches!(&written, Poll::Ready(Ok(count)) if *count == bytes.len());
        written
    }

    /// Whether nothing is half written.
    pub fn is_between_writes(&self) -> bool {
        self.0.lock().is_whole
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
        poll_fn(|cx| self.stream().poll_broken(cx)).await
    }

    /// Is done when the client has closed its side, whatever it has sent before; an error when the connection was reset or
    /// broke. A client that sends more behind its request than is kept counts as one that has closed: whether it does cannot
    /// be seen any more.
    pub async fn closed(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_closed(cx)).await
    }

    /// Is done when nobody is there any more to hear the response to a request that only reads, whose answer has not begun. A
    /// client that has closed its side, and has no response soon after, is asked; one of HTTP/1.0 cannot be, and is believed
    /// to be there.
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
            // The last response to a client that asks for several may not be out yet.
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

    /// Sends an interim response. None of it going out is an answer to wait for; a part of it would spoil the response.
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
            // Whoever reads requests would not be woken for what is no longer in the socket.
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

    /// A socket of the server, and the client's end of it.
    async fn connected() -> (ClientSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ClientSocket::new(Stream::Plain(listener.accept().await.unwrap().0)), client)
    }

    async fn closed(socket: &ClientSocket) -> io::Result<()> {
        within_patience("the end is noticed", socket.closed()).await
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

    async fn is_noticed_as_gone(socket: &ClientSocket) {
        within_patience("it is noticed as gone", socket.gone(Version::HTTP_11, &Clock::System)).await;
    }

    #[tokio::test]
    async fn a_client_that_goes_in_the_ordinary_way_is_noticed_and_one_that_listens_is_not_taken_for_it() {
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
    async fn nobody_is_asked_in_the_middle_of_a_response_or_in_another_language() {
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
    async fn the_other_way_is_free() {
        let (socket, mut client) = connected().await;
        socket.stream().socket().try_write(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }
}
