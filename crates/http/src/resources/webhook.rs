//! The integration webhook: parameters in the query or in headers, and a short or a detailed answer.

use std::iter;
use std::sync::Arc;

use futures::stream;
use isobar_hub::{Given, TaskReport, WEBHOOK_PARAMETERS, WebhookReport};
use isobar_model::access::Action;
use isobar_model::error::Error;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{AnyJson, Id, Raw, Time};
use crate::request::{Call, after};
use crate::response::{self, Answer, JsonPart};

/// Most bytes of a body (contract: Conventions).
const WEBHOOK_BODY_BYTES_MAX: usize = 5 << 20;

pub(crate) async fn webhook_receive(call: &mut Call) -> Answer {
    let body = call.json_bytes_up_to(WEBHOOK_BODY_BYTES_MAX.max(call.state.settings.max_body_bytes)).await;
    let body = after(call.hub().allow(call.caller()?, Action::WebhookReceive), body).await?;
    let given = WEBHOOK_PARAMETERS.into_iter().filter_map(|name| Some((name, given(call, name)?))).collect();
    let report = call.hub().webhook_receive(call.caller()?, given, body).await?;
    call.state.meters.events_accepted.increment(report.tasks.iter().map(|task| task.events.len() as u64).sum());
    if report.debug { debug_answer(report).await } else { response::ok(&WebhookAnswer::short(&report)) }
}

/// Returns a parameter: the query wins over the header (contract: Integration webhook).
fn given(call: &Call, name: &str) -> Option<Given> {
    if let Some(text) = call.query().get(name) {
        return Some(Given { field: format!("query.{name}"), text: Some(text.to_owned()) });
    }
    let value = call.head.headers.get(name)?;
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned);
    Some(Given { field: format!("header.{name}"), text })
}

/// The answer to a delivery.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum WebhookAnswer {
    /// Without debug: what was done, in words, and what went wrong.
    Short {
        /// A summary in words.
        message: String,
        /// The errors, event block by event block.
        errors: Vec<MessageJson>,
    },
    /// With debug. It is written in parts.
    #[expect(dead_code, reason = "the shape that `debug_answer` writes, for the OpenAPI document")]
    Debug {
        /// Everything that was found and done.
        debug: WebhookDebug,
    },
}

/// Something that went wrong.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageJson {
    /// The error, in words.
    message: String,
}

/// Everything that was found in a delivery and done for it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookDebug {
    /// Everything that went wrong.
    errors: Vec<MessageJson>,
    extracted_tasks: ExtractedTasks,
    task_executions: TaskExecutions,
}

/// The tasks that were found in a body.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExtractedTasks {
    /// The body.
    #[schema(value_type = AnyJson)]
    request_body: Raw,
    /// One for each device.
    tasks: Vec<TaskJson>,
    /// The errors of event blocks that could not be read.
    errors: Vec<MessageJson>,
}

/// The task for one device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookTask)]
pub(crate) struct TaskJson {
    /// The label that holds what the third party calls the device.
    device_tag: String,
    /// The third party's name for the device.
    device_tag_value: String,
    /// The labels that it was to get.
    extra_meta: Raw,
    /// The integration type.
    integration: String,
    /// The payloads to be processed, in order.
    #[schema(value_type = Vec<AnyJson>)]
    payloads: Vec<Raw>,
    /// The organization in whose subtree it was sought.
    organization: Id,
    /// The user whose API key was used.
    owner: Id,
    /// The project that it would be provisioned in.
    project_uuid: Option<Id>,
}

/// The outcome of the tasks.
#[derive(Serialize, ToSchema)]
pub(crate) struct TaskExecutions {
    /// One for each task.
    processed: Vec<ProcessedJson>,
    /// The errors.
    errors: Vec<MessageJson>,
}

/// The outcome for one device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookProcessed)]
pub(crate) struct ProcessedJson {
    /// The errors.
    errors: Vec<MessageJson>,
    /// The device, if it was provisioned now.
    devices_provisioned: Vec<ProvisionedJson>,
    /// The device events that were made.
    events_processed: Vec<IntegratedJson>,
}

/// A device that was provisioned.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ProvisionedDevice)]
pub(crate) struct ProvisionedJson {
    device_id: Id,
    name: String,
    organization_id: Id,
    project_uuid: Id,
    device_tag: String,
    device_tag_value: String,
}

/// A device event that was made: durable, and in the device's history.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = IntegratedEvent)]
pub(crate) struct IntegratedJson {
    #[serde(rename = "_id")]
    id: Id,
    received_at: Time,
    /// The integration type.
    integration: String,
    device_id: Id,
    #[schema(value_type = AnyJson)]
    payload: Raw,
}

fn messages<'m>(texts: impl IntoIterator<Item = &'m String>) -> Vec<MessageJson> {
    texts.into_iter().map(|message| MessageJson { message: message.clone() }).collect()
}

impl WebhookAnswer {
    fn short(report: &WebhookReport) -> Self {
        let events: usize = report.tasks.iter().map(|task| task.events.len()).sum();
        let devices = report.tasks.iter().filter(|task| task.provisioned.is_some()).count();
        let blocks = report.blocks;
        let message =
            format!("{blocks} event block(s) taken: {events} event(s) processed, {devices} device(s) provisioned");
        Self::Short { message, errors: messages(report.all_errors()) }
    }
}

/// A part of the detailed answer.
type DebugPart = Result<JsonPart, Error>;

fn text(text: impl Into<Vec<u8>>) -> DebugPart {
    Ok(JsonPart::Text(text.into()))
}

