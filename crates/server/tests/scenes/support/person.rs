//! Somebody with an account.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::app::{new_user, password_of, with_json};
use super::{Answer, Device, TestApp};

/// Somebody who is logged in.
pub struct Person<'a> {
    pub app: &'a TestApp,
    pub id: String,
    pub organization: String,
    pub password: String,
    pub jwt: String,
    /// The refresh token.
    pub cookie: String,
    project: OnceCell<String>,
    /// The API key that it uses instead of its JWT.
    key: Option<String>,
}

impl<'a> Person<'a> {
    /// Logs in an account that is there.
    pub async fn known(app: &'a TestApp, user: Value, password: String) -> Self {
        let login = app.login(text(&user, "username"), &password).await.is(201);
        let cookie = login.header("set-cookie").split(';').next().unwrap().to_owned();
        Self {
            app,
            id: text(&user, "id").to_owned(),
            organization: text(&user, "organizationId").to_owned(),
            password,
            jwt: text(&login.json(), "jwtToken").to_owned(),
            cookie,
            project: OnceCell::new(),
            key: None,
        }
    }

    /// Goes on with an API key, which outlives hours.
    pub async fn with_key(mut self) -> Self {
        self.key = Some(self.makes_api_key("scene").await);
        self
    }

    /// Returns the same person, with the same credentials, who calls another node.
    pub fn through<'b>(&self, node: &'b TestApp) -> Person<'b> {
        let Self { app: _, id, organization, password, jwt, cookie, project, key } = self;
        Person {
            app: node,
            id: id.clone(),
            organization: organization.clone(),
            password: password.clone(),
            jwt: jwt.clone(),
            cookie: cookie.clone(),
            project: project.clone(),
            key: key.clone(),
        }
    }

    /// Refreshes the session's JWT.
    pub async fn refreshed(mut self) -> Self {
        let asked = self.app.request(Method::GET, "/v2/auth/refreshToken").header("cookie", &self.cookie);
        self.jwt = text(&self.app.send(asked).await.created(), "jwtToken").to_owned();
        self
    }

    /// Logs in once more: another session of the same person.
    pub async fn logged_in_again(&self) -> Self {
        let user = self.get("/v2/auth/user").await.ok();
        Self::known(self.app, user, self.password.clone()).await
    }

    /// Returns a request with this person's token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.app.request(method, path);
        match &self.key {
            Some(key) => request.header("api_auth_token", key),
            None => request.bearer_auth(&self.jwt),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.app.send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.app.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.app.send(with_json(self.request(Method::POST, path), &body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.app.send(with_json(self.request(Method::PUT, path), &body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.app.send(with_json(self.request(Method::PATCH, path), &body)).await
    }

    /// Posts a text that need not be JSON, as JSON.
    pub async fn post_text(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        self.app.send(request.body(body)).await
    }

    /// Puts a text, character by character as given, as JSON.
    pub async fn put_text(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::PUT, path).header("content-type", "application/json");
        self.app.send(request.body(body)).await
    }

    /// Posts plain text.
    pub async fn post_plain(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "text/plain");
        self.app.send(request.body(body)).await
    }

    /// Gets something in another form than JSON.
    pub async fn get_as(&self, media_type: &str, path: &str) -> Answer {
        self.app.send(self.request(Method::GET, path).header("accept", media_type)).await
    }

    /// Creates a user in its own organization, who logs in.
    pub async fn invites(&self, name: &str, role: &str) -> Person<'a> {
        let user = self.post("/v2/users", new_user(name, role)).await.created();
        Person::known(self.app, user, password_of(name)).await
    }

    /// Creates a user in another organization, who logs in.
    pub async fn invites_into(&self, organization: &str, name: &str, role: &str) -> Person<'a> {
        let mut body = new_user(name, role);
        body["organizationId"] = json!(organization);
        let user = self.post("/v2/users", body).await.created();
        Person::known(self.app, user, password_of(name)).await
    }

    /// Founds an organization beneath another; its id.
    pub async fn founds(&self, name: &str, parent: &str) -> String {
        let made = self.post("/v2/organizations", json!({"name": name, "parentId": parent})).await.created();
        text(&made, "id").to_owned()
    }

    /// Reads an organization again.
    pub async fn organization(&self, id: &str) -> Value {
        self.get(&format!("/v2/organizations/{id}")).await.ok()
    }

    /// Changes an organization, whose name a body must say.
    pub async fn changes(&self, id: &str, mut body: Value) -> Answer {
        if body["name"].is_null() {
            body["name"] = json!("changed");
        }
        self.put(&format!("/v2/organizations/{id}"), body).await
    }

    /// Creates a project; its id.
    pub async fn creates_project(&self, name: &str) -> String {
        let made = self.post("/v2/projects", json!({"name": name})).await.created();
        text(&made, "id").to_owned()
    }

    /// Creates a project that runs this cloud plane; its id.
    pub async fn designs(&self, elements: Value) -> String {
        let project = self.creates_project("designed").await;
        self.redesigns(&project, elements).await.ok();
        project
    }

    /// Overwrites the design of a project.
    pub async fn redesigns(&self, project: &str, elements: Value) -> Answer {
        let body = json!({"name": "designed", "planes": {"cloud": {"elements": elements}}});
        self.put(&format!("/v2/projects/{project}/specification"), body).await
    }

    /// Returns the project of this person's devices unless a scene uses another one: an empty design.
    pub async fn project(&self) -> &str {
        self.project.get_or_init(|| self.creates_project("everyday")).await
    }

    /// Creates a device of its everyday project.
    pub async fn creates_device(&self, name: &str) -> Device<'a> {
        self.creates_device_of(self.project().await, name).await
    }

    /// Creates a device of a project.
    pub async fn creates_device_of(&self, project: &str, name: &str) -> Device<'a> {
        self.creates_device_as(json!({"name": name, "projectUuid": project})).await
    }

    /// Creates a device from a whole body.
    pub async fn creates_device_as(&self, body: Value) -> Device<'a> {
        Device::of(self.app, &self.post("/v2/devices", body).await.created())
    }

    /// Makes an API key for itself; its secret.
    pub async fn makes_api_key(&self, name: &str) -> String {
        let path = format!("/v2/users/{}/apiKeys", self.id);
        text(&self.post(&path, json!({"name": name})).await.created(), "key").to_owned()
    }
}

/// Returns a member that is a text.
#[track_caller]
pub fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_else(|| panic!("no text {member} in {value}"))
}
