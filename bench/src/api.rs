//! The API as the measurements use it: one connection, an API key.

use serde_json::{Value, json};

use crate::Failure;
use crate::process::ADMIN_PASSWORD;
use crate::wire::{Reply, Wire, request};

/// The password of everybody who registers.
pub const PASSWORD: &str = "secret-of-mine";

/// A connection in somebody's name.
pub struct Api {
    wire: Wire,
    address: String,
    credential: String,
}

impl Api {
    /// Logs the administrator in and makes an API key: it outlives every measurement.
    pub async fn log_in(address: &str) -> Result<Self, Failure> {
        Self::nobody(address).await?.with_key("admin", ADMIN_PASSWORD).await
    }

    /// Registers a developer, who founds an organization, and makes an API key.
    pub async fn register(address: &str, name: &str) -> Result<Self, Failure> {
        let mut api = Self::nobody(address).await?;
        let account = json!({"username": name, "email": format!("{name}@example.com"), "password": PASSWORD,
            "passwordConfirmation": PASSWORD, "firstName": name, "lastName": "Moreau", "company": format!("{name} and sons"),
            "role": "developer"});
        api.call("POST", "/v2/auth/register", Some(&account)).await?;
        api.with_key(name, PASSWORD).await
    }

    async fn nobody(address: &str) -> Result<Self, Failure> {
        Ok(Self { wire: Wire::open(address).await?, address: address.to_owned(), credential: String::new() })
    }

    async fn with_key(mut self, name: &str, password: &str) -> Result<Self, Failure> {
        let login = json!({"usernameOrEmail": name, "password": password});
        let token = self.call("POST", "/v2/auth/login", Some(&login)).await?;
        self.credential = format!("authorization: Bearer {}", text(&token, "jwtToken")?);
        let user = self.call("GET", "/v2/auth/user", None).await?;
        let path = format!("/v2/users/{}/apiKeys", text(&user, "id")?);
        let key = self.call("POST", &path, Some(&json!({"name": "bench"}))).await?;
        self.credential = format!("api_auth_token: {}", text(&key, "key")?);
        Ok(self)
    }

    /// Where the server listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The header that says who calls.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// The same user on a connection of its own.
    pub async fn again(&self) -> Result<Self, Failure> {
        let wire = Wire::open(&self.address).await?;
        Ok(Self { wire, address: self.address.clone(), credential: self.credential.clone() })
    }

    /// The answer to a call, as it came.
    pub async fn reply(&mut self, method: &str, target: &str, body: Option<&Value>) -> Result<Reply, Failure> {
        let body = body.map(Value::to_string);
        let request = request(method, &self.address, target, &self.credential, body.as_deref());
        let reply = self.wire.exchange(&request).await?;
        if !(200..300).contains(&reply.status) {
            let told = String::from_utf8_lossy(&reply.body);
            return Err(format!("{method} {target} answers {}: {told}", reply.status).into());
        }
        Ok(reply)
    }

    /// A figure of the server's own; 0 while it tells none.
    pub async fn metric(&mut self, name: &str) -> Result<f64, Failure> {
        let metrics = String::from_utf8(self.reply("GET", "/metrics", None).await?.body)?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.and_then(|value| value.trim().parse().ok()).unwrap_or_default())
    }

    /// The JSON that answers a call.
    pub async fn call(&mut self, method: &str, target: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let reply = self.reply(method, target, body).await?;
        Ok(serde_json::from_slice(&reply.body).unwrap_or_default())
    }
}

/// A text member of an answer.
pub fn text(answer: &Value, member: &str) -> Result<String, Failure> {
    let text = answer[member].as_str().map(str::to_owned);
    text.ok_or_else(|| format!("the answer holds no {member}: {answer}").into())
}
