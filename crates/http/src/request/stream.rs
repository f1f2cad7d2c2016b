//! The byte stream of a connection, plain or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Byte stream of a connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    /// Boxed: its state is large, and most connections behind a proxy are plain.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Returns the socket beneath.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Writes without waiting. Returns how many bytes were taken, and true if the kernel has all of them: TLS may
    /// buffer some.
    pub fn write_at_once(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let written = match self {
            // Without registering a waker: nothing waits for this write.
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

    /// Polls for a reset or broken connection, without consuming bytes.
    pub fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let socket = self.socket();
        match ready!(socket.poll_peek(cx, &mut ReadBuf::new(&mut [0]))) {
            Err(error) => Poll::Ready(error),
            Ok(_) => Poll::Pending,
        }
    }
}

impl AsyncRead for Stream {
    /// Accepts a connection closed without a TLS `close_notify`: the request's head and chunks already give its length.
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
