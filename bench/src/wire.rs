//! HTTP/1.1 with as little work as possible: requests are ready-made bytes, answers are cut at their length, or put
//! together from their chunks.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;

/// How much is read at a time.
const READ_BYTES: usize = 16 * 1024;

/// A connection that stays open.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

struct Head {
    status: u16,
    /// None: it comes in chunks.
    length: Option<usize>,
    body_at: usize,
}

impl Wire {
    /// Opens a connection.
    pub async fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request and reads the answer.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Reply, Failure> {
        let head = self.send(request).await?;
        let Some(length) = head.length else {
            return Ok(Reply { status: head.status, body: self.chunks(head.body_at).await? });
        };
        let body = self.buffer[head.body_at..head.body_at + length].to_vec();
        self.buffer.drain(..head.body_at + length);
        Ok(Reply { status: head.status, body })
    }

    /// Sends a request and reads over the answer; its status.
    pub async fn exchange_status(&mut self, request: &[u8]) -> Result<u16, Failure> {
        let head = self.send(request).await?;
        match head.length {
            Some(length) => drop(self.buffer.drain(..head.body_at + length)),
            None => drop(self.chunks(head.body_at).await?),
        }
        Ok(head.status)
    }

    /// The body that begins there, chunk by chunk.
    async fn chunks(&mut self, mut at: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            let line = self.buffer[at..].windows(2).position(|window| window == b"\r\n");
            let size = match line {
                Some(end) => {
                    Some((usize::from_str_radix(std::str::from_utf8(&self.buffer[at..at + end])?, 16)?, at + end + 2))
                }
                None => None,
            };
            match size {
                Some((size, from)) if self.buffer.len() >= from + size + 2 => {
                    body.extend_from_slice(&self.buffer[from..from + size]);
                    at = from + size + 2;
                    if size == 0 {
                        self.buffer.drain(..at);
                        return Ok(body);
                    }
                }
                _ => self.more().await?,
            }
        }
    }

    async fn more(&mut self) -> Result<(), Failure> {
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }

    /// Afterwards the buffer holds the whole answer; of one that comes in chunks its head at least.
    async fn send(&mut self, request: &[u8]) -> Result<Head, Failure> {
        self.stream.write_all(request).await?;
        loop {
            if let Some(head) = read_head(&self.buffer)?
                && head.length.is_none_or(|length| self.buffer.len() >= head.body_at + length)
            {
                return Ok(head);
            }
            self.more().await?;
        }
    }
}

/// None: there is more to come.
fn read_head(buffer: &[u8]) -> Result<Option<Head>, Failure> {
    let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&buffer[..end])?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12)).ok_or("no status line")?.parse()?;
    let mut length = Some(0);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = None;
        }
    }
    Ok(Some(Head { status, length, body_at: end + 4 }))
}

/// A request as bytes. `credential` is a whole header line without its end.
pub fn request(method: &str, address: &str, target: &str, credential: &str, body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {address}\r\n");
    if !credential.is_empty() {
        text.push_str(credential);
        text.push_str("\r\n");
    }
    match body {
        Some(body) => {
            text.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        }
        None => text.push_str("\r\n"),
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        let head = read_head(answer).unwrap().unwrap();
        assert_eq!((head.status, head.length, &answer[head.body_at..]), (201, Some(2), b"{}".as_slice()));
        assert!(read_head(&answer[..40]).unwrap().is_none());
        let chunked = read_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap().unwrap();
        assert_eq!(chunked.length, None);
    }
}
