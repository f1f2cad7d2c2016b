//! A server with a good client, and raw connections to it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isobar_power::{becomes, within_patience};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::site::{Api, Device, ENVIRONMENT, everything};
use super::{Serving, serve};

/// Pause between the steps of a slow client.
pub const STEP_EVERY: Duration = Duration::from_millis(20);
const CONNECTIONS: &str = "isobar_http_connections";

/// A server with a good client and one device.
pub struct House {
    pub folder: TempDir,
    pub serving: Serving,
    pub api: Api,
    pub device: Device,
}

impl House {
    pub async fn open() -> Self {
        Self::with(|folder| serve(folder, &ENVIRONMENT)).await
    }

    /// Starts a server by another command.
    pub async fn with(command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let serving = Serving::of(command(folder.path()));
        let api = Api::of(&serving).await;
        let device = api.found(&everything(), 1).await.remove(0);
        let api = api.without_keeping_connections();
        Self { folder, serving, api, device }
    }

    pub async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.serving.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Returns the head of a post by the device, without its end.
    pub fn head(&self, more: &str) -> String {
        let (token, address) = (&self.device.token, &self.serving.address);
        format!(
            "POST /v2/events/device?elementName=reading HTTP/1.1\r\nhost: {address}\r\ncloud: {token}\r\n\
             content-type: application/json\r\n{more}\r\n"
        )
    }

    /// Returns a complete post by the device.
    pub fn post(&self, body: &str) -> String {
        format!("{}{body}", self.head(&format!("content-length: {}\r\n", body.len())))
    }

    /// Checks that the good client is served.
    pub async fn serves(&self, number: u64) {
        self.api.post(&self.device, "reading", &json!({"n": number})).await.created();
    }

    /// Returns the numbers of the events in history, newest first.
    pub async fn history(&self) -> Vec<u64> {
        let path = format!("/v2/devices/{}/events?limit=10000&cloudEvents=false", self.device.id);
        let events = self.api.list(&path).await;
        events.iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect()
    }

    pub async fn connections(&self) -> f64 {
        self.api.metric(CONNECTIONS).await
    }

    /// Waits until all other connections have ended.
    pub async fn is_left_alone(&self) {
        becomes("the end of all connections but one", async || self.connections().await <= 1.0).await;
    }
}

/// Reads everything until the connection ends in any way.
pub async fn rest(stream: &mut TcpStream) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    let reading = async {
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            all.extend_from_slice(&piece[..count]);
        }
    };
    within_patience("the end of the connection", reading).await;
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads until `end` has come.
pub async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    let reading = async {
        loop {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..count]);
            if String::from_utf8_lossy(&all).contains(end) {
                break;
            }
        }
    };
    within_patience(end, reading).await;
    String::from_utf8_lossy(&all).into_owned()
}

/// Ends a connection with a reset.
pub fn reset(stream: &TcpStream) {
    stream.set_zero_linger().unwrap();
}

/// Splits an answer into status, body and headers; headers that always differ are reduced to their names.
pub fn told(answer: &str) -> (String, String, Vec<String>) {
    const CHANGES: [&str; 4] = ["date", "x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    let line = |line: &str| {
        let name = line.split(':').next().unwrap();
        if CHANGES.contains(&name) { name.to_owned() } else { line.to_owned() }
    };
    let mut headers: Vec<String> = headers.split("\r\n").map(line).collect();
    headers.sort();
    let body = if status.contains("201") { String::new() } else { body.to_owned() };
    (status.to_owned(), body, headers)
}
