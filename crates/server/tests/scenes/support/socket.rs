//! A connection of one's own, for what no client of HTTP would do.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::TestApp;

/// Longest wait for an answer: a bound for one that never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection. It blocks its thread: the server needs another one.
pub struct Socket(TcpStream);

impl Socket {
    pub fn to(app: &TestApp) -> Self {
        let stream = TcpStream::connect(app.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Connects a client with a very small receive buffer.
    pub async fn with_little_room(app: &TestApp) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = socket.connect(app.address).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub fn sends(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
    }

    /// Sends a text that the server may not read any more.
    pub fn sends_if_heard(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.0.write_all(text.as_ref());
    }

    /// Ends the client's side of the connection; it can still read.
    pub fn ends_its_side(&self) {
        if let Err(error) = self.0.shutdown(Shutdown::Write) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{error}");
        }
    }

    /// Goes away with a reset.
    pub fn resets(self) {
        self.0.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(self.0).unwrap().set_zero_linger().unwrap();
    }

    /// Returns true if the server has ended the connection without sending anything.
    pub fn has_ended(&mut self) -> bool {
        self.hears_within(Duration::from_millis(1)) == Some(0)
    }

    /// Returns the number of bytes ready to be read; 0 at the end, `None` if nothing arrives in time.
    pub fn hears_within(&mut self, time: Duration) -> Option<usize> {
        self.0.set_read_timeout(Some(time)).unwrap();
        let heard = self.0.peek(&mut [0]);
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        match heard {
            Ok(count) => Some(count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until a response has begun, and takes nothing of it.
    pub fn is_answered(&mut self) {
        assert_eq!(self.0.peek(&mut [0]).unwrap(), 1);
    }

    /// Takes some of what comes, at most so many bytes; 0 when the connection has ended, however it ended.
    pub fn takes(&mut self, bytes: usize) -> usize {
        match self.0.read(&mut vec![0; bytes]) {
            Ok(count) => count,
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "nothing comes, and it does not end");
                0
            }
        }
    }

    /// Returns the number of bytes received until the connection ends, in whatever way.
    pub fn counts_all(&mut self) -> usize {
        let (mut heard, mut piece) = (0, vec![0; 1 << 16]);
        while let Ok(count @ 1..) = self.0.read(&mut piece) {
            heard += count;
        }
        heard
    }

    /// Reads everything until the server ends the connection.
    pub fn hears_all(&mut self) -> String {
        let mut heard = Vec::new();
        self.0.read_to_end(&mut heard).unwrap();
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// Reads one answer with a body of known length.
    pub fn hears_one(&mut self) -> String {
        let mut heard = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&heard).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    return text;
                }
            }
            self.reads(&mut heard);
        }
    }

    /// Reads everything until a text comes.
    pub fn hears_until(&mut self, end: &str) -> String {
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains(end) {
            self.reads(&mut heard);
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    fn reads(&mut self, into: &mut Vec<u8>) {
        let mut piece = [0; 4_096];
        let count = self.0.read(&mut piece).unwrap();
        assert_ne!(count, 0, "the connection ended after {:?}", String::from_utf8_lossy(into));
        into.extend_from_slice(&piece[..count]);
    }
}
