//! Holds an answer of the server, with the expectations that a scene may check.

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::document;

/// An answer, with what it answers to.
#[derive(Debug)]
pub struct Answer {
    pub question: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    /// Reads an answer to its end, and checks what must hold for every answer.
    pub async fn of(question: String, response: reqwest::Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
        let answer = Self { question, status, headers, text };
        answer.check();
        document::tells_of(&answer);
        answer
    }

    fn check(&self) {
        assert!(self.headers.contains_key("x-request-id"), "{self:?}");
        assert_eq!(self.header("x-content-type-options"), "nosniff", "{self:?}");
        if !self.status.is_success() && !self.status.is_redirection() {
            let body = self.json();
            let members: Vec<&String> = body.as_object().unwrap().keys().collect();
            assert_eq!(members, ["errors", "message"], "{self:?}");
            assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
            for error in body["errors"].as_array().unwrap() {
                assert!(error["field"].is_string() && error["message"].is_string(), "{self:?}");
            }
            let asks = self.headers.contains_key("www-authenticate");
            assert_eq!(asks, self.status == StatusCode::UNAUTHORIZED, "{self:?}");
            let waits = matches!(self.status.as_u16(), 429 | 503);
            assert_eq!(self.headers.contains_key("retry-after"), waits, "{self:?}");
        }
    }

    /// Returns a header, or an empty text without it.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that the status is this one.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{} answered {}", self.question, self.text);
        self
    }

    /// Checks for 200, and returns the body.
    #[track_caller]
    pub fn ok(self) -> Value {
        self.is(200).json()
    }

    /// Checks for 201, and returns the body.
    #[track_caller]
    pub fn created(self) -> Value {
        self.is(201).json()
    }

    /// Checks for 204 without a body.
    #[track_caller]
    pub fn no_content(self) {
        let answer = self.is(204);
        assert_eq!(answer.text, "");
    }

    /// Checks for 401.
    #[track_caller]
    pub fn unauthenticated(self) {
        self.is(401);
    }

    /// Checks for 403.
    #[track_caller]
    pub fn forbidden(self) {
        self.is(403);
    }

    /// Checks for 404.
    #[track_caller]
    pub fn not_found(self) {
        self.is(404);
    }

    /// Checks for 400, and returns the fields that are at fault, in alphabetical order.
    #[track_caller]
    pub fn faults(self) -> Vec<String> {
        let body = self.is(400).json();
        let errors = body["errors"].as_array().unwrap();
        let mut fields: Vec<String> = errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect();
        fields.sort();
        fields
    }

    /// Checks for 200 with the envelope, and returns the values of one member of its items, in order.
    #[track_caller]
    pub fn list_of(self, pointer: &str) -> Vec<Value> {
        let body = self.ok();
        let items = body["data"].as_array().unwrap();
        items.iter().map(|item| item.pointer(pointer).cloned().unwrap_or(Value::Null)).collect()
    }

    /// Returns names, as [`Answer::list_of`] does.
    #[track_caller]
    pub fn names(self) -> Vec<String> {
        self.list_of("/name").into_iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}
