//! Events: posted by devices, queued for devices, history and the live stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use futures::future::{Either, ready};
use futures::{Stream, StreamExt as _, stream};
use isobar_hub::{
    Accepted, HistoryQuery, QueueBudget, QueueRead, ResumeAfter, StreamScope, StreamWriter, TenantShare, WaitPlace,
};
use isobar_model::access::Action;
use isobar_model::alarm::Alarm;
use isobar_model::error::Error;
use isobar_model::event::{Event, EventError};
use isobar_model::ids::DeviceId;
use isobar_model::page::PageRequest;
use isobar_model::time::Clock;
use parking_lot::Mutex;
use utoipa::ToSchema;

use super::alarms::AlarmJson;
use super::values::{AnyJson, Id, Time};
use super::words::EventTypeText;
use crate::problem::Problem;
use crate::request::query::Query;
use crate::request::{Call, ClientSocket, after, both};
use crate::response::{self, Answer, Response, SMALL_BODY_BYTES};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Header that tells nginx not to buffer a response.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Longest silence of an event stream, after which a comment is sent.
const STREAM_COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Bytes that a stream writes of available data before the task yields.
const STREAM_TURN_BYTES: usize = 8 << 10;
/// An empty comment, which readers of a stream ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// Interval of the comments that detect if a client that has closed its side is still there.
const CLIENT_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Accepts a device event. The reply is 201 once the event and its effects are durable.
pub(crate) async fn device_event_create(call: &mut Call) -> Result<Accepted, Problem> {
    let body = call.json_bytes().await;
    let query = call.query();
    let (device, element) = (query.get("deviceId"), query.get("elementName"));
    let (key, body) = match both(call.idempotency_key(), body) {
        Ok(input) => input,
        faulty => Box::pin(after(call.hub().event_parameters(&call.principal, device, element), faulty)).await?,
    };
    Ok(call.hub().event_accept(&call.principal, device, element, body, key).await?)
}

pub(crate) async fn cloud_event_send(call: &mut Call) -> Answer {
    let body = call.json_bytes().await;
    let query = call.query();
    let (device, element) = (query.get("deviceId"), query.get("elementName"));
    let input = both(call.idempotency_key(), body);
    let caller = call.caller()?;
    let (key, body) = after(call.hub().cloud_event_parameters(caller, device, element), input).await?;
    let id = call.hub().cloud_event_send(caller, device, element, body, key).await?;
    response::created_id(id)
}

pub(crate) async fn cloud_events(call: &mut Call) -> Answer {
    let (events, memory) = queued(call, None).await?;
    let mut body = Vec::with_capacity(256);
    response::array(&events, Event::write_json, &mut body);
    Ok(memory.hold(response::raw_json(StatusCode::OK, body)))
}

pub(crate) async fn cloud_event_next(call: &mut Call) -> Answer {
    let (events, memory) = queued(call, Some(PageRequest::new(1, 1))).await?;
    match events.into_iter().next() {
        Some(event) => Ok(memory.hold(response::raw_json(StatusCode::OK, event.payload.shared()))),
        None => response::no_content(),
    }
}

/// Reads a page of a queue, `page` or the one requested, with the memory that it takes.
async fn queued(call: &Call, page: Option<PageRequest>) -> Result<(Vec<Event>, QueueMemory), Problem> {
    let mut query = call.query();
    let read = queue_read(call, &mut query);
    let device = query.text("deviceId");
    let read = after(call.hub().allow_queue(&call.principal, device.as_deref()), query.end(read)).await?;
    let (_place, given_up) = long_wait(call, &read)?;
    let credentials = call.credentials();
    let memory = QueueMemory::of(call);
    let read = (QueueRead { page: page.unwrap_or(read.page), ..read }, memory.budget());
    let events = call.hub().cloud_events(&credentials, &call.principal, device.as_deref(), read, given_up).await;
    Ok((memory.had_room(events)?, memory))
}

/// Memory of events taken from a queue. It is charged before they are taken, because they are stored nowhere else after
/// that.
struct QueueMemory {
    share: Arc<Mutex<Option<TenantShare>>>,
    is_full: Arc<AtomicBool>,
}

impl QueueMemory {
    fn of(call: &Call) -> Self {
        let share = Arc::new(Mutex::new(Some(call.no_response_memory())));
        Self { share, is_full: Arc::default() }
    }

    fn budget(&self) -> QueueBudget {
        let (share, is_full) = (Arc::clone(&self.share), Arc::clone(&self.is_full));
        Arc::new(move |bytes| {
            let takes = if bytes > SMALL_BODY_BYTES { bytes } else { 0 };
            let fits = share.lock().as_mut().is_some_and(|share| share.resize(takes).is_ok());
            is_full.store(!fits, Ordering::Relaxed);
            fits
        })
    }

