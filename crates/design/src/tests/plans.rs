//! Tests of what a plan reports about itself.

use serde_json::json;

use super::given::{Scene, compile, told, transforming};
use super::raw;
use crate::{InputType, Integration, Plan};

// Holds: c11.empty
#[test]
fn empty_cloud_plane_stores_events_under_their_own_names() {
    for planes in [r#"{}"#, r#"{"cloud":{}}"#, r#"{"cloud":{"elements":{}}}"#, r#"{"edge":[1],"cloud":{"notes":1}}"#] {
        let plan = Plan::compile(&raw(planes).tree()).unwrap();
        assert!(plan.is_empty() && plan.accepts("anything"));
        let mut scene = Scene::transforming("payload");
        scene.plan = plan;
        assert_eq!(told(&scene.post_raw("anything", &raw("1.50"))), ["store anything 1.50"]);
        assert!(told(&scene.setting_changes("x", "1")).is_empty());
    }
}

// Holds: c11.unknown
#[test]
fn plane_with_elements_accepts_events_at_device_events_only() {
    let plan = compile(transforming("payload")).unwrap();
    assert!(!plan.is_empty());
    assert!(plan.accepts("in"));
    assert!(!plan.accepts("out") && !plan.accepts("limit") && !plan.accepts("other"));
    assert!(told(&Scene::transforming("payload").post_raw("out", &raw("1"))).is_empty());
}

#[test]
fn settings_come_by_list_order_and_then_name() {
    let setting = |order: i64| json!({"type": "deviceSetting", "properties": {"listOrder": order}});
    let plan =
        compile(json!({"d": setting(2), "c": setting(1), "b": setting(2), "a": {"type": "deviceSetting"}})).unwrap();
    let names: Vec<&str> = plan.settings().iter().map(|setting| setting.name.as_ref()).collect();
    assert_eq!(names, ["a", "c", "b", "d"]);
    assert_eq!(plan.setting("b").unwrap().list_order, 2);
    assert!(plan.setting("x").is_none());
}

#[test]
fn plan_keeps_the_definition_of_a_setting() {
    let plan = compile(json!({"s": {"type": "deviceSetting", "properties": {
        "title": {"de": "Grenze", "en": "Limit"}, "description": "d", "inputType": "number",
        "inputTypeProperties": {"min": -1, "unit": "C"}, "defaultValue": 5.50}}}))
    .unwrap();
    let setting = plan.setting("s").unwrap();
    assert_eq!(setting.input_type, InputType::Number);
    assert_eq!(setting.title.text(), r#"{"de":"Grenze","en":"Limit"}"#);
    assert_eq!(setting.description.text(), r#""d""#);
    assert_eq!(setting.default_value.text(), "5.5");
    assert!(setting.check(&raw("-1").tree()).is_ok());
    assert!(setting.check(&raw("-1.01").tree()).is_err());
}

// Holds: c11.deviceEvent
#[test]
fn device_events_are_known_by_their_integration() {
    let plan = compile(json!({
        "a": {"type": "deviceEvent"},
        "b": {"type": "deviceEvent", "properties": {"integration": "lora"}},
        "c": {"type": "deviceEvent", "properties": {"integration": "lora"}},
    }))
    .unwrap();
    let of = |integration| plan.device_events(integration).map(|name| name.as_ref()).collect::<Vec<_>>();
    assert_eq!(of(Integration::Http), ["a"]);
    assert_eq!(of(Integration::Lora), ["b", "c"]);
    assert!(of(Integration::Ble).is_empty());
    assert_eq!(Integration::named("zigbee").map(Integration::name), Some("zigbee"));
}

#[test]
fn a_plan_knows_whether_it_reads_last_values() {
    assert!(!compile(transforming("payload.last")).unwrap().reads_last());
    assert!(compile(transforming("last.readings.temp")).unwrap().reads_last());
    assert!(compile(transforming("has(last.readings) ? 1 : 2")).unwrap().reads_last());
}

#[test]
fn a_plan_knows_which_settings_it_reacts_to() {
    let link = json!({"element": "out", "ability": "store"});
    let plan = compile(json!({
        "heard": {"type": "deviceSetting", "triggers": {"changed": [link]}},
        "unheard": {"type": "deviceSetting", "triggers": {"changed": []}},
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [link]}},
        "out": {"type": "storage"},
    }))
    .unwrap();
    assert!(plan.reacts_to("heard"));
    for name in ["unheard", "in", "out", "nothing"] {
        assert!(!plan.reacts_to(name), "{name}");
    }
}

#[test]
fn storage_elements_are_listed() {
    let plan = compile(transforming("payload")).unwrap();
    let mut names: Vec<&str> = plan.storage_elements().iter().map(|name| name.as_ref()).collect();
    names.sort_unstable();
    assert_eq!(names, ["out", "readings"]);
}

// Holds: c11.names
#[test]
fn members_that_clients_add_to_a_design_are_ignored() {
    let plan = compile(
        json!({"in": {"type": "deviceEvent", "position": {"x": 1}, "notes": "n", "properties": {"colour": 1}}}),
    );
    assert!(plan.is_ok());
}

#[test]
fn a_plan_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Plan>();
    shared::<crate::Outcome>();
}
