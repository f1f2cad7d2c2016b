//! An event stream (Server-Sent Events), as it comes.

use isobar_power::within_patience;
use serde_json::Value;

use super::{Person, document};

/// A stream that is open.
pub struct Stream {
    response: reqwest::Response,
    unread: String,
    /// The newest identifier of a place in the stream.
    place: Option<String>,
}

/// A message of a stream.
#[derive(Debug)]
pub struct Sent {
    pub event: String,
    pub id: String,
    pub data: Value,
}

impl Stream {
    /// Opens a stream; `after` is the event it had last.
    pub async fn open(person: &Person<'_>, query: &str, after: Option<&str>) -> Self {
        Self::of(person.request(reqwest::Method::GET, &format!("/v2/events/stream{query}")), after).await
    }

    /// Opens the stream that a request asks for.
    pub async fn of(mut request: reqwest::RequestBuilder, after: Option<&str>) -> Self {
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        document::tells_of_stream(&format!("GET {}", response.url()), 200, "text/event-stream");
        Self { response, unread: String::new(), place: None }
    }

    /// Returns the next event.
    pub async fn next(&mut self) -> Sent {
        within_patience("another event on the stream", self.read()).await.unwrap()
    }

    /// Returns the next identifier of a place in the stream, which comes before any event that is still to be read.
    pub async fn place(&mut self) -> String {
        loop {
            if let Some(place) = self.place.take() {
                return place;
            }
            let block = within_patience("a place in the stream", self.block()).await.unwrap();
            assert_eq!(self.sent(&block).map(|sent| sent.data), None);
        }
    }

    /// Waits until the server ends it.
    pub async fn ends(&mut self) {
        let rest = within_patience("the end of the stream", self.read()).await;
        assert!(rest.is_none(), "{rest:?}");
    }

    async fn read(&mut self) -> Option<Sent> {
        loop {
            let block = self.block().await?;
            if let Some(sent) = self.sent(&block) {
                return Some(sent);
            }
        }
    }

    /// Returns the event of a block, or `None` if it only has comments or a place.
    fn sent(&mut self, block: &str) -> Option<Sent> {
        match block.strip_prefix("id: ").and_then(|rest| rest.strip_suffix("\n\n")).filter(|id| !id.contains('\n')) {
            Some(id) => {
                self.place = Some(id.to_owned());
                None
            }
            None => sent(block),
        }
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.find("\n\n") {
                return Some(self.unread.drain(..end + 2).collect());
            }
            let piece = self.response.chunk().await.unwrap()?;
            self.unread.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

/// Returns the event of a block, or `None` if it only has comments. Checks everything in a stream against the document.
fn sent(block: &str) -> Option<Sent> {
    let fields: Vec<(&str, &str)> = block
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(':'))
        .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no line of a stream: {line:?}")))
        .collect();
    if fields.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let field = |wanted: &str| fields.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let data: Value = serde_json::from_str(field("data")).unwrap();
    if field("event") == "alarm" {
        // A stream can be resumed after an event, so an alarm has no id.
        assert_eq!(names, ["data", "event"], "{block:?}");
        document::tells_of_value(&data, "Alarm");
        let id = data["id"].as_str().unwrap().to_owned();
        return Some(Sent { event: "alarm".to_owned(), id, data });
    }
    assert_eq!(names, ["data", "event", "id"], "{block:?}");
    document::tells_of_value(&data, "Event");
    // The fields of a message equal those in its event (contract: Events and the cloud-event queue).
    assert_eq!((&data["type"], &data["id"]), (&Value::from(field("event")), &Value::from(field("id"))), "{block:?}");
    Some(Sent { event: field("event").to_owned(), id: field("id").to_owned(), data })
}
