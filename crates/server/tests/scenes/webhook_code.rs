//! The integration webhook with code: the payload of a LoRaWAN server is decoded by the project's design.

use serde_json::{Value, json};

use crate::support::designs::to;
use crate::support::person::text;
use crate::support::{TestApp, on_both_registries};
use crate::webhook::Sender;

on_both_registries!(a_codec_decodes_what_a_lorawan_server_delivers, a_codec_that_throws_loses_no_event_of_a_delivery);

/// The guide for ChirpStack; its first body is an uplink.
const GUIDE: &str = include_str!("../../../../docs/integrations/chirpstack.md");
/// A codec for the device of the guide.
const CODEC: &str = "function decodeUplink(input) {
  var b = input.bytes;
  return {data: {
    BatV: (((b[0] << 8) | b[1]) & 0x3fff) / 1000,
    TempC_SHT: ((b[2] << 24 >> 16) | b[3]) / 100,
    Hum_SHT: ((b[4] << 8) | b[5]) / 10,
    port: input.fPort,
  }};
}";

fn uplink() -> Value {
    let (_, rest) = GUIDE.split_once("```json body\n").unwrap();
    let (body, _) = rest.split_once("\n```").unwrap();
    serde_json::from_str(body).unwrap()
}

/// Returns a design whose code decodes payloads of LoRaWAN servers.
fn decoding(code: &str) -> Value {
    json!({
        "up": {
            "type": "deviceEvent",
            "properties": {"integration": "lora"},
            "triggers": {"eventReceived": [to("decode", "evaluate")]},
        },
        "decode": {
            "type": "function",
            "properties": {"code": code},
            "triggers": {"result": [to("values", "store")], "error": [to("failures", "store")]},
        },
        "values": {"type": "storage"},
        "failures": {"type": "storage"},
    })
}

/// Delivers the uplink as in the guide, and checks the number of created devices and that there is no error.
async fn delivers(ana: &Sender<'_>, project: &str, provisioned: usize) {
    let parameters = [
        ("integration", "lora"),
        ("deviceTag", "devEui"),
        ("deviceTagValueRef", "$.deviceInfo.devEui"),
        ("projectUuid", project),
        ("event", "up"),
    ];
    let answer = ana.delivers(&parameters, uplink()).await.ok();
    let message = format!("1 event block(s) taken: 1 event(s) processed, {provisioned} device(s) provisioned");
    assert_eq!(answer, json!({"message": message, "errors": []}));
}

// Holds: c11.function
async fn a_codec_decodes_what_a_lorawan_server_delivers(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.designs(decoding(CODEC)).await;
    delivers(&ana, &project, 1).await;
    let device = text(&ana.devices().await[0], "id").to_owned();
    let stored = ana.person.get(&format!("/v2/devices/{device}/data/values")).await.list_of("/payload");
    // `data` and `fPort` are found without references, and the result equals that of ChirpStack's own codec.
    let mut expected = uplink()["object"].clone();
    expected["port"] = json!(2);
    assert_eq!(stored, [expected]);
    // History has the whole delivered block.
    let events = ana.person.get(&format!("/v2/devices/{device}/events")).await.ok();
    assert_eq!((&events["data"][0]["payload"], events["data"][0].get("errors")), (&uplink(), None));
}

async fn a_codec_that_throws_loses_no_event_of_a_delivery(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.designs(decoding(CODEC)).await;
    delivers(&ana, &project, 1).await;
    let throwing = "function decodeUplink(input) { throw new Error('no message of port ' + input.fPort); }";
    ana.person.redesigns(&project, decoding(throwing)).await.ok();
    delivers(&ana, &project, 0).await;
    let device = text(&ana.devices().await[0], "id").to_owned();
    let payloads =
        async |place: &str| ana.person.get(&format!("/v2/devices/{device}/{place}")).await.list_of("/payload");
    let message = "Error: no message of port 2";
    assert_eq!(payloads("data/failures").await, [message]);
    assert_eq!(payloads("data/values").await.len(), 1, "what the codec before has decoded");
    assert_eq!(payloads("events").await, [uplink(), uplink()]);
    let errors = ana.person.get(&format!("/v2/devices/{device}/events")).await.list_of("/errors");
    assert_eq!(errors, [json!([{"element": "decode", "message": message}]), Value::Null]);
}
