//! A project with devices, created and read through the API alone.

use reqwest::Method;
use serde_json::{Value, json};

use super::Serving;

/// The password of the first administrator, and of everybody who registers.
pub const PASSWORD: &str = "chosen-by-me";
/// Environment of test servers, without rate limits, as many calls come from one address.
pub const ENVIRONMENT: [(&str, &str); 4] = [
    ("ISOBAR_ADMIN_PASSWORD", PASSWORD),
    ("ISOBAR_RATE_LIMIT__USER", "0"),
    ("ISOBAR_RATE_LIMIT__DEVICE", "0"),
    ("ISOBAR_RATE_LIMIT__ADDRESS", "0"),
];

pub struct Device {
    pub id: String,
    pub token: String,
}

/// A complete answer.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Returns the `id` of a created resource.
    pub fn created(&self) -> String {
        assert_eq!(self.status, 201, "{}", self.body);
        self.json()["id"].as_str().unwrap().to_owned()
    }
}

/// The API of a server, for its administrator and the devices.
#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    /// The administrator's token. It survives the server.
    jwt: String,
}

impl Api {
    /// Logs the administrator in.
    pub async fn of(serving: &Serving) -> Self {
        Self::logged_in(serving, "admin").await
    }

    /// Registers a developer with an organization, who is used in place of the administrator.
    pub async fn registered(serving: &Serving, name: &str) -> Self {
        let account = json!({"username": name, "email": format!("{name}@example.com"), "password": PASSWORD,
            "passwordConfirmation": PASSWORD, "firstName": name, "lastName": "Moreau", "company": name, "role": "developer"});
        let nobody = Self::nobody(serving);
        nobody.send(Method::POST, "/v2/auth/register", &[], Some(&account)).await.unwrap().created();
        Self::logged_in(serving, name).await
    }

    fn nobody(serving: &Serving) -> Self {
        Self { client: reqwest::Client::new(), base: String::new(), jwt: String::new() }.at(serving)
    }

    async fn logged_in(serving: &Serving, name: &str) -> Self {
        let mut api = Self::nobody(serving);
        let login = json!({"usernameOrEmail": name, "password": PASSWORD});
        let answer = api.send(Method::POST, "/v2/auth/login", &[], Some(&login)).await.unwrap();
        api.jwt = answer.json()["jwtToken"].as_str().unwrap().to_owned();
        api
    }

    /// Returns the same administrator at another server, with new connections.
    pub fn at(&self, serving: &Serving) -> Self {
        let base = format!("http://{}", serving.address);
        Self { client: reqwest::Client::new(), base, jwt: self.jwt.clone() }
    }

    /// Makes each call on a connection of its own.
    pub fn without_keeping_connections(self) -> Self {
        Self { client: reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap(), ..self }
    }

    /// Makes a call that may fail.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        self.send_text(method, path, headers, body.map(Value::to_string)).await
    }

    /// Makes a call with a raw body.
    pub async fn send_text(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await?;
        Ok(Answer { status: response.status().as_u16(), body: response.text().await? })
    }

    /// Returns the header of the administrator's credentials.
    pub fn credentials(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", self.jwt))
    }

    /// Makes a call of the administrator that may fail.
    pub async fn send_as_admin(&self, method: Method, path: &str, body: Option<&Value>) -> reqwest::Result<Answer> {
        let (name, value) = self.credentials();
        self.send(method, path, &[(name, &value)], body).await
    }

    /// Makes a call of the administrator that must succeed.
    pub async fn admin(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let answer = self.send_as_admin(method, path, body).await.unwrap();
        assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
        answer.json()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.admin(Method::GET, path, None).await
    }

    /// Returns a whole list, which fits into one page and states its length.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        let page = self.get(path).await;
        let items = page["data"].as_array().unwrap().clone();
        assert_eq!(page["meta"]["totalDocs"], items.len(), "{path}: the list is not as long as it says");
        items
    }

    /// Posts an event of a device.
    pub async fn post(&self, device: &Device, element: &str, payload: &Value) -> Answer {
        let path = format!("/v2/events/device?elementName={element}");
        self.send(Method::POST, &path, &[("cloud", &device.token)], Some(payload)).await.unwrap()
    }

    /// Creates a project with this design, and devices in it.
    pub async fn found(&self, elements: &Value, devices: usize) -> Vec<Device> {
        let project = self.admin(Method::POST, "/v2/projects", Some(&json!({"name": "Site"}))).await;
        let project = project["id"].as_str().unwrap();
        let design = json!({"name": "Site", "planes": {"cloud": {"elements": elements}}});
        self.admin(Method::PUT, &format!("/v2/projects/{project}/specification"), Some(&design)).await;
        let mut made = Vec::with_capacity(devices);
        for number in 0..devices {
            let device = json!({"name": format!("Device {number}"), "projectUuid": project});
            let device = self.admin(Method::POST, "/v2/devices", Some(&device)).await;
            let member = |name: &str| device[name].as_str().unwrap().to_owned();
            made.push(Device { id: member("id"), token: member("token") });
        }
        made
    }

    /// Returns a metric without labels from /metrics.
    pub async fn metric(&self, name: &str) -> f64 {
        let answer = self.send(Method::GET, "/metrics", &[], None).await.unwrap();
        let line = answer.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }
}

/// Returns a design in which an event is stored, queued for its device, and sets the device's status to `payload.n % 4
/// + 1`.
pub fn everything() -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            {"element": "log", "ability": "store"},
            {"element": "order", "ability": "send"},
            {"element": "state", "ability": "setStatus", "arguments": {"status": "payload.n % 4 + 1"}},
        ]}},
        "log": {"type": "storage"},
        "order": {"type": "cloudEvent"},
        "state": {"type": "deviceMeta"},
    })
}
