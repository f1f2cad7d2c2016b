//! The OpenAPI 3.1 document, built from the table of operations and the types of bodies.

mod finish;
pub(crate) mod operations;
pub(crate) mod parameters;
pub(crate) mod webhook;

use std::sync::OnceLock;

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isobar_model::access::Action;
use isobar_model::error::Error;
use isobar_model::page::Meta;
use isobar_model::role::Role;
use isobar_model::secret::Digest;
use serde_json::Value;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    HttpMethod, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder, Ref, RefOr, Required, Response, Server,
};

use self::operations::{Schemas, Shape, Success, of};
use crate::problem::ErrorBody;
use crate::request::{Call, REFRESH_COOKIE};
use crate::response::{self, Answer};
use crate::routes::{RouteAccess, RouteRow, Verb, table};

pub(crate) const JSON_TYPE: &str = "application/json";
/// Version of the API (specification: Versioning).
const VERSION: &str = "2.0.0";
const DOCS: &str = include_str!("docs.html");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Refusals that the document names, once for all operations.
const REFUSALS: &[(u16, &str, &str)] = &[
    (400, "Invalid", "Parameters or the body are invalid; every field that fails is named"),
    (401, "Unauthenticated", "Credentials are missing or invalid"),
    (403, "Forbidden", "The caller sees the thing, but its role forbids the operation"),
    (404, "Missing", "It does not exist, or is out of the caller's reach"),
    (408, "Late", "The body did not come within 60 seconds, or at 16 KiB a second if that takes longer"),
    (412, "Outdated", "The thing is not what If-Match requires it to be; nothing was done"),
    (413, "TooLarge", "The body is over the limit"),
    (429, "RateLimited", "The rate limit is exceeded; retry-after tells when it ends"),
    (500, "Broken", "Something broke on the server's side"),
    (503, "Busy", "Nothing was done; retry-after tells when to try again"),
];

/// Headers of every response that counts against the rate limit.
const HEADERS: &[(&str, Type, &str)] = &[
    ("x-request-id", Type::String, "Names the request in the server's log"),
    ("x-ratelimit-limit", Type::Integer, "Requests allowed in the period"),
    ("x-ratelimit-remaining", Type::Integer, "Requests left until it ends"),
    ("x-ratelimit-reset", Type::Integer, "When it ends, in Unix seconds"),
];

/// Builds the OpenAPI 3.1 document of every operation in [`table`], as served under `/v2/spec`. Builds it anew at each
/// call, without I/O.
pub fn openapi() -> Value {
    finish::finish(serde_json::to_value(drawn()).unwrap_or_default())
}

/// Builds the document from the table of operations.
fn drawn() -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for row in table() {
        paths = paths.path(row.path, PathItem::new(row.method.openapi(), described(&row, &mut schemas)));
    }
    let refusal = of::<ErrorBody>(&mut schemas);
    let mut components = ComponentsBuilder::new();
    for (name, scheme) in security_schemes() {
        components = components.security_scheme(name, scheme);
    }
    for (name, kind, says) in HEADERS {
        let schema = ObjectBuilder::new().schema_type(kind.clone());
        components =
            components.header(*name, HeaderBuilder::new().schema(Some(schema)).description(Some(*says)).build());
    }
    for (status, name, says) in REFUSALS {
        let mut response = with_headers(content(says, JSON_TYPE, Some(refusal.clone())));
        with_header_of(&mut response, *status);
        components = components.response(*name, response);
    }
    let components = components.schemas_from_iter(schemas).build();
    let info = InfoBuilder::new().title("Isobar").version(VERSION).description(Some("An IoT device platform")).build();
    OpenApiBuilder::new().info(info).servers(Some([Server::new("/")])).paths(paths).components(Some(components)).build()
}