    /// Returns what was taken, or a refusal that says that the memory was full.
    fn had_room(&self, taken: Result<Vec<Event>, Error>) -> Result<Vec<Event>, Problem> {
        match taken {
            Err(Error::Busy) if self.is_full.load(Ordering::Relaxed) => Err(Problem::AnswersUntaken { is_done: false }),
            other => Ok(other?),
        }
    }

    /// Attaches the memory to the response until it is sent. Events that were only peeked at are charged like any other
    /// response.
    fn hold(&self, response: Response) -> Response {
        match self.share.lock().take() {
            Some(share) => response::with_memory(response, share),
            None => response,
        }
    }
}

pub(crate) async fn cloud_event_delete(call: &mut Call) -> Answer {
    let id = call.id("id", "cloud event")?;
    let device = call.query().text("deviceId");
    call.hub().cloud_event_delete(&call.principal, device.as_deref(), id).await?;
    response::no_content()
}

/// Takes a place for a call that asks to wait; the future completes when the wait ends early, because its client has
/// closed its side or the place was given away.
fn long_wait<'c>(
    call: &'c Call,
    read: &QueueRead,
) -> Result<(Option<WaitPlace>, impl Future<Output = ()> + Send + use<'c>), Error> {
    let closed = call.client_closed();
    if read.wait.is_zero() {
        return Ok((None, Either::Left(closed)));
    }
    let (place, evicted) = call.long_wait()?;
    let given_up = async move {
        tokio::select! {
            () = closed => {}
            () = evicted => {}
        }
    };
    Ok((Some(place), Either::Right(given_up)))
}

fn queue_read(call: &Call, query: &mut Query<'_>) -> QueueRead {
    QueueRead {
        element: query.element_name(),
        page: query.page(),
        // Only returned events are removed (contract: Events): HEAD returns nothing.
        peek: query.boolean("peek", false) || call.is_head(),
        wait: query.wait(),
    }
}

pub(crate) async fn history(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("deviceId", "device")?;
    let mut query = call.query();
    let asked = HistoryQuery {
        device_events: query.boolean("deviceEvents", true),
        cloud_events: query.boolean("cloudEvents", true),
        range: query.range(),
        page: query.page(),
        ..HistoryQuery::default()
    };
    let allowed = call.hub().allow_device(&call.principal, id, Action::DeviceRead);
    let asked = after(allowed, query.end(asked)).await?;
    let page = call.hub().history(call.caller()?, id, asked).await?;
    let memory = call.response_memory(page.items.iter().map(|event| event.payload.bytes().len()))?;
    response::page_written(page, memory, Event::write_json).await
}

pub(crate) async fn history_event(call: &mut Call) -> Answer {
    let (device, id) = (call.id("deviceId", "device")?, call.id("id", "event")?);
    let event = call.hub().history_event(call.caller()?, device, id).await?;
    let mut body = Vec::with_capacity(256);
    event.write_json(&mut body);
    Ok(response::raw_json(StatusCode::OK, body))
}

pub(crate) async fn event_stream(call: &mut Call) -> Answer {
    let mut query = call.query();
    let (device, organization) = (query.id("deviceId"), query.id("organizationId"));
    let ((), last) = both(query.end(()), last_event_id(call).map_err(Problem::from))?;
    let scope = device.map_or(StreamScope::Organization(organization), StreamScope::Device);
    let events = call.hub().event_stream(&call.credentials(), scope, last, SERVER_SENT).await?;
    let (place, evicted) = call.long_wait()?;
    let mut stopping = call.state.stopping.subscribe();
    let ended = async move {
        tokio::select! {
            // The sender lives as long as the server: an error means a stop too.
            _ = stopping.wait_for(|stopped| *stopped) => {}
            // The client resumes where the stream ended.
            () = evicted => {}
        }
    };
    let events = events.map(move |text| {
        let _place = &place;
        text.unwrap_or_else(|error| Bytes::from(format!(": the stream ends: {error}\n\n")))
    });
    let clock = call.hub().clock().clone();
    let text =
        with_client_checks(kept_open(in_turns(events, Bytes::len), clock.clone()), call.client.socket.clone(), clock);
    let text = text.map(Ok::<_, Infallible>).take_until(Box::pin(ended));
    let mut response = Response::new(Body::from_stream(text).into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Yields after [`STREAM_TURN_BYTES`] of available data: many streams that catch up would otherwise block the thread
/// for a quarter of a mebibyte each.
fn in_turns<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    bytes: fn(&T) -> usize,
) -> impl Stream<Item = T> + Send + 'static {
    stream::unfold((Box::pin(stream), 0), move |(mut stream, mut taken)| async move {
        if taken >= STREAM_TURN_BYTES {
            tokio::task::yield_now().await;
            taken = 0;
        }
        let item = stream.next().await?;
        taken += bytes(&item);
        Some((item, (stream, taken)))
    })
}

