//! `http`: calls a server outside. The answer arrives later and triggers `response` or `error` in a run of its own.

use std::sync::Arc;

use isobar_model::json::{Json, RawJson};

use super::context::{Passed, Run};
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::{Expression, to_raw};
use crate::value::effect::{Effect, OutgoingRequest};
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Problem, Value};

pub(crate) const SHAPE: Shape = Shape {
    name: "http",
    abilities: &[Ability { name: "request", arguments: &[] }],
    triggers: &["response", "error"],
    read: Http::read,
};

/// Permitted methods.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Longest address, in bytes.
const URL_BYTES_MAX: usize = 2_048;
/// Most headers of a call.
const HEADERS_MAX: usize = 32;
/// Longest name and longest value of a header, in bytes.
const HEADER_NAME_BYTES_MAX: usize = 128;
const HEADER_VALUE_BYTES_MAX: usize = 4_096;
/// Longest body, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Headers of the connection, which a design must not set.
const RESERVED_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const CONTENT_TYPE: &str = "content-type";

/// An http element.
#[derive(Debug)]
pub(crate) struct Http {
    name: Arc<str>,
    method: RequestPart,
    url: RequestPart,
    headers: Vec<(String, RequestPart)>,
    body: Option<RequestPart>,
}

/// A part of a request.
#[derive(Debug)]
enum RequestPart {
    Computed(Expression),
    /// A constant text.
    Text(String),
    /// Any other constant JSON.
    Json(RawJson),
}

impl HeldBytes for RequestPart {
    fn held_bytes(&self) -> usize {
        match self {
            RequestPart::Computed(expression) => expression.held_bytes(),
            RequestPart::Text(text) => text.held_bytes(),
            RequestPart::Json(json) => json.held_bytes(),
        }
    }
}

impl HeldBytes for Http {
    fn held_bytes(&self) -> usize {
        let address = self.method.held_bytes() + self.url.held_bytes();
        address + self.headers.held_bytes() + self.body.held_bytes()
    }
}

impl Http {
    fn read(properties: &mut Properties<'_>) -> Element {
        let body = properties.get("body").map(|body| match body {
            Json::Text(_) => RequestPart::Computed(properties.required_expression("body")),
            constant => RequestPart::Json(RawJson::from(constant)),
        });
        let method = method(properties, body.is_some());
        if let (RequestPart::Text(method), Some(_)) = (&method, &body)
            && is_bodiless(method)
        {
            properties.fault("body", format!("{method} has no body"));
        }
        let url = match properties.get("url").and_then(Json::as_text) {
            // No expression begins like an address.
            Some(url) if is_web_address(url) => {
                if let Err(problem) = check_url(url) {
                    properties.fault("url", problem.0.into_owned());
                }
                RequestPart::Text(url.to_owned())
            }
            _ => RequestPart::Computed(properties.required_expression("url")),
        };
        let headers = headers(properties);
        Element::Http(Self { name: properties.name.clone(), method, url, headers, body })
    }

    pub(crate) fn request<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let compute = |part: &'e RequestPart, run: &Run<'e>| -> Computed<String> {
            match part {
                RequestPart::Text(text) => Ok(text.clone()),
                RequestPart::Json(raw) => {
                    run.budget.spend_bytes(raw.bytes().len())?;
                    Ok(raw.text().to_owned())
                }
                RequestPart::Computed(expression) => text_of(&run.compute(expression, incoming)?, run),
            }
        };
        run.budget.may_send()?;
        let method = known_method(&compute(&self.method, run)?)
            .ok_or_else(|| Problem::new(format!("the method must be one of {}", METHODS.join(", "))))?;
        let url = compute(&self.url, run)?;
        check_url(&url)?;
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, part) in &self.headers {
            let value = compute(part, run)?;
            check_header_value(&value).map_err(|fault| Problem::new(format!("the header '{name}' {fault}")))?;
            headers.push((name.clone(), value));
        }
        let (body, content_type) = match &self.body {
            None => (None, None),
            Some(part @ (RequestPart::Text(_) | RequestPart::Json(_))) => {
                (Some(compute(part, run)?), Some("application/json"))
            }
            Some(RequestPart::Computed(expression)) => {
                let value = run.compute(expression, incoming)?;
                let is_text = value.as_text().is_some();
                let content_type = if is_text { "text/plain; charset=utf-8" } else { "application/json" };
                (Some(text_of(&value, run)?), Some(content_type))
            }
        };
        if body.as_ref().is_some_and(|body| body.len() > BODY_BYTES_MAX) {
            return Err(Problem::new(format!("the body is longer than {BODY_BYTES_MAX} bytes")));
        }
        if body.is_some() && is_bodiless(method) {
            return Err(Problem::new(format!("{method} has no body")));
        }
        if let Some(content_type) = content_type
            && !headers.iter().any(|(name, _)| name == CONTENT_TYPE)
        {
            headers.push((CONTENT_TYPE.to_owned(), content_type.to_owned()));
        }
        run.budget.spend_bytes(url.len() + body.as_ref().map_or(0, String::len))?;
        let request = OutgoingRequest { method, url, headers, body };
        run.budget.emit(Effect::Call { element: self.name.clone(), request })?;
        Ok(Passed::nothing())
    }
}

