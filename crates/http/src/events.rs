//! Events: the device channel, the cloud-event queue, history and the live stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse as _;
use axum::response::sse::{Event as ServerSent, KeepAlive, Sse};
use futures::future::ready;
use futures::{Stream, StreamExt as _, stream};
use isobar_hub::{Accepted, HistoryRequest, QueueRead, StreamScope};
use isobar_model::access::Action;
use isobar_model::error::Error;
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::page::PageRequest;

use crate::call::{Call, after, both};
use crate::line::Line;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{self, Answer};
use crate::shares::Share;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Between the comments that keep an event stream open.
const STREAM_COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Between those that find out whether a client is there that has ended its own side.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The main road: 201 only after the event and what it caused are durable.
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
    reply::created_id(id)
}

pub(crate) async fn cloud_events(call: &mut Call) -> Answer {
    let mut query = call.query();
    let read = queue_read(call, &mut query);
    let device = query.text("deviceId");
    let read = after(call.hub().allow_queue(&call.principal, device.as_deref()), query.end(read)).await?;
    let (credentials, ends) = (call.credentials(), call.client_ends());
    let _place = place(call, &read)?;
    let events = call.hub().cloud_events(&credentials, &call.principal, device.as_deref(), read, ends).await?;
    let mut body = Vec::with_capacity(256);
    reply::array(&events, Event::write_json, &mut body);
    Ok(reply::raw_json(StatusCode::OK, body))
}

pub(crate) async fn cloud_event_next(call: &mut Call) -> Answer {
    let mut query = call.query();
    let read = QueueRead { page: PageRequest { page: 1, limit: 1 }, ..queue_read(call, &mut query) };
    let device = query.text("deviceId");
    let read = after(call.hub().allow_queue(&call.principal, device.as_deref()), query.end(read)).await?;
    let (credentials, ends) = (call.credentials(), call.client_ends());
    let _place = place(call, &read)?;
    let events = call.hub().cloud_events(&credentials, &call.principal, device.as_deref(), read, ends).await?;
    match events.into_iter().next() {
        Some(event) => Ok(reply::raw_json(StatusCode::OK, event.payload.shared())),
        None => reply::no_content(),
    }
}

pub(crate) async fn cloud_event_delete(call: &mut Call) -> Answer {
    let id = call.id("id", "cloud event")?;
    let device = call.query().text("deviceId");
    call.hub().cloud_event_delete(&call.principal, device.as_deref(), id).await?;
    reply::no_content()
}

/// Where a call waits that says that it would.
fn place(call: &Call, read: &QueueRead) -> Result<Option<Share>, Error> {
    if read.wait.is_zero() { Ok(None) } else { call.place_to_wait().map(Some) }
}

fn queue_read(call: &Call, query: &mut Query<'_>) -> QueueRead {
    QueueRead {
        element: query.element_name(),
        page: query.page(),
        // Only what is returned is removed (contract: Events): HEAD returns nothing.
        peek: query.boolean("peek", false) || call.is_head(),
        wait: query.wait(),
    }
}

pub(crate) async fn history(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("deviceId", "device")?;
    let mut query = call.query();
    let asked = HistoryRequest {
        device_events: query.boolean("deviceEvents", true),
        cloud_events: query.boolean("cloudEvents", true),
        range: query.range(),
        page: query.page(),
    };
    let allowed = call.hub().allow_device(&call.principal, id, Action::DeviceRead);
    let asked = after(allowed, query.end(asked)).await?;
    let page = call.hub().history(call.caller()?, id, asked).await?;
    let room = call.room_to_answer(page.items.iter().map(|event| event.payload.bytes().len()))?;
    reply::page_written(page, room, Event::write_json).await
}

pub(crate) async fn history_event(call: &mut Call) -> Answer {
    let (device, id) = (call.id("deviceId", "device")?, call.id("id", "event")?);
    let event = call.hub().history_event(call.caller()?, device, id).await?;
    let mut body = Vec::with_capacity(256);
    event.write_json(&mut body);
    Ok(reply::raw_json(StatusCode::OK, body))
}

pub(crate) async fn event_stream(call: &mut Call) -> Answer {
    let mut query = call.query();
    let (device, organization) = (query.id("deviceId"), query.id("organizationId"));
    let ((), last) = both(query.end(()), last_event_id(call).map_err(Problem::from))?;
    let scope = device.map_or(StreamScope::Organization(organization), StreamScope::Device);
    let events = call.hub().event_stream(&call.credentials(), scope, last).await?;
    let place = call.place_to_wait()?;
    let mut stopping = call.shared.stopping.subscribe();
    let stopped = async move {
        // The sender lives as long as the room: an error means the same as a stop.
        let _ = stopping.wait_for(|stopped| *stopped).await;
    };
    let events = events.map(move |event| {
        let _place = &place;
        server_sent(event)
    });
    let events = with_looks(events, call.client.line.clone());
    let events = events.map(Ok::<_, Infallible>).take_until(Box::pin(stopped));
    let keep_alive = KeepAlive::new().interval(STREAM_COMMENT_EVERY);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response().map(Into::into))
}

/// A stream that ends when its client is gone. One that has only ended its own side goes on; but whether anybody is there
/// is seen only when something is written, so from then on a comment goes out every second.
fn with_looks(
    events: impl Stream<Item = ServerSent> + Send + 'static,
    line: Option<Line>,
) -> impl Stream<Item = ServerSent> + Send + 'static {
    let looks = stream::unfold(line, |line| async move {
        let Some(line) = line else { return std::future::pending().await };
        match line.end().await {
            Ok(()) => {
                tokio::time::sleep(LOOK_EVERY).await;
                Some((Some(ServerSent::default().comment("")), Some(line)))
            }
            Err(_) => Some((None, None)),
        }
    });
    // An end of either is the end of both.
    let events = events.map(Some).chain(stream::once(ready(None)));
    stream::select(events, looks).take_while(|sent| ready(sent.is_some())).filter_map(ready)
}

/// Where a broken stream goes on.
fn last_event_id(call: &Call) -> Result<Option<EventId>, Error> {
    let Some(sent) = call.head.headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = sent.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Error::invalid("header.Last-Event-ID", "is not an identifier"))
}

/// An event, or a comment that says why none comes any more.
fn server_sent(event: Result<Arc<Event>, Error>) -> ServerSent {
    let event = match event {
        Ok(event) => event,
        Err(error) => return ServerSent::default().comment(format!("the stream ends: {error}")),
    };
    let mut data = Vec::with_capacity(256);
    event.write_json(&mut data);
    // A line break in JSON is white space between tokens, but in a stream it ends the line.
    data.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    // Payloads were checked to be UTF-8 when they came in.
    let data = String::from_utf8_lossy(&data);
    ServerSent::default().event(event.kind.name()).id(event.id.to_string()).data(data)
}