fn described(row: &RouteRow, schemas: &mut Schemas) -> OperationBuilder {
    let said = row.docs;
    let mut operation = OperationBuilder::new()
        .tag(said.tag)
        .summary(Some(said.summary))
        .description(
            row.action.map(|action| format!("A user needs at least the role {}.", action.minimum_role().name())),
        )
        .operation_id(Some(operation_id(row)))
        .securities(Some(security(row.access)));
    for parameter in parameters::of_path(row.path).chain(said.parameters.iter().map(|said| said.describe())) {
        operation = operation.parameter(parameter);
    }
    if let Some(shape) = said.body {
        let body_content = ContentBuilder::new().schema(Some(shape(schemas))).build();
        let kinds = said.body_types.iter();
        // A limit that the operator sets is not part of the document.
        let says = match row.access.body_bytes_max(usize::MAX) {
            usize::MAX => None,
            most => Some(format!("At most {most} bytes.")),
        };
        let body = RequestBodyBuilder::new().description(says).required(Some(Required::True));
        let body = kinds.fold(body, |body, kind| body.content(*kind, body_content.clone()));
        operation = operation.request_body(Some(body.build()));
    }
    for success in said.successes {
        let (status, mut response) = succeeded(*success, schemas);
        with_header_of(&mut response, status);
        if said.parameters.iter().any(|parameter| parameter.name == "If-None-Match") {
            add_header(&mut response, "etag", Type::String, "The entity tag of what is answered");
        }
        operation = operation.response(
            status.to_string(),
            if row.access == RouteAccess::Probe { response } else { with_headers(response) },
        );
    }
    for (status, name, _) in REFUSALS.iter().filter(|(status, ..)| may_refuse(row, *status)) {
        operation = operation.response(status.to_string(), RefOr::Ref(Ref::from_response_name(*name)));
    }
    operation
}

/// Returns true if an operation can be refused with that status.
fn may_refuse(row: &RouteRow, status: u16) -> bool {
    let said = row.docs;
    let probe = row.access == RouteAccess::Probe;
    let has = |name: &str| said.parameters.iter().any(|parameter| parameter.name == name);
    match status {
        // Used organizations and projects cannot be deleted, and users cannot delete themselves.
        400 if matches!(row.action, Some(Action::OrganizationDelete | Action::ProjectDelete | Action::UserDelete)) => {
            true
        }
        // A path segment that is not UTF-8 cannot name an element.
        400 if row.path.contains("{elementName}") => true,
        400 => said.body.is_some() || !said.parameters.is_empty(),
        401 => !probe && (row.access != RouteAccess::Open || row.path == "/v2/auth/login"),
        // Only users who may create users in an existing organization can register others there.
        403 if matches!(row.access, RouteAccess::Optional | RouteAccess::Link) => true,
        // A page of another site sent the cookie.
        403 if matches!(row.access, RouteAccess::Cookie | RouteAccess::JwtOrCookie) => true,
        403 => row.action.is_some_and(|action| action.minimum_role() > Role::BasicUser),
        // An unknown device is 400 for a device event (contract: Conventions).
        404 if row.path == crate::routes::MAIN_ROAD.path => false,
        404 if matches!(row.path, "/v2/auth/verify" | "/v2/auth/forgot") => true,
        // A missing thing named by a parameter of the webhook is a fault of that parameter.
        404 if row.access == RouteAccess::ApiKey => false,
        404 => row.path.contains('{') || ["deviceId", "deviceIds", "organizationId", "parentId"].into_iter().any(has),
        // The account may be named in a body there too.
        408 | 413 => said.body.is_some() || row.path == "/v2/auth/verify",
        412 => has("If-Match"),
        429 | 500 => !probe,
        _ => true,
    }
}

fn succeeded(success: Success, schemas: &mut Schemas) -> (u16, Response) {
    match success {
        Success::Json(status, shape) => (status, content("Success", JSON_TYPE, Some(shape(schemas)))),
        Success::Page(status, shape) => (status, content("Success", JSON_TYPE, Some(envelope(shape, schemas)))),
        Success::PageOr(status, shape, others) => (status, content_or(envelope(shape, schemas), others)),
        Success::JsonOr(status, shape, others) => (status, content_or(shape(schemas), others)),
        Success::Array(status, shape) => {
            let list = ArrayBuilder::new().items(shape(schemas));
            (status, content("Success", JSON_TYPE, Some(list.into())))
        }
        Success::Other(status, kind) => {
            let text = ObjectBuilder::new().schema_type(Type::String);
            (status, content("Success", kind, Some(text.into())))
        }
        Success::Empty(status) => (status, content("Success, without content", JSON_TYPE, None)),
    }
}

