//! A platform with data, and its answers to questions about all of it.

use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Api, Device, everything};

/// Creates a project and devices, each with events, values, queued events and a setting.
pub async fn furnish(api: &Api, devices: usize) -> Vec<Device> {
    let mut design = everything();
    design["limit"] = json!({"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 1}});
    let devices = api.found(&design, devices).await;
    for (place, device) in devices.iter().enumerate() {
        for n in 0..5 + place {
            api.post(device, "reading", &json!({"n": n, "text": "é".repeat(place * 100)})).await.created();
        }
        api.admin(Method::PUT, &format!("/v2/devices/{}/settings/limit", device.id), Some(&json!(place))).await;
    }
    devices
}

/// Returns a platform's answers to 54 questions.
pub async fn answers(api: &Api, devices: &[Device]) -> Vec<(String, Value)> {
    let mut paths: Vec<String> = Vec::new();
    for Device { id, .. } in devices {
        let of = |part: &str| format!("/v2/devices/{id}{part}");
        paths.extend(
            ["", "/events", "/events?cloudEvents=false&limit=3", "/data/log", "/settings", "/settings/limit"].map(of),
        );
        paths.extend([of("/data/log?sort=createdAt&limit=2"), format!("/v2/events/cloud?deviceId={id}&peek=true")]);
    }
    let projects = api.get("/v2/projects").await;
    let project = projects["data"][0]["id"].as_str().unwrap().to_owned();
    let organizations = api.get("/v2/organizations").await;
    let organization = organizations["data"][0]["id"].as_str().unwrap().to_owned();
    paths.extend(
        ["projects", "organizations", "users", "devices", "notifications", "alarms"].map(|noun| format!("/v2/{noun}")),
    );
    paths.extend(
        ["", "/specification", "/specification/versions", "/specification/versions/1"]
            .map(|part| format!("/v2/projects/{project}{part}")),
    );
    paths.extend(["", "/usage", "/dashboards"].map(|part| format!("/v2/organizations/{organization}{part}")));
    paths.push("/v2/auth/user".to_owned());

    let mut answers = Vec::new();
    for path in paths {
        let answer = api.send_as_admin(Method::GET, &path, None).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut answer = answer.json();
        forget_what_moves(&mut answer);
        answers.push((path, answer));
    }
    answers
}

/// Removes members that change by themselves shortly after a call: last activity, and counts that are updated
/// periodically.
pub fn forget_what_moves(answer: &mut Value) {
    match answer {
        Value::Object(members) => {
            members.retain(|name, _| !matches!(name.as_str(), "lastActive" | "dataUsageMb"));
            members.values_mut().for_each(forget_what_moves);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_what_moves),
        _ => {}
    }
}
