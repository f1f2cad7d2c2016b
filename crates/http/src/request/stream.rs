//! The bytes of a connection: as they come, or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection's bytes.
pub(crate) enum Stream {
    Plain(TcpStream),
    /// Boxed: its state is large, and most connections behind a proxy have none.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The socket beneath, which knows whether the peer is there.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Writes what goes out at once. Returns how many bytes were taken, and whether all of them are the system's now: under TLS
    /// some may be taken and still wait here.
    pub fn write_at_once(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let written = match self {
            // Without the bookkeeping of a poll: nobody is to be woken.
            Self::Plain(socket) => match socket.try_write(bytes) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            },
            Self::Tls(stream) => match Pin::new(&mut **stream).poll_write(cx, bytes) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            },
        };
        let is_out = match Pin::new(self).poll_flush(cx) {
            Poll::Ready(flushed) => flushed.map(|()| true)?,
            Poll::Pending => false,
        };
        Ok((written, is_out && written == bytes.len()))
    }

    /// Takes nothing from the peer, and looks whether the connection was reset or broke.
    pub fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let socket = self.socket();
        match ready!(socket.poll_peek(cx, &mut ReadBuf::new(&mut [0]))) {
            Err(error) => Poll::Ready(error),
            Ok(_) => Poll::Pending,
        }
    }
}

impl AsyncRead for Stream {
    /// A peer that ends the connection without taking leave of TLS has ended it all the same: how long a request is, its head
    /// and its chunks say.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => match ready!(Pin::new(&mut **stream).poll_read(cx, buffer)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => Poll::Ready(read),
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
