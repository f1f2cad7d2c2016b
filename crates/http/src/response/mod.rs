//! Responses: JSON from a view, prepared JSON, or empty.

mod body;
mod coding;
mod compression;
mod entity_tags;
mod event;
mod list;
mod request_id;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION, REFERRER_POLICY, X_FRAME_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use futures::future::ready;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use isobar_hub::{Accepted, TenantShare};
use isobar_model::error::{Error, RateWindow};
use isobar_model::ids::EventId;
use isobar_model::json::RawJson;
use isobar_model::page::{Meta, Page};
use serde::Serialize;

pub use self::body::ResponseBody;
pub(crate) use self::body::SMALL_BODY_BYTES;
pub(crate) use self::coding::{Coding, weighted};
pub(crate) use self::compression::compressed;
pub(crate) use self::entity_tags::EntityTags;
pub(crate) use self::event::{
    EventCreated, EventResponse, NOSNIFF, RATE_LIMIT, RATE_REMAINING, RATE_RESET, add_common_headers,
};
pub(crate) use self::request_id::{REQUEST_ID, RequestId, RequestIds};
use crate::problem::{ErrorBody, Problem};

/// A response with its body.
pub type Response = axum::http::Response<ResponseBody>;

/// Result of a handler that answers by itself.
pub(crate) type Answer = Result<Response, Problem>;

/// Result of a handler, for [`crate::admission`].
pub(crate) enum Reply {
    /// The response.
    Ready(Response),
    /// 201 with the event's identifier, once the event is durable.
    Accepted(Accepted),
    /// The response to a call that counts as several, and the rate window after them.
    Counted(Response, RateWindow),
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        Self::Ready(response)
    }
}

impl From<Accepted> for Reply {
    fn from(accepted: Accepted) -> Self {
        Self::Accepted(accepted)
    }
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Initial capacity of a response's header map.
const HEADERS_CAPACITY: usize = 12;

/// Sets the security headers of an HTML page: it loads only what `policy` allows, is not framed and reveals no
/// referrer.
pub(crate) fn protect_page(response: &mut Response, policy: HeaderValue) {
    const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Makes a response whose body is shared by all responses of its kind.
pub(crate) fn shared(content_type: HeaderValue, body: Bytes) -> Response {
    let mut response = of_type(StatusCode::OK, content_type, Bytes::new());
    *response.body_mut() = ResponseBody::shared(body);
    response
}

/// Attaches memory that was charged before to a response, until it is sent.
pub(crate) fn with_memory(response: Response, memory: TenantShare) -> Response {
    response.map(|body| match body {
        ResponseBody::Whole(bytes) if memory.amount() > 0 => ResponseBody::with_memory(bytes, memory),
        other => other,
    })
}

/// Makes a response with a body of the given type.
pub(crate) fn of_type(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(ResponseBody::Whole(body.into()));
    *response.status_mut() = status;
    let mut headers = HeaderMap::with_capacity(HEADERS_CAPACITY);
    headers.insert(CONTENT_TYPE, content_type);
    *response.headers_mut() = headers;
    response
}

/// Makes a response from prepared JSON.
pub(crate) fn raw_json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    of_type(status, JSON, body)
}

/// Makes a response with a view as its JSON body.
pub(crate) fn json(status: StatusCode, view: &impl Serialize) -> Response {
    match serde_json::to_vec(view) {
        Ok(body) => raw_json(status, body),
        Err(error) => {
            // Views hold texts, numbers and JSON that was checked on input.
            tracing::error!(%error, "cannot write a view as JSON");
            raw_json(StatusCode::INTERNAL_SERVER_ERROR, &br#"{"message":"internal error","errors":[]}"#[..])
        }
    }
}

/// Answers 200 with a view.
pub(crate) fn ok(view: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, view))
}

/// Answers 201 with a view.
pub(crate) fn created(view: &impl Serialize) -> Answer {
    Ok(json(StatusCode::CREATED, view))
}

/// Answers with a message that something was done.
pub(crate) fn message(status: StatusCode, message: &str) -> Answer {
    Ok(json(status, &ErrorBody { message: message.to_owned(), errors: Vec::new() }))
}

/// Answers 204.
pub(crate) fn no_content() -> Answer {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Makes a 304: the client's copy is current.
pub(crate) fn not_modified(tag: &str) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    tagged(response, tag)
}

/// Adds a strong entity tag; `tag` is the text between its quotes.
pub(crate) fn tagged(mut response: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{tag}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Answers 302 to another location.
pub(crate) fn found(location: &str) -> Answer {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(location).map_err(Error::internal)?);
    Ok(response)
}

/// Answers 201 with the identifier of an event.
pub(crate) fn created_id(id: EventId) -> Answer {
    Ok(raw_json(StatusCode::CREATED, format!("{{\"id\":\"{id}\"}}")))
}

