//! Reads what each node shows at the end.

use isobar_model::time::Timestamp;
use isobar_power::becomes;
use reqwest::Method;
use serde_json::Value;

use super::history::{Shown, ShownAlarm};
use super::load;
use super::program_support::site::Api;

/// Waits until a node says that it is ready.
pub async fn ready(api: &Api) {
    let asks = async || api.send(Method::GET, "/health/ready", &[], None).await;
    becomes("a node is ready", async || asks().await.is_ok_and(|answer| answer.status == 200)).await;
}

/// Reads a device at a node.
pub async fn shown(api: &Api, node: usize, device: usize, id: &str) -> Shown {
    let at = format!("/v2/devices/{id}");
    let history = whole(api, &format!("{at}/events?")).await;
    let of_type = |kind: &str| {
        let is_so =
            |event: &&Value| event["type"] == kind && (kind == "cloudEvent" || event["elementName"] == load::READING);
        let events = history.iter().filter(is_so);
        events
            .map(|event| (event["id"].as_str().unwrap().to_owned(), event["payload"]["n"].as_u64().unwrap()))
            .collect()
    };
    let received = |event: &Value| {
        let at: Timestamp = event["receivedAt"].as_str().unwrap().parse().unwrap();
        (event["payload"]["n"].as_u64().unwrap(), at.millis().unsigned_abs())
    };
    let counts = async |element: &str| {
        let values = whole(api, &format!("{at}/data/{element}?")).await;
        values.iter().map(|value| value["payload"].as_u64().unwrap()).collect()
    };
    let alarms = whole(api, &format!("/v2/alarms?depth=all&filter[deviceId][eq]={id}&")).await;
    let alarm = |alarm: &Value| ShownAlarm {
        is_active: alarm["state"] == "active",
        is_acknowledged: alarm["acknowledged"] == true,
        count: alarm["count"].as_u64().unwrap(),
        value: alarm["value"].as_u64().unwrap(),
    };
    let waiting = api.get(&format!("/v2/events/cloud?deviceId={id}&peek=true&limit=10000")).await;
    Shown {
        device,
        node,
        events: of_type("deviceEvent"),
        received: history.iter().filter(|event| event["elementName"] == load::READING).map(received).collect(),
        queued: of_type("cloudEvent"),
        counts: counts("counts").await,
        label_counts: counts("labelCounts").await,
        label: api.get(&at).await["meta"]["n"].as_u64().unwrap_or(0),
        waiting: waiting.as_array().unwrap().iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect(),
        setting: api.get(&format!("{at}/settings/limit")).await["value"].as_u64().unwrap(),
        alarms: alarms.iter().map(alarm).collect(),
        acknowledgements: whole(api, &format!("{at}/data/acknowledgements?")).await.len() as u64,
    }
}

/// Reads all pages of a list, and returns it oldest first.
async fn whole(api: &Api, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    for page in 1.. {
        let answer = api.get(&format!("{path}limit=10000&page={page}")).await;
        let more = answer["data"].as_array().unwrap();
        items.extend(more.iter().cloned());
        if more.is_empty() || answer["meta"]["totalDocs"] == items.len() {
            break;
        }
    }
    items.reverse();
    items
}
