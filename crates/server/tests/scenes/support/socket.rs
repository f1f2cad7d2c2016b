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

    pub fn sends(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
    }

    /// Says that nothing more comes, and goes on listening.
    pub fn ends_its_side(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// Goes away with a reset.
    pub fn resets(self) {
        self.0.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(self.0).unwrap().set_zero_linger().unwrap();
    }

    /// Everything until the server ends the connection.
    pub fn hears_all(&mut self) -> String {
        let mut heard = Vec::new();
        self.0.read_to_end(&mut heard).unwrap();
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// One answer with a body of known length.
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

    /// Everything until a text comes.
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
