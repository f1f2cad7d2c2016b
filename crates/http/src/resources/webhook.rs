//! The integration webhook: its parameters come in the query or in headers, its answer is short or tells everything.

use isobar_hub::{Given, HeldByDelivery, TaskReport, WEBHOOK_PARAMETERS, WebhookReport};
use isobar_model::access::Action;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{AnyJson, Id, Raw, Time};
use crate::request::{Call, after};
use crate::response::{self, Answer};

/// Most bytes of a body (contract: Conventions).
const WEBHOOK_BODY_BYTES_MAX: usize = 5 << 20;

pub(crate) async fn webhook_receive(call: &mut Call) -> Answer {
    let body = call.json_bytes_up_to(WEBHOOK_BODY_BYTES_MAX.max(call.state.settings.max_body_bytes)).await;
    let body = after(call.hub().allow(call.caller()?, Action::WebhookReceive), body).await?;
    let given = WEBHOOK_PARAMETERS.into_iter().filter_map(|name| Some((name, given(call, name)?))).collect();
    let report = call.hub().webhook_receive(call.caller()?, given, body).await?;
    call.state.meters.events_accepted.increment(report.tasks.iter().map(|task| task.events.len() as u64).sum());
    let (tells_all, (answer, held)) = (report.debug, WebhookAnswer::of(report));
    // What is answered in a few words takes nothing any more.
    if tells_all { response::ok_holding(&answer, held) } else { response::ok(&answer) }
}

/// A parameter: the query wins over the header (contract: Integration webhook).
fn given(call: &Call, name: &str) -> Option<Given> {
    if let Some(text) = call.query().get(name) {
        return Some(Given { field: format!("query.{name}"), text: Some(text.to_owned()) });
    }
    let value = call.head.headers.get(name)?;
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned);
    Some(Given { field: format!("header.{name}"), text })
}

/// What a delivery is answered.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum WebhookAnswer {
    /// Without debug: what was done, in words, and what went wrong.
    Short {
        /// How much was done.
        message: String,
        /// What went wrong, event block by event block.
        errors: Vec<MessageJson>,
    },
    /// With debug.
    Debug {
        /// Everything that was found and done.
        debug: WebhookDebug,
    },
}

/// Something that went wrong.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageJson {
    /// What, in words.
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

/// What was found in a body.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExtractedTasks {
    /// The body.
    #[schema(value_type = AnyJson)]
    request_body: Raw,
    /// One for each device.
    tasks: Vec<TaskJson>,
    /// What could not be made out.
    errors: Vec<MessageJson>,
}

/// What there was to do for one device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookTask)]
pub(crate) struct TaskJson {
    /// The label that holds what the third party calls the device.
    device_tag: String,
    /// What it calls it.
    device_tag_value: String,
    /// The labels that it was to get.
    extra_meta: Raw,
    /// The integration type.
    integration: String,
    /// What was to be processed, in order.
    #[schema(value_type = Vec<AnyJson>)]
    payloads: Vec<Raw>,
    /// The organization in whose subtree it was sought.
    organization: Id,
    /// The user whose API key was used.
    owner: Id,
    /// The project that it would be provisioned in.
    project_uuid: Option<Id>,
}

/// What was done.
#[derive(Serialize, ToSchema)]
pub(crate) struct TaskExecutions {
    /// One for each task.
    processed: Vec<ProcessedJson>,
    /// What went wrong.
    errors: Vec<MessageJson>,
}

/// What was done for one device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookProcessed)]
pub(crate) struct ProcessedJson {
    /// What went wrong.
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
    /// The answer, and the memory that it takes with all that it was made of.
    fn of(report: WebhookReport) -> (Self, HeldByDelivery) {
        if report.debug {
            let (debug, held) = WebhookDebug::of(report);
            return (Self::Debug { debug }, held);
        }
        let events: usize = report.tasks.iter().map(|task| task.events.len()).sum();
        let devices = report.tasks.iter().filter(|task| task.provisioned.is_some()).count();
        let blocks = report.blocks;
        let message =
            format!("{blocks} event block(s) taken: {events} event(s) processed, {devices} device(s) provisioned");
        (Self::Short { message, errors: messages(report.all_errors()) }, report.held)
    }
}

impl WebhookDebug {
    fn of(report: WebhookReport) -> (Self, HeldByDelivery) {
        let errors = messages(report.all_errors());
        let tasks = report.tasks.iter().map(|task| TaskJson::of(&report, task)).collect();
        let executed = messages(report.tasks.iter().flat_map(|task| &task.errors));
        let processed = report.tasks.iter().map(|task| ProcessedJson::of(&report, task)).collect();
        let extracted = messages(&report.errors);
        let debug = Self {
            errors,
            extracted_tasks: ExtractedTasks { request_body: Raw(report.body), tasks, errors: extracted },
            task_executions: TaskExecutions { processed, errors: executed },
        };
        (debug, report.held)
    }
}

impl TaskJson {
    fn of(report: &WebhookReport, task: &TaskReport) -> Self {
        Self {
            device_tag: report.device_tag.clone(),
            device_tag_value: task.tag_value.clone(),
            extra_meta: Raw(report.extra_meta.clone()),
            integration: report.integration.to_owned(),
            payloads: task.payloads.iter().cloned().map(Raw).collect(),
            organization: Id(report.organization.0),
            owner: Id(report.owner.0),
            project_uuid: task.project.map(|project| Id(project.0)),
        }
    }
}

impl ProcessedJson {
    fn of(report: &WebhookReport, task: &TaskReport) -> Self {
        let provisioned = task.provisioned.iter().map(|device| ProvisionedJson {
            device_id: Id(device.id.0),
            name: device.name.clone(),
            organization_id: Id(report.organization.0),
            project_uuid: Id(device.project.0),
            device_tag: report.device_tag.clone(),
            device_tag_value: task.tag_value.clone(),
        });
        let events = task.events.iter().map(|(device, event, payload)| IntegratedJson {
            id: Id(event.0),
            received_at: Time(event.minted_at()),
            integration: report.integration.to_owned(),
            device_id: Id(device.0),
            payload: Raw(payload.clone()),
        });
        Self {
            errors: messages(&task.errors),
            devices_provisioned: provisioned.collect(),
            events_processed: events.collect(),
        }
    }
}
