//! An event stream (Server-Sent Events), as it comes.

use std::time::Duration;

use serde_json::Value;

use super::Person;

/// Longest wait for an event of a stream: a bound for a stream that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stream that is open.
pub struct Stream {
    response: reqwest::Response,
    unread: String,
}

/// What a stream carries.
#[derive(Debug)]
pub struct Sent {
    pub event: String,
    pub id: String,
    pub data: Value,
}

impl Stream {
    /// Opens a stream; `after` is the event it had last.
    pub async fn open(person: &Person<'_>, query: &str, after: Option<&str>) -> Self {
        let mut request = person.request(reqwest::Method::GET, &format!("/v2/events/stream{query}"));
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, unread: String::new() }
    }

    /// The next event.
    pub async fn next(&mut self) -> Sent {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("the stream carries another event").unwrap()
    }

    /// Waits until the server ends it.
    pub async fn ends(&mut self) {
        let rest = tokio::time::timeout(PATIENCE, self.read()).await.expect("the stream ends");
        assert!(rest.is_none(), "{rest:?}");
    }

    async fn read(&mut self) -> Option<Sent> {
        loop {
            while let Some(end) = self.unread.find("\n\n") {
                let block: String = self.unread.drain(..end + 2).collect();
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let Some(data) = field("data: ") {
                    let data = serde_json::from_str(&data).unwrap();
                    return Some(Sent { event: field("event: ").unwrap(), id: field("id: ").unwrap(), data });
                }
            }
            let piece = self.response.chunk().await.unwrap()?;
            self.unread.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}