/// Reads the method: a word, or an expression; the default is POST with a body, else GET.
fn method(properties: &mut Properties<'_>, has_body: bool) -> RequestPart {
    let Some(given) = properties.get("method") else {
        return RequestPart::Text(if has_body { "POST" } else { "GET" }.to_owned());
    };
    let word = given.as_text().unwrap_or_default();
    if !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return RequestPart::Computed(properties.required_expression("method"));
    }
    // A bare word is a method; as an expression it would be an unknown variable.
    let method = known_method(word).unwrap_or_else(|| {
        properties.fault("method", format!("must be one of {}, or an expression", METHODS.join(", ")));
        METHODS[0]
    });
    RequestPart::Text(method.to_owned())
}

fn headers(properties: &mut Properties<'_>) -> Vec<(String, RequestPart)> {
    let members = match properties.get("headers") {
        None => return Vec::new(),
        Some(Json::Object(members)) if members.len() <= HEADERS_MAX => members,
        Some(Json::Object(_)) => {
            properties.fault("headers", format!("has at most {HEADERS_MAX} members"));
            return Vec::new();
        }
        Some(_) => {
            properties.fault("headers", "must be an object of expressions");
            return Vec::new();
        }
    };
    let mut headers: Vec<(String, RequestPart)> = Vec::with_capacity(members.len());
    for (given, value) in members {
        let (name, place) = (given.to_ascii_lowercase(), format!("headers.{given}"));
        if let Some(fault) = header_name_fault(&name, &headers) {
            properties.fault(&place, fault);
            continue;
        }
        match value {
            Json::Number(_) | Json::Bool(_) => headers.push((name, RequestPart::Json(RawJson::from(value)))),
            value => {
                let expression = properties.compiled(&place, value);
                headers.extend(expression.map(|expression| (name, RequestPart::Computed(expression))));
            }
        }
    }
    headers
}

fn header_name_fault(name: &str, before: &[(String, RequestPart)]) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX || !name.bytes().all(is_token) {
        return Some("is no name of a header");
    }
    if RESERVED_HEADERS.contains(&name) {
        return Some("may not be set");
    }
    before.iter().any(|(other, _)| other == name).then_some("is there twice")
}

fn check_header_value(value: &str) -> Result<(), String> {
    if value.len() > HEADER_VALUE_BYTES_MAX {
        return Err(format!("is longer than {HEADER_VALUE_BYTES_MAX} bytes"));
    }
    if !value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
        return Err("has a character that a header cannot carry".to_owned());
    }
    Ok(())
}

fn check_url(url: &str) -> Computed<()> {
    if !is_web_address(url) {
        return Err(Problem::new("the url must begin with http:// or https://"));
    }
    if url.len() > URL_BYTES_MAX {
        return Err(Problem::new(format!("the url is longer than {URL_BYTES_MAX} bytes")));
    }
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Problem::new("the url has white space in it"));
    }
    Ok(())
}

fn is_web_address(url: &str) -> bool {
    let begins = |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins("http://") || begins("https://")
}

fn is_bodiless(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

fn known_method(word: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|method| method.eq_ignore_ascii_case(word))
}

/// Converts a text to itself, anything else to JSON.
fn text_of(value: &Value<'_>, run: &Run<'_>) -> Computed<String> {
    match value.as_text() {
        Some(text) => {
            run.budget.spend_bytes(text.len())?;
            Ok(text.to_owned())
        }
        None => Ok(to_raw(value, &run.budget)?.text().to_owned()),
    }
}