/// Sends a comment after a long silence, so that proxies do not drop the connection as dead.
fn kept_open(
    events: impl Stream<Item = Bytes> + Send + 'static,
    clock: Clock,
) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold((Box::pin(events), clock), |(mut events, clock)| async move {
        let next = clock.timeout(STREAM_COMMENT_EVERY, events.next()).await;
        Some((next.unwrap_or(Some(COMMENT))?, (events, clock)))
    })
}

/// Ends a stream when its client is gone. A client that has closed its side still gets the stream; as only a write
/// reveals if it is there, a comment is sent every second from then on.
fn with_client_checks(
    events: impl Stream<Item = Bytes> + Send + 'static,
    socket: Option<ClientSocket>,
    clock: Clock,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let checks = stream::unfold((socket, clock), |(socket, clock)| async move {
        let Some(socket) = socket else { return std::future::pending().await };
        match socket.closed().await {
            Ok(()) => {
                clock.sleep(CLIENT_CHECK_EVERY).await;
                Some((Some(COMMENT), (Some(socket), clock)))
            }
            Err(_) => Some((None, (None, clock))),
        }
    });
    // The end of either ends both.
    let events = events.map(Some).chain(stream::once(ready(None)));
    stream::select(events, checks).take_while(|sent| ready(sent.is_some())).filter_map(ready)
}

/// Reads the identifier after which a broken stream resumes.
fn last_event_id(call: &Call) -> Result<Option<ResumeAfter>, Error> {
    // Browsers send an empty header if the last message had no id.
    let sent = call.head.headers.get(LAST_EVENT_ID).filter(|sent| !sent.as_bytes().trim_ascii().is_empty());
    sent.map(|sent| call.hub().resume_after(sent.to_str().unwrap_or_default())).transpose()
}

/// Writers of server-sent events (HTML Standard, section 9.2).
const SERVER_SENT: StreamWriter = StreamWriter { event: write_event, alarm: write_alarm, id: write_id };

fn write_event(event: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.kind.name().as_bytes());
    out.extend_from_slice(b"\nid: ");
    out.extend_from_slice(event.id.to_string().as_bytes());
    write_data(out, |out| event.write_json(out));
}

/// Writes an alarm without an id: a stream resumes after an event, whatever alarms came since.
fn write_alarm(alarm: &Alarm, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: alarm");
    write_data(out, |out| {
        if let Err(error) = serde_json::to_writer(out, &AlarmJson::from(alarm.clone())) {
            tracing::error!(%error, "cannot write an alarm as JSON");
        }
    });
}

/// Writes an id alone: readers resume after it, and show nothing.
fn write_id(id: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Writes JSON as the data of an event, and ends the event.
fn write_data(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"\ndata: ");
    let begin = out.len();
    write(out);
    // A line break between JSON tokens would end the line of the stream.
    out[begin..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"\n\n");
}

/// An identifier alone.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the shape that `response::created_id` writes, for the OpenAPI document")]
#[schema(as = EventId)]
pub(crate) struct IdJson {
    id: Id,
}

/// A device event or a cloud event.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape that the model writes, for the OpenAPI document")]
#[schema(as = Event)]
pub(crate) struct EventJson {
    id: Id,
    r#type: EventTypeText,
    device_id: Id,
    element_name: String,
    payload: AnyJson,
    received_at: Time,
    /// Present when something went wrong.
    #[schema(required = false)]
    errors: Vec<EventError>,
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _, stream};

    use super::{STREAM_TURN_BYTES, in_turns};

    #[tokio::test]
    async fn stream_with_much_data_yields() {
        const ITEMS: usize = 1_000;
        let mut all = Box::pin(in_turns(stream::iter(0..ITEMS), |_| STREAM_TURN_BYTES / 10));
        let (mut told, mut turns) = (Vec::new(), 0);
        loop {
            match all.next().now_or_never() {
                Some(Some(item)) => told.push(item),
                Some(None) => break,
                None => {
                    turns += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
        assert_eq!(told, (0..ITEMS).collect::<Vec<_>>());
        assert_eq!(turns, ITEMS / 11, "the eleventh of each turn would be beyond it");
    }
}