/// Writes the detailed answer, [`WebhookDebug`], payload by payload. It repeats a payload for each element that took it
/// and may be many times larger than the delivery, whose memory the report holds until the last part is written.
async fn debug_answer(report: WebhookReport) -> Answer {
    let report = Arc::new(report);
    let body = Ok(JsonPart::Raw(report.body.clone()));
    let parts = iter::once(text("{\"debug\":{\"errors\":["))
        .chain(errors(&report, ErrorsOf::All))
        .chain([text("],\"extractedTasks\":{\"requestBody\":"), body, text(",\"tasks\":[")])
        .chain(each_task(&report, extracted_parts))
        .chain([text("],\"errors\":[")])
        .chain(errors(&report, ErrorsOf::Delivery))
        .chain([text("]},\"taskExecutions\":{\"processed\":[")])
        .chain(each_task(&report, processed_parts))
        .chain([text("],\"errors\":[")])
        .chain(errors(&report, ErrorsOf::Tasks))
        .chain([text("]}}}")]);
    response::in_parts(stream::iter(parts)).await
}

/// Returns a comma, except before the first item.
fn comma(index: usize) -> &'static str {
    if index > 0 { "," } else { "" }
}

/// Chains the parts of all tasks.
fn each_task<I: Iterator<Item = DebugPart>>(
    report: &Arc<WebhookReport>,
    parts: fn(Arc<WebhookReport>, usize) -> Result<I, Error>,
) -> impl Iterator<Item = DebugPart> + use<I> {
    let report = Arc::clone(report);
    (0..report.tasks.len()).flat_map(move |index| {
        let (parts, failed) = match parts(Arc::clone(&report), index) {
            Ok(parts) => (Some(parts), None),
            Err(error) => (None, Some(Err(error))),
        };
        iter::once(text(comma(index))).chain(failed).chain(parts.into_iter().flatten())
    })
}

/// Returns the parts of a task as it was extracted.
fn extracted_parts(report: Arc<WebhookReport>, index: usize) -> Result<impl Iterator<Item = DebugPart>, Error> {
    let task = &report.tasks[index];
    let (head, tail) = response::opened(&TaskJson::of(&report, task), "payloads")?;
    let payloads = (0..task.payloads.len()).flat_map(move |at| {
        let payload = report.tasks[index].payloads[at].clone();
        [text(comma(at)), Ok(JsonPart::Raw(payload))]
    });
    Ok(iter::once(text(head)).chain(payloads).chain([text(tail)]))
}

/// Returns the parts of what was done for a task.
fn processed_parts(report: Arc<WebhookReport>, index: usize) -> Result<impl Iterator<Item = DebugPart>, Error> {
    let task = &report.tasks[index];
    let (head, tail) = response::opened(&ProcessedJson::of(&report, task), "eventsProcessed")?;
    let events = (0..task.events.len()).flat_map(move |at| {
        let (device, event, payload) = &report.tasks[index].events[at];
        let (id, received) = (event.0, event.minted_at());
        let mut head = format!("{}{{\"_id\":\"{id}\",\"receivedAt\":\"", comma(at)).into_bytes();
        head.extend_from_slice(&received.text());
        let of = format!("\",\"integration\":\"{}\",\"deviceId\":\"{device}\",\"payload\":", report.integration);
        head.extend_from_slice(of.as_bytes());
        [text(head), Ok(JsonPart::Raw(payload.clone())), text("}")]
    });
    Ok(iter::once(text(head)).chain(events).chain([text(tail)]))
}

/// Origin of the listed errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorsOf {
    All,
    Delivery,
    Tasks,
}

/// Returns the errors of this origin, one by one.
fn errors(report: &Arc<WebhookReport>, whose: ErrorsOf) -> impl Iterator<Item = DebugPart> + use<> {
    let report = Arc::clone(report);
    let delivery = (None, report.errors.len());
    let tasks = report.tasks.iter().enumerate().map(|(task, of)| (Some(task), of.errors.len()));
    let all = iter::once(delivery).chain(tasks);
    let told = all.filter(|(task, _)| whose == ErrorsOf::All || task.is_some() == (whose == ErrorsOf::Tasks));
    // The place of each error: the delivery itself, or one of its tasks.
    let places: Vec<_> = told.flat_map(|(task, errors)| (0..errors).map(move |at| (task, at))).collect();
    places.into_iter().enumerate().map(move |(index, (task, at))| {
        let errors = task.map_or(&report.errors, |task| &report.tasks[task].errors);
        let mut told = comma(index).as_bytes().to_vec();
        serde_json::to_writer(&mut told, &MessageJson { message: errors[at].clone() }).map_err(Error::internal)?;
        text(told)
    })
}

impl TaskJson {
    /// Converts a task without its payloads, which are written one by one.
    fn of(report: &WebhookReport, task: &TaskReport) -> Self {
        Self {
            device_tag: report.device_tag.clone(),
            device_tag_value: task.tag_value.clone(),
            extra_meta: Raw(report.extra_meta.clone()),
            integration: report.integration.to_owned(),
            payloads: Vec::new(),
            organization: Id(report.organization.0),
            owner: Id(report.owner.0),
            project_uuid: task.project.map(|project| Id(project.0)),
        }
    }
}

impl ProcessedJson {
    /// Converts the outcome of a task without its events, which are written one by one.
    fn of(report: &WebhookReport, task: &TaskReport) -> Self {
        let provisioned = task.provisioned.iter().map(|device| ProvisionedJson {
            device_id: Id(device.id.0),
            name: device.name.clone(),
            organization_id: Id(report.organization.0),
            project_uuid: Id(device.project.0),
            device_tag: report.device_tag.clone(),
            device_tag_value: task.tag_value.clone(),
        });
        Self {
            errors: messages(&task.errors),
            devices_provisioned: provisioned.collect(),
            events_processed: Vec::new(),
        }
    }
}