/// Builds the schema of the pagination envelope around items of this shape.
fn envelope(shape: Shape, schemas: &mut Schemas) -> RefOr<Schema> {
    let (meta, list) = (of::<Meta>(schemas), ArrayBuilder::new().items(shape(schemas)));
    let envelope = ObjectBuilder::new().property("meta", meta).property("data", list);
    envelope.required("meta").required("data").into()
}

fn content(says: &str, kind: &str, schema: Option<RefOr<Schema>>) -> Response {
    let response = ResponseBuilder::new().description(says);
    match schema {
        Some(schema) => response.content(kind, ContentBuilder::new().schema(Some(schema)).build()).build(),
        None => response.build(),
    }
}

/// Builds a response of JSON by a schema, or text of one of these other types.
fn content_or(schema: RefOr<Schema>, others: &[&str]) -> Response {
    let mut response = content("Success", JSON_TYPE, Some(schema));
    for kind in others {
        let text = ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String))).build();
        response.content.insert((*kind).to_owned(), RefOr::T(text));
    }
    response
}

fn with_headers(mut response: Response) -> Response {
    for (name, ..) in HEADERS {
        response.headers.insert((*name).to_owned(), RefOr::Ref(Ref::new(format!("#/components/headers/{name}"))));
    }
    response
}

/// Adds the header of a status, if it has one.
fn with_header_of(response: &mut Response, status: u16) {
    let (name, kind, says) = match status {
        302 => ("location", Type::String, "Where to go"),
        401 => ("www-authenticate", Type::String, "Asks for credentials"),
        429 | 503 => ("retry-after", Type::Integer, "Seconds after which it may be tried again"),
        _ => return,
    };
    add_header(response, name, kind, says);
}

fn add_header(response: &mut Response, name: &str, kind: Type, says: &str) {
    let header = HeaderBuilder::new().schema(Some(ObjectBuilder::new().schema_type(kind)));
    response.headers.insert(name.to_owned(), header.description(Some(says)).build().into());
}

fn security_schemes() -> [(&'static str, SecurityScheme); 6] {
    let in_header = |name: &str| SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new(name)));
    let jwt = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
    [
        ("jwt", SecurityScheme::Http(jwt)),
        ("refreshToken", SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(REFRESH_COOKIE)))),
        ("apiKey", in_header("api_auth_token")),
        ("apiKeyAlt", in_header("authorization")),
        ("deviceToken", in_header("cloud")),
        // `Wall <id>.<secret>` is not a registered scheme, so it is documented as a header.
        ("boardLink", in_header("authorization")),
    ]
}

/// Returns the security schemes of an access, each of which suffices.
fn security(access: RouteAccess) -> Vec<SecurityRequirement> {
    let schemes: &[&str] = match access {
        // An empty list overrides the document's default: no credentials.
        RouteAccess::Probe | RouteAccess::Open => &[],
        RouteAccess::Optional => &["", "jwt", "apiKey", "apiKeyAlt"],
        RouteAccess::Cookie => &["refreshToken"],
        RouteAccess::JwtOrCookie => &["jwt", "refreshToken"],
        RouteAccess::User => &["jwt", "apiKey", "apiKeyAlt"],
        RouteAccess::UserOrDevice => &["jwt", "apiKey", "apiKeyAlt", "deviceToken"],
        RouteAccess::ApiKey => &["apiKey", "apiKeyAlt"],
        RouteAccess::Link => &["boardLink"],
    };
    let requirement = |scheme: &&str| match *scheme {
        "" => SecurityRequirement::default(),
        scheme => SecurityRequirement::new(scheme, [] as [&str; 0]),
    };
    schemes.iter().map(requirement).collect()
}

/// Returns the handler's name as clients write names: `device_fetch` is `deviceFetch`.
fn operation_id(row: &RouteRow) -> String {
    let mut words = row.name.split('_');
    words.next().unwrap_or_default().chars().chain(words.flat_map(capitalized)).collect()
}

fn capitalized(word: &str) -> impl Iterator<Item = char> {
    let (first, rest) = word.split_at_checked(1).unwrap_or_default();
    first.chars().map(|letter| letter.to_ascii_uppercase()).chain(rest.chars())
}

