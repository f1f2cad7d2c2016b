//! A server outside, which designs call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use isobar_power::{becomes, settled};
use serde_json::Value;

use super::TestApp;

/// A call that came.
#[derive(Clone, Debug)]
pub struct Called {
    pub method: String,
    pub target: String,
    pub headers: axum::http::HeaderMap,
    pub body: Bytes,
}

impl Called {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The server's next answers, and the calls it received.
#[derive(Default)]
struct State {
    answers: VecDeque<(u16, String)>,
    calls: Vec<Called>,
}

/// The external server. It sends the prepared answers, in order, and then 200 with `{}`; at `/slow` it answers after a
/// long time.
pub struct Outside {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Outside {
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let app = axum::Router::new().fallback(move |request: Request| answer(Arc::clone(&shared), request));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, state }
    }

    /// Returns an address of it.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sets a further answer.
    pub fn will_answer(&self, status: u16, body: &str) {
        self.state.lock().unwrap().answers.push_back((status, body.to_owned()));
    }

    /// Waits for this many calls, and returns them.
    pub async fn called(&self, times: usize) -> Vec<Called> {
        settled("a call of the server outside", async || {
            let calls = self.state.lock().unwrap().calls.clone();
            (calls.len() >= times).then_some(calls)
        })
        .await
    }

    /// Waits until it was called so often, while time goes by for the platform, so many seconds at a time.
    pub async fn is_called_again(&self, app: &TestApp, times: usize, seconds: i64) {
        becomes("the server outside is called again", async || {
            let is_called = self.count() >= times;
            if !is_called {
                app.wait_seconds(seconds);
            }
            is_called
        })
        .await;
    }

    /// Returns the number of calls it received.
    pub fn count(&self) -> usize {
        self.state.lock().unwrap().calls.len()
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    if head.uri.path() == "/slow" {
        std::future::pending().await
    }
    let called = Called { method: head.method.to_string(), target: head.uri.to_string(), headers: head.headers, body };
    let mut state = state.lock().unwrap();
    state.calls.push(called);
    let (status, body) = state.answers.pop_front().unwrap_or((200, "{}".to_owned()));
    (StatusCode::from_u16(status).unwrap(), [("x-kind", "test")], body).into_response()
}