/// Answers 200 with the pagination envelope around a page of views, each made when it is written. `memory` is that of
/// its rows.
pub(crate) async fn page<T, V: Serialize>(
    page: Page<T>,
    memory: TenantShare,
    mut view: impl FnMut(T) -> V + Send + 'static,
) -> Answer
where
    T: Send + 'static,
{
    let write = move |item: T, out: &mut Vec<u8>| {
        let _memory = &memory;
        serde_json::to_writer(out, &view(item)).map_err(Error::internal)
    };
    list::answer(page.meta(), stream::iter(page.items.into_iter().map(Ok)), write).await
}

/// Answers 200 with the results of a bulk operation. They may repeat long texts of a design, so each is written as it
/// is read.
pub(crate) async fn outcome<T, V: Serialize>(
    data: Vec<T>,
    view: impl FnMut(T) -> V + Send + 'static,
    errors: &impl Serialize,
) -> Answer
where
    T: Send + 'static,
{
    outcome_as_read(stream::iter(data.into_iter().map(Ok)), view, errors).await
}

/// Answers as [`outcome`] does, with data that are read as they are written.
pub(crate) async fn outcome_as_read<T, V: Serialize>(
    data: impl Stream<Item = Result<T, Error>> + Send + 'static,
    mut view: impl FnMut(T) -> V + Send + 'static,
    errors: &impl Serialize,
) -> Answer
where
    T: Send + 'static,
{
    let mut end = b"],\"errors\":".to_vec();
    serde_json::to_writer(&mut end, errors).map_err(Error::internal)?;
    end.push(b'}');
    let write = move |item: T, out: &mut Vec<u8>| serde_json::to_writer(out, &view(item)).map_err(Error::internal);
    list::within(b"{\"data\":[".to_vec(), data, write, end).await
}

/// Answers 200 with the pagination envelope around items that write themselves. `held` is dropped when the last is
/// written or the response is dropped.
pub(crate) async fn page_written<T: Send + 'static>(
    page: Page<T>,
    held: impl Send + 'static,
    mut write: impl FnMut(&T, &mut Vec<u8>) + Send + 'static,
) -> Answer {
    let write = move |item: T, out: &mut Vec<u8>| {
        let _held = &held;
        write(&item, out);
        Ok(())
    };
    list::answer(page.meta(), stream::iter(page.items.into_iter().map(Ok)), write).await
}

/// Fragment of an answer; all fragments in order form valid JSON.
pub(crate) enum JsonPart {
    /// Written text.
    Text(Vec<u8>),
    /// Stored payload, which is not copied.
    Raw(RawJson),
}

/// Splits the JSON of a view inside its empty list of this name. Text from outside must not follow that list, because
/// the last match is used.
pub(crate) fn opened(view: &impl Serialize, list: &str) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let begin = format!("\"{list}\":[");
    let mut head = serde_json::to_vec(view).map_err(Error::internal)?;
    let place = head.windows(begin.len()).rposition(|text| text == begin.as_bytes());
    let place = place.ok_or_else(|| Error::internal(format!("a view is written without its list {list}")))?;
    let tail = head.split_off(place + begin.len());
    Ok((head, tail))
}

/// Answers 200 with JSON of these parts, each made when it is written.
pub(crate) async fn in_parts(parts: impl Stream<Item = Result<JsonPart, Error>> + Send + 'static) -> Answer {
    let write = |part: JsonPart, out: &mut Vec<u8>| {
        out.extend_from_slice(match &part {
            JsonPart::Text(text) => text,
            JsonPart::Raw(json) => json.bytes(),
        });
        Ok(())
    };
    list::written(Vec::new(), parts, write).await
}

/// Answers 200 with the pagination envelope around items that arrive one by one, each in parts.
pub(crate) async fn page_in_parts<S>(meta: Meta, items: impl Stream<Item = Result<S, Error>> + Send + 'static) -> Answer
where
    S: Stream<Item = Result<JsonPart, Error>> + Send + 'static,
{
    let text = |text: Vec<u8>| stream::once(ready(Ok(JsonPart::Text(text))));
    let items = items.enumerate().map(move |(index, item)| {
        let comma = if index > 0 { b",".to_vec() } else { Vec::new() };
        item.map(|parts| text(comma).chain(parts))
    });
    let end = text(b"]}".to_vec());
    in_parts(text(list::begin(&meta)?).chain(items.try_flatten()).chain(end)).await
}

/// Writes a JSON array of items that write themselves.
pub(crate) fn array<T>(items: &[T], mut write: impl FnMut(&T, &mut Vec<u8>), out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Makes a header value of ASCII letters and digits.
pub(crate) fn ascii_header(text: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(text).unwrap_or(HeaderValue::from_static("0"))
}
