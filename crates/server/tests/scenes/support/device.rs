//! A device with its token.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::app::with_json;
use super::person::text;
use super::{Answer, TestApp};

/// A device that has its token.
pub struct Device<'a> {
    pub app: &'a TestApp,
    pub id: String,
    pub token: String,
}

impl<'a> Device<'a> {
    /// Returns the device in the answer that created it.
    pub fn of(app: &'a TestApp, made: &Value) -> Self {
        Self { app, id: text(made, "id").to_owned(), token: text(made, "token").to_owned() }
    }

    /// Returns the same device, with the same token, which calls another node.
    pub fn through<'b>(&self, node: &'b TestApp) -> Device<'b> {
        Device { app: node, id: self.id.clone(), token: self.token.clone() }
    }

    /// Returns the device's path in the API.
    pub fn url(&self) -> String {
        format!("/v2/devices/{}", self.id)
    }

    /// Returns a path beneath the device.
    pub fn at(&self, rest: &str) -> String {
        format!("/v2/devices/{}/{rest}", self.id)
    }

    /// Returns the path at which a user posts events in its name.
    pub fn door(&self, element: &str) -> String {
        format!("/v2/events/device?deviceId={}&elementName={element}", self.id)
    }

    /// Its queue, as a user calls it.
    pub fn queue(&self) -> String {
        format!("/v2/events/cloud?deviceId={}", self.id)
    }

    /// Returns a request with its token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.app.request(method, path).header("cloud", &self.token)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.app.send(self.request(Method::GET, path)).await
    }

    /// Posts a device event.
    pub async fn posts(&self, element: &str, payload: Value) -> Answer {
        self.posts_text(element, payload.to_string()).await
    }

    /// Posts a device event, character by character as given.
    pub async fn posts_text(&self, element: &str, payload: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, &format!("/v2/events/device?elementName={element}"));
        self.app.send(request.header("content-type", "application/json").body(payload)).await
    }

    /// Posts a device event under a key that makes a repetition do nothing.
    pub async fn posts_once(&self, key: &str, element: &str, payload: Value) -> Answer {
        let request = self.request(Method::POST, &format!("/v2/events/device?elementName={element}"));
        self.app.send(with_json(request.header("idempotency-key", key), &payload)).await
    }

    /// Queues a cloud event for it, by a user with that right.
    pub async fn queues(&self, element: &str, payload: Value) -> String {
        let request = self.app.queueing(&self.id, element).await;
        text(&self.app.send(with_json(request, &payload)).await.created(), "id").to_owned()
    }

    /// Takes the next cloud event.
    pub async fn takes(&self) -> Answer {
        self.get("/v2/events/cloud/next").await
    }
}
