//! The integration webhook against invalid parameters and hostile bodies: a refused delivery has no effect.

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};
use crate::webhook::{Sender, messages};

on_both_registries!(
    query_parameter_wins_over_its_header,
    invalid_webhook_parameter_is_named_without_effect,
    hostile_bodies_are_refused_or_reported_by_block,
    numbers_are_tags_as_they_were_written,
    long_tag_value_is_kept_whole_and_shortened_in_the_name,
    references_may_find_nothing_one_or_many,
    delivery_above_the_work_limit_has_no_effect,
    blocks_and_the_elements_that_take_them_are_bounded_together,
    payloads_taken_by_elements_are_bounded_in_bytes,
);

// Holds: webhook.headers, c9.query
async fn query_parameter_wins_over_its_header(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let north = ana.person.founds("North", &ana.person.organization).await;
    let (cold, warm) = (ana.person.creates_project("cold").await, ana.person.creates_project("warm").await);
    let map = json!({"k": warm}).to_string();
    let all = [
        ("integration", "sigfox"),
        ("organizationId", &*north),
        ("eventsRef", "$.items"),
        ("deviceTag", "eui"),
        ("deviceTagValue", "without"),
        ("deviceTagValueRef", "$.id"),
        ("deviceTagCase", "insensitive"),
        ("extraMeta", r#"{"site":"x"}"#),
        ("extraMetaMapRefs", r#"{"gw":"$.gw"}"#),
        ("projectUuid", &*cold),
        ("projectUuidMap", &*map),
        ("projectUuidMapRef", "$.kind"),
        ("eventPayloadMapRefs", r#"{"v":"$.v"}"#),
        ("idempotencyKeyRef", "$.nothing"),
        ("debug", "true"),
    ];
    let body = json!({"gw": "g1", "items": [{"id": "a", "kind": "k", "v": 1}, {"v": 2}]}).to_string();
    let tasks = async |query: &[(&str, &str)], headers: &[(&str, &str)]| {
        let found = ana.delivers_text(query, headers, body.clone()).await.ok();
        assert_eq!(messages(&found["debug"]), [""; 0], "{query:?} {headers:?}");
        found["debug"]["extractedTasks"]["tasks"].clone()
    };
    let task = |value: &str, project: &str, v: u64| {
        json!({
            "deviceTag": "eui", "deviceTagValue": value, "extraMeta": {"site": "x", "gw": "g1"}, "integration": "sigfox",
            "payloads": [{"v": v}], "organization": north, "owner": ana.person.id, "projectUuid": project,
        })
    };
    let expected = json!([task("a", &warm, 1), task("without", &cold, 2)]);
    assert_eq!(tasks(&all, &[]).await, expected);
    assert_eq!(tasks(&[], &all).await, expected);
    for (index, (name, _)) in all.iter().enumerate() {
        // One parameter is in the query next to an invalid header, all others are in headers.
        let mut headers = all;
        headers[index].1 = "$[";
        assert_eq!(tasks(&all[index..=index], &headers).await, expected, "{name}");
    }
    let devices = ana.devices().await;
    let names: Vec<&str> = devices.iter().map(|device| text(device, "name")).collect();
    assert_eq!(names, ["a", "without"]);
    assert_eq!(ana.history(text(&devices[0], "id")).await.len(), 2 + all.len());
}

// Holds: c9.answer
async fn invalid_webhook_parameter_is_named_without_effect(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let bob = app.stranger("bob").await;
    let theirs = bob.creates_project("theirs").await;
    let project = ana.person.creates_project("p").await;
    let good = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project)];
    let long = "x".repeat(257);
    let foreign = json!({"k": "not an id"}).to_string();
    for (name, bad, member) in [
        ("integration", "http", ""),
        ("integration", "mqtt", ""),
        ("organizationId", "mine", ""),
        ("organizationId", NOBODY, ""),
        ("organizationId", &*bob.organization, ""),
        ("eventsRef", "$.items[(@.length-1)]", ""),
        ("eventsRef", "$..", ""),
        ("deviceTag", &*long, ""),
        ("deviceTagValue", &*long, ""),
        ("deviceTagValueRef", "$[", ""),
        ("deviceTagValueRef", "$.a.b()", ""),
        ("extraMeta", "[]", ""),
        ("extraMeta", "null", ""),
        ("extraMeta", "{", ""),
        ("extraMeta", "%7B%22a%22", ""),
        ("extraMetaMapRefs", "7", ""),
        ("extraMetaMapRefs", r#"{"m":"$["}"#, ".m"),
        ("extraMetaMapRefs", r#"{"m":{}}"#, ".m"),
        ("projectUuid", "mine", ""),
        ("projectUuid", NOBODY, ""),
        ("projectUuid", &*theirs, ""),
        ("projectUuidMap", "\"text\"", ""),
        ("projectUuidMap", &*foreign, ".k"),
        ("projectUuidMapRef", "$.a[", ""),
        ("eventPayloadMapRefs", "[]", ""),
        ("eventPayloadMapRefs", r#"{"m":null}"#, ".m"),
        ("debug", "yes", ""),
    ] {
        let rest: Vec<_> = good.into_iter().filter(|(other, _)| *other != name).collect();
        let with_bad: Vec<_> = rest.iter().copied().chain([(name, bad)]).collect();
        let told = ana.delivers(&with_bad, json!({})).await.faults();
        assert_eq!(told, [format!("query.{name}{member}")], "{bad}");
        let told = ana.delivers_text(&rest, &[(name, bad)], "{}").await.faults();
        assert_eq!(told, [format!("header.{name}{member}")], "{bad}");
    }
    assert_eq!(ana.delivers(&[], json!({})).await.faults(), ["query.deviceTag", "query.deviceTagValue"]);
    let empty = [("deviceTag", ""), ("deviceTagValue", ""), ("deviceTagValueRef", "")];
    assert_eq!(ana.delivers(&empty, json!({})).await.faults(), ["query.deviceTag", "query.deviceTagValue"]);
    assert_eq!(ana.devices().await, [] as [Value; 0]);
}

// Holds: webhook.body
async fn hostile_bodies_are_refused_or_reported_by_block(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let least = [("deviceTag", "eui"), ("deviceTagValueRef", "$.id"), ("projectUuid", &*project)];
    let split: Vec<_> = least.into_iter().chain([("eventsRef", "$")]).collect();
    let deep = "[".repeat(65) + &"]".repeat(65);
    let refused: [&[u8]; 11] = [
        b"",
        b" ",
        b"null",
        b"nul",
        b"{",
        b"[1,]",
        b"{\"a\":1}x",
        b"\xef\xbb\xbf{}",
        b"\"\\ud800\"",
        b"\"\xff\"",
        deep.as_bytes(),
    ];
    for body in refused {
        for parameters in [&least[..], &split] {
            let told = ana.delivers_text(parameters, &[], body.to_vec()).await.faults();
            assert_eq!(told, ["body"], "{}", String::from_utf8_lossy(body));
        }
    }
    // JSON that is no event of a device is reported, and the delivery succeeds.
    for (body, blocks) in [
        ("0", 1),
        ("-1.5e3", 1),
        ("\"id\"", 1),
        ("true", 1),
        ("{}", 1),
        (r#"{"id":null}"#, 1),
        (r#"{"id":[]}"#, 1),
        ("[]", 0),
        ("[[],[[]]]", 2),
        ("[null,1,\"\"]", 3),
        (r#"[{"id":{}},{"id":true}]"#, 2),
        (r#"[{"ID":1}]"#, 1),
    ] {
        let answer = ana.delivers_text(&split, &[], body).await.ok();
        assert_eq!(messages(&answer).len(), blocks, "{body}: {answer}");
        assert!(text(&answer, "message").starts_with(&format!("{blocks} event block(s)")), "{body}: {answer}");
    }
    let many = format!("[{}]", vec!["1"; 10_001].join(","));
    assert_eq!(ana.delivers_text(&split, &[], many).await.faults(), ["body"]);
    assert_eq!(ana.devices().await, [] as [Value; 0]);
    // A body at its limit in which one block is an event.
    let large = format!(r#"[{{"id":"a","n":1}},"{}"]"#, "x".repeat((5 << 20) - 100));
    let answer = ana.delivers_text(&split, &[], large).await.ok();
    assert_eq!((messages(&answer).len(), ana.devices().await.len()), (1, 1));
}

// Holds: c9.tag
async fn numbers_are_tags_as_they_were_written(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [("deviceTag", "n"), ("deviceTagValueRef", "id"), ("eventsRef", "$"), ("projectUuid", &*project)];
    let body = r#"[{"id":7},{"id":"7"},{"id":1.50},{"id":1e2},{"id":-0},{"id":18446744073709551617},{"id":7.0}]"#;
    assert_eq!(messages(&ana.delivers_text(&parameters, &[], body).await.ok()), [""; 0]);
    let devices = ana.devices().await;
    let mut names: Vec<&str> = devices.iter().map(|device| text(device, "name")).collect();
    names.sort_unstable();
    assert_eq!(names, ["-0", "1.50", "18446744073709551617", "1e2", "7", "7.0"]);
    let seven = devices.iter().find(|device| device["name"] == "7").unwrap();
    assert_eq!(seven["meta"], json!({"n": "7"}));
    assert_eq!(ana.history(text(seven, "id")).await, [json!({"id": 7}), json!({"id": "7"})]);
}

async fn long_tag_value_is_kept_whole_and_shortened_in_the_name(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValueRef", "id"), ("projectUuid", &*project)];
    let long = "é".repeat(200);
    for provisioned in [1, 0] {
        let answer = ana.delivers(&parameters, json!({"id": long})).await.ok();
        let message = format!("1 event block(s) taken: 1 event(s) processed, {provisioned} device(s) provisioned");
        assert_eq!(answer, json!({"message": message, "errors": []}));
    }
    let devices = ana.devices().await;
    assert_eq!(devices.len(), 1);
    // Characters are counted, not bytes.
    assert_eq!(text(&devices[0], "name"), "é".repeat(80));
    assert_eq!(devices[0]["meta"], json!({"eui": long}));
    assert_eq!(ana.history(text(&devices[0], "id")).await.len(), 2);
}

// Holds: webhook.deviceTagValueRef, c9.eventsRef
async fn references_may_find_nothing_one_or_many(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let parameters = [
        ("deviceTag", "eui"),
        ("deviceTagValueRef", "$..id"),
        ("eventsRef", "$..items"),
        ("projectUuid", &*project),
        ("extraMetaMapRefs", r#"{"none":"$.none","one":"$.one","all":"$.many[*]","top":"one"}"#),
        ("eventPayloadMapRefs", r#"{"none":"$.none","one":"$.v","all":"$..v","top":"v"}"#),
    ];
    let body = json!({
        "one": "1", "many": [1, {"a": 2}],
        "items": [{"id": "a", "v": 1, "in": {"id": "b", "v": 2}}],
        "more": {"items": {"deep": {"id": "c", "v": [3]}}},
    });
    assert_eq!(messages(&ana.delivers(&parameters, body).await.ok()), [""; 0]);
    let devices = ana.devices().await;
    let labels = |eui: &str| json!({"eui": eui, "one": "1", "all": [1, {"a": 2}], "top": "1"});
    assert_eq!(devices.iter().map(|device| device["meta"].clone()).collect::<Vec<_>>(), [labels("a"), labels("c")]);
    assert_eq!(ana.history(text(&devices[0], "id")).await, [json!({"one": 1, "all": [1, 2], "top": 1})]);
    assert_eq!(ana.history(text(&devices[1], "id")).await, [json!({"all": [3]})]);
    let nothing =
        [("deviceTag", "eui"), ("deviceTagValue", "d"), ("eventsRef", "$.none[*]"), ("projectUuid", &*project)];
    let answer = ana.delivers(&nothing, json!([1, 2])).await.ok();
    assert_eq!(messages(&answer), ["eventsRef finds nothing in the body"]);
    assert_eq!(ana.devices().await.len(), 2);
}

async fn delivery_above_the_work_limit_has_no_effect(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let project = ana.person.creates_project("p").await;
    let nested = "[".repeat(60) + "1" + &"]".repeat(60);
    let wide = format!("[{}]", vec![r#"{"id":"a"}"#; 9_000].join(","));
    let large = format!("[\"{}\"]", "x".repeat(1 << 20));
    let same = format!("$[{}]", vec!["0"; 100].join(","));
    let map = format!("{{\"a\":\"{same}\"}}");
    for (name, value, body, field) in [
        ("eventsRef", "$..*..*..*..*..*", &nested, "query.eventsRef"),
        ("deviceTagValueRef", "$..*..*..*..*..*", &nested, "query.deviceTagValueRef"),
        ("projectUuidMapRef", "$..*..*..*..*..*", &nested, "query.projectUuidMapRef"),
        ("extraMetaMapRefs", r#"{"m":"$[?count($..id) > 1]"}"#, &wide, "query.extraMetaMapRefs.m"),
        ("eventPayloadMapRefs", &*map, &large, "query.eventPayloadMapRefs.a"),
    ] {
        let parameters = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("projectUuid", &*project), (name, value)];
        assert_eq!(ana.delivers_text(&parameters, &[], body.clone()).await.faults(), [field]);
    }
    assert_eq!(ana.devices().await, [] as [Value; 0]);
}

async fn blocks_and_the_elements_that_take_them_are_bounded_together(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let elements = (0..30)
        .map(|number| (format!("in{number}"), json!({"type": "deviceEvent", "properties": {"integration": "custom"}})));
    let project = ana.person.designs(Value::Object(elements.collect())).await;
    let parameters =
        [("deviceTag", "eui"), ("deviceTagValueRef", "id"), ("eventsRef", "$"), ("projectUuid", &*project)];
    let blocks = |count: usize| json!(vec![json!({"id": "a"}); count]);
    // For a new device as for a known one: each of the blocks would make thirty events.
    for devices in [0, 1] {
        let refused = ana.delivers(&parameters, blocks(1_000)).await;
        assert!(refused.text.contains("makes 30000 events"), "{refused:?}");
        assert_eq!((refused.faults(), ana.devices().await.len()), (vec!["body".to_owned()], devices));
        assert_eq!(messages(&ana.delivers(&parameters, blocks(1)).await.ok()), [""; 0]);
        let device = text(&ana.devices().await[0], "id").to_owned();
        assert_eq!(ana.history(&device).await.len(), (devices + 1) * 30);
    }
}

async fn payloads_taken_by_elements_are_bounded_in_bytes(app: &TestApp) {
    let ana = Sender::of(app.developer("ana").await).await;
    let takes = json!({"type": "deviceEvent", "properties": {"integration": "custom"}});
    let elements = (0..30).map(|number| (format!("in{number}"), takes.clone()));
    let project = ana.person.designs(Value::Object(elements.collect())).await;
    let parameters = [("deviceTag", "eui"), ("deviceTagValueRef", "id"), ("projectUuid", &*project)];
    // One block, but thirty times three mebibytes.
    let large = json!({"id": "a", "text": "x".repeat(3 << 20)});
    for devices in [0, 1] {
        let refused = ana.delivers(&parameters, large.clone()).await;
        assert!(refused.text.contains("makes 30 events of 94") && refused.text.contains("64 MiB"), "{refused:?}");
        assert_eq!((refused.faults(), ana.devices().await.len()), (vec!["body".to_owned()], devices));
        assert_eq!(messages(&ana.delivers(&parameters, json!({"id": "a"})).await.ok()), [""; 0]);
        let device = text(&ana.devices().await[0], "id").to_owned();
        assert_eq!(ana.history(&device).await.len(), (devices + 1) * 30);
    }
}