impl Verb {
    fn openapi(self) -> HttpMethod {
        match self {
            Verb::Get => HttpMethod::Get,
            Verb::Post => HttpMethod::Post,
            Verb::Put => HttpMethod::Put,
            Verb::Patch => HttpMethod::Patch,
            Verb::Delete => HttpMethod::Delete,
        }
    }
}

/// Answers with the document.
pub(crate) async fn spec(_call: &mut Call) -> Answer {
    static WRITTEN: OnceLock<Bytes> = OnceLock::new();
    if WRITTEN.get().is_none() {
        let document = serde_json::to_vec(&openapi()).map_err(Error::internal)?;
        // A concurrent call may have set the same document.
        let _ = WRITTEN.set(document.into());
    }
    Ok(response::shared(response::JSON, WRITTEN.get().cloned().unwrap_or_default()))
}

/// Answers with an HTML page that browses the document.
pub(crate) async fn docs(_call: &mut Call) -> Answer {
    let mut response = response::shared(HTML, Bytes::from_static(DOCS.as_bytes()));
    response::protect_page(&mut response, HeaderValue::try_from(docs_policy()).map_err(Error::internal)?);
    Ok(response)
}

/// Returns the content security policy of that page: its own style and script by their digests, the document, and
/// nothing else.
fn docs_policy() -> String {
    let digest = |open: &str, close: &str| {
        let inside = DOCS.split_once(open).and_then(|(_, rest)| rest.split_once(close)).unwrap_or_default().0;
        STANDARD.encode(Digest::of(inside.as_bytes()).0)
    };
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest("<style>", "</style>"),
        digest("<script>", "</script>"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_and_the_table_name_the_same_operations() {
        let document = openapi();
        let described: BTreeSet<String> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys();
                methods.map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect();
        let routed: BTreeSet<String> =
            table().iter().map(|row| format!("{} {}", row.method.name(), row.path)).collect();
        assert_eq!(described, routed);
        assert_eq!(table().len(), routed.len());
    }

    #[test]
    fn references_of_the_document_resolve() {
        fn refs<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str));
                    members.values().for_each(|member| refs(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| refs(item, found)),
                _ => {}
            }
        }
        let document = openapi();
        assert_eq!(document["openapi"], "3.1.0");
        let mut found = Vec::new();
        refs(&document, &mut found);
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
        }
    }

    /// Names of members that hold a secret.
    const SECRETS: [&str; 4] = ["token", "key", "jwtToken", "refreshToken"];

    /// Returns true if a schema has a member that holds a secret, at any depth.
    fn shows_a_secret(document: &Value, schema: &Value) -> bool {
        match schema {
            Value::Object(members) => members.iter().any(|(name, value)| match (name.as_str(), value.as_str()) {
                ("$ref", Some(reference)) => shows_a_secret(document, document.pointer(&reference[1..]).unwrap()),
                ("properties", _) => {
                    let named = value.as_object().unwrap();
                    // Next to an element, `key` is the key of an alarm.
                    let is_of_alarm = named.contains_key("element") || named.contains_key("elementName");
                    let is_secret = |name: &str| named.contains_key(name) && !(name == "key" && is_of_alarm);
                    SECRETS.iter().any(|name| is_secret(name)) || shows_a_secret(document, value)
                }
                ("example" | "examples", _) => false,
                _ => shows_a_secret(document, value),
            }),
            Value::Array(items) => items.iter().any(|item| shows_a_secret(document, item)),
            _ => false,
        }
    }

    #[test]
    fn response_with_a_secret_is_never_compressed() {
        let document = openapi();
        let mut found = 0;
        for row in table() {
            let operation = &document["paths"][row.path][row.method.name().to_lowercase()];
            let shows = shows_a_secret(&document, &operation["responses"]);
            assert!(!shows || !row.is_compressed(), "{} {}", row.method.name(), row.path);
            found += usize::from(shows);
        }
        assert!(found >= 6, "{found} are found");
    }

    #[test]
    fn operation_ids_differ() {
        let ids: BTreeSet<String> = table().iter().map(operation_id).collect();
        assert_eq!(ids.len(), table().len());
    }
}
