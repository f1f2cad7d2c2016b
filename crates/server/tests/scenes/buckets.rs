//! Tests series in buckets of time: of one device, and of many.

use serde_json::{Value, json};

use crate::data::with_values;
use crate::support::designs::to;
use crate::support::person::text;
use crate::support::{Device, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(many_devices_are_one_series_or_a_series_each, buckets_of_many_devices_are_permitted_and_bounded,);

async fn buckets(ana: &Person<'_>, device: &Device<'_>, query: &str) -> Value {
    ana.get(&device.at(&format!("data/reading/buckets?{query}"))).await.ok()
}

/// Returns one figure of the single field of each bucket, in order.
fn told(answer: &Value, member: &str) -> Vec<Value> {
    let data = answer["data"].as_array().unwrap().iter();
    data.map(|bucket| bucket["fields"].as_object().unwrap().values().next().unwrap()[member].clone()).collect()
}

fn counts(answer: &Value) -> Vec<u64> {
    answer["data"].as_array().unwrap().iter().map(|bucket| bucket["count"].as_u64().unwrap()).collect()
}

// Holds: GET /v2/devices/{id}/data/{elementName}/buckets, c13.fields
#[tokio::test]
async fn series_is_aggregated_in_buckets() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let temps = [json!(1), json!(2.5), json!("off"), json!(4), json!(-1), json!(10)];
    let device = with_values(&ana, temps.map(|temp| json!({"temp": temp, "deep": {"er": 2}}))).await;
    let answer = buckets(&ana, &device, "fields=payload.temp,payload.deep.er&every=5m").await;
    let expected = json!({
        "meta": {
            "from": "2027-01-15T08:00:00.000Z", "to": "2027-01-15T08:05:00.001Z", "every": "5m", "zone": "UTC",
            "values": 6, "skipped": 1,
        },
        "data": [
            {"from": "2027-01-15T08:00:00.000Z", "to": "2027-01-15T08:05:00.000Z", "count": 5, "fields": {
                "payload.temp": {"count": 4, "mean": 1.625, "min": -1.0, "max": 4.0},
                "payload.deep.er": {"count": 5, "mean": 2.0, "min": 2.0, "max": 2.0},
            }},
            {"from": "2027-01-15T08:05:00.000Z", "to": "2027-01-15T08:10:00.000Z", "count": 1, "fields": {
                "payload.temp": {"count": 1, "mean": 10.0, "min": 10.0, "max": 10.0},
                "payload.deep.er": {"count": 1, "mean": 2.0, "min": 2.0, "max": 2.0},
            }},
        ],
    });
    assert_eq!(answer, expected);
    // The device may query its own.
    let path = device.at("data/reading/buckets?fields=payload.temp,payload.deep.er&every=5m");
    assert_eq!(device.get(&path).await.ok(), expected);
    // Without a width there is one bucket, of a range and of the filtered values.
    let asked = "fields=payload.temp&functions=sum,count&from=2027-01-15T08:01:00Z&to=2027-01-15T08:05:00Z";
    let one = buckets(&ana, &device, &format!("{asked}&filter[payload.temp][gt]=0")).await;
    assert_eq!(one["meta"]["every"], json!(null));
    let fields = json!({"payload.temp": {"count": 2, "sum": 6.5}});
    let bucket =
        json!({"from": "2027-01-15T08:01:00.000Z", "to": "2027-01-15T08:05:00.000Z", "count": 2, "fields": fields});
    assert_eq!(one["data"], json!([bucket]));
    // A range without values has no buckets.
    let none = buckets(&ana, &device, "fields=payload.temp&from=2028-01-01&every=1h").await;
    assert_eq!((&none["data"], &none["meta"]["to"]), (&json!([]), &json!(null)));
    let turned = buckets(&ana, &device, "fields=payload.temp&from=2028-01-01&to=2027-01-01&every=1h&fill=null").await;
    assert_eq!((&turned["data"], &turned["meta"]["values"]), (&json!([]), &json!(0)));
}

/// Checks milliseconds, which charting tools send instead of RFC 3339.
#[tokio::test]
async fn range_takes_unix_milliseconds() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, (0..6).map(|temp| json!({"temp": temp}))).await;
    let (times, millis) = ("from=2027-01-15T08:01:00Z&to=2027-01-15T08:04:00Z", "from=1800000060000&to=1800000240000");
    let by_times = buckets(&ana, &device, &format!("fields=payload.temp&every=1m&{times}")).await;
    assert_eq!(counts(&by_times), [1, 1, 1]);
    assert_eq!(buckets(&ana, &device, &format!("fields=payload.temp&every=1m&{millis}")).await, by_times);
    let values =
        async |range: &str| ana.get(&device.at(&format!("data/reading?{range}"))).await.list_of("/payload/temp");
    assert_eq!(values(millis).await, [3, 2, 1]);
    assert_eq!(values(times).await, [3, 2, 1]);
    // Seconds and years would be half a century ago.
    for few in ["1800000060", "2027", "99999999999"] {
        let path = device.at(&format!("data/reading/buckets?fields=payload.temp&from={few}"));
        assert_eq!(ana.get(&path).await.faults(), ["query.from"], "{few}");
    }
}

// Holds: c13.functions
#[tokio::test]
async fn every_function_is_answered_under_its_name() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("meter").await;
    for number in ["2.0", "4", "4", "4", "5", "5", "7", "9.00"] {
        device.posts_text("reading", number).await.created();
    }
    let all = "count,sum,mean,min,max,first,last,stddev,p50,p90,p95,p99";
    let answer = ana.get(&device.at(&format!("data/reading/buckets?fields=payload&functions={all}"))).await.is(200);
    assert!(answer.text.contains(r#""first":2.0,"last":9.00,"#), "as sent: {}", answer.text);
    let answer = &answer.json()["data"][0]["fields"]["payload"];
    for (function, number) in [("count", 8.0), ("sum", 40.0), ("mean", 5.0), ("min", 2.0), ("max", 9.0)] {
        assert_eq!(answer[function].as_f64(), Some(number), "{function}");
    }
    assert!((answer["stddev"].as_f64().unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-9);
    for (function, least, most) in [("p50", 4.0, 5.0), ("p90", 7.0, 9.0), ("p95", 7.0, 9.0), ("p99", 7.0, 9.0)] {
        let number = answer[function].as_f64().unwrap();
        assert!((least * 0.99..=most * 1.01).contains(&number), "{function}: {number}");
    }
}

/// Checks that hidden values have no influence on the width of the buckets, however old the series is.
// Holds: c13.points, c13.retention
#[tokio::test]
async fn buckets_exclude_hidden_values() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await.with_key().await;
    let project = ana
        .designs(json!({
            "in": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store")]}},
            "log": {"type": "storage", "properties": {"valuesMax": 10}},
        }))
        .await;
    let (one, other) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "other").await);
    for device in [&one, &other] {
        device.posts("in", json!(0)).await.created();
    }
    app.wait_seconds(300 * 86_400);
    for second in 0..20 {
        let device = if second < 10 { &one } else { &other };
        device.posts("in", json!(second)).await.created();
        app.wait_seconds(1);
    }
    let ids = format!("deviceIds={},{}&elementName=log", one.id, other.id);
    // The last value of one came ten seconds before that of the other, whose first is hidden now.
    for (path, values, from, to, every) in [
        (one.at("data/log/buckets?points=10"), 10, "00.000", "09.001", "1s"),
        (one.at("data/log/buckets?points=5"), 10, "00.000", "09.001", "2s"),
        (other.at("data/log/buckets?points=10"), 10, "10.000", "19.001", "1s"),
        (one.at("data/log/buckets?points=10&from=2027-11-11T08:00:05Z"), 5, "05.000", "09.001", "1s"),
        (one.at("data/log/buckets?points=10&to=2027-11-11T08:00:05Z"), 5, "00.000", "05.000", "1s"),
        (format!("/v2/data/buckets?{ids}&points=20"), 20, "00.000", "19.001", "1s"),
    ] {
        let answer = ana.get(&format!("{path}&fields=payload")).await.ok();
        let at = |seconds: &str| format!("2027-11-11T08:00:{seconds}Z");
        let expected = json!({
            "from": at(from), "to": at(to), "every": every, "zone": "UTC", "values": values, "skipped": 0,
        });
        assert_eq!(answer["meta"], expected, "{path}");
    }
}

// Holds: c13.every, c13.points
#[tokio::test]
async fn days_follow_the_clock_of_their_zone() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await.with_key().await;
    let device = ana.creates_device("meter").await;
    // To 2027-03-27T22:00Z, an hour before the day on which the clocks of Paris are put forward.
    app.wait_seconds((71 * 24 + 14) * 3_600);
    for hour in 0..48 {
        device.posts("reading", json!(hour)).await.created();
        app.wait_seconds(3_600);
    }
    let days = buckets(&ana, &device, "fields=payload&every=1d&zone=Europe/Paris&functions=min,max").await;
    assert_eq!(counts(&days), [1, 23, 24], "a day of 23 hours");
    assert_eq!(
        (told(&days, "min"), told(&days, "max")),
        (vec![json!(0.0), json!(1.0), json!(24.0)], vec![json!(0.0), json!(23.0), json!(47.0)],)
    );
    assert_eq!(days["data"][1]["from"], "2027-03-27T23:00:00.000Z");
    assert_eq!(days["data"][1]["to"], "2027-03-28T22:00:00.000Z");
    assert_eq!(days["meta"]["zone"], "Europe/Paris");
    // In Kolkata, whose offset has half an hour.
    let days = buckets(&ana, &device, "fields=payload&every=1d&zone=Asia/Kolkata").await;
    assert_eq!(days["data"][0]["to"], "2027-03-28T18:30:00.000Z");
    assert_eq!(counts(&days), [21, 24, 3]);
    let months =
        buckets(&ana, &device, "fields=payload&every=1mo&zone=America/New_York&fill=null&from=2027-02-01T05:00:00Z")
            .await;
    assert_eq!(counts(&months), [0, 48]);
    let points = buckets(&ana, &device, "fields=payload&points=10").await;
    assert_eq!((&points["meta"]["every"], counts(&points).len()), (&json!("6h"), 9));
}

// Holds: c13.fill, c13.bucketsCsv
#[tokio::test]
async fn empty_buckets_are_left_out_or_filled() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await.with_key().await;
    let device = ana.creates_device("fridge").await;
    for (temp, minutes) in [(json!(3), 10), (json!("off"), 10), (json!(5), 0)] {
        device.posts("reading", json!({"temp": temp})).await.created();
        app.wait_seconds(minutes * 60);
    }
    let asked = "fields=payload.temp&functions=count,last&every=5m&from=2027-01-15T07:57:00Z&to=2027-01-15T08:25:00Z";
    let of = async |fill: &str| buckets(&ana, &device, &format!("{asked}{fill}")).await;
    for (fill, counted, last) in [
        ("", vec![1, 1, 1], vec![json!(3), json!(null), json!(5)]),
        ("&fill=none", vec![1, 1, 1], vec![json!(3), json!(null), json!(5)]),
        (
            "&fill=null",
            vec![0, 1, 0, 1, 0, 1],
            vec![json!(null), json!(3), json!(null), json!(null), json!(null), json!(5)],
        ),
        ("&fill=previous", vec![0, 1, 0, 1, 0, 1], vec![json!(null), json!(3), json!(3), json!(3), json!(3), json!(5)]),
    ] {
        let answer = of(fill).await;
        assert_eq!((counts(&answer), told(&answer, "last")), (counted, last), "{fill}");
    }
    assert_eq!(told(&of("&fill=previous").await, "count"), [0, 1, 0, 0, 0, 1]);
    assert_eq!(of("&fill=null").await["data"][0]["from"], "2027-01-15T07:55:00.000Z", "whole buckets");
    let csv = ana.get_as("text/csv", &device.at(&format!("data/reading/buckets?{asked}&fill=null"))).await.is(200);
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8; header=present");
    let mut lines = csv.text.split("\r\n");
    assert_eq!(lines.next(), Some("from,to,count,payload.temp.count,payload.temp.last"));
    assert_eq!(lines.next(), Some("2027-01-15T07:55:00.000Z,2027-01-15T08:00:00.000Z,0,0,"));
    assert_eq!(lines.next(), Some("2027-01-15T08:00:00.000Z,2027-01-15T08:05:00.000Z,1,1,3"));
    assert_eq!(lines.count(), 5);
}

// Holds: c13.bucketsMax
#[tokio::test]
async fn a_long_answer_comes_in_pieces_and_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [json!(1)]).await;
    let path =
        device.at("data/reading/buckets?fields=payload&every=1s&from=2027-01-15T08:00:00Z&to=2027-01-15T10:46:40Z");
    let answer = ana.get(&format!("{path}&fill=null")).await.ok();
    assert_eq!(counts(&answer).len(), 10_000);
    assert_eq!(answer["data"][9_999]["to"], "2027-01-15T10:46:40.000Z");
    let csv = ana.get_as("text/csv", &format!("{path}&fill=previous&functions=last")).await.is(200);
    assert_eq!(csv.text.lines().count(), 10_001);
    assert!(csv.text.lines().skip(1).all(|line| line.ends_with(",1")), "the one number goes on");
    let more =
        device.at("data/reading/buckets?fields=payload&every=1s&from=2027-01-15T08:00:00Z&to=2027-01-15T10:46:41Z");
    assert_eq!(ana.get(&format!("{more}&fill=null")).await.faults(), ["query.every"]);
    assert_eq!(counts(&ana.get(&more).await.ok()), [1], "those that hold nothing are not counted");
}

#[tokio::test]
async fn buckets_at_the_ends_of_time_lie_in_their_range() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [json!(1)]).await;
    for (query, froms, ends) in [
        ("every=1y&from=9999-12-31", vec!["9999-01-01T00:00:00.000Z"], "9999-12-31T23:59:59.999Z"),
        (
            "every=12h&from=9999-12-31",
            vec!["9999-12-31T00:00:00.000Z", "9999-12-31T12:00:00.000Z"],
            "9999-12-31T23:59:59.999Z",
        ),
        ("every=1w&from=9999-12-31T23:00:00Z", vec!["9999-12-27T00:00:00.000Z"], "9999-12-31T23:59:59.999Z"),
        (
            "every=1d&zone=Pacific/Kiritimati&from=9999-12-31T12:00:00Z",
            vec!["9999-12-30T10:00:00.000Z"],
            "9999-12-31T23:59:59.999Z",
        ),
        (
            "points=2&from=9999-12-31T22:00:00Z",
            vec!["9999-12-31T22:00:00.000Z", "9999-12-31T23:00:00.000Z"],
            "9999-12-31T23:59:59.999Z",
        ),
        ("every=1mo&from=0000-01-01&to=0000-02-01", vec!["0000-01-01T00:00:00.000Z"], "0000-02-01T00:00:00.000Z"),
    ] {
        let to = if query.contains("to=") { "" } else { "&to=9999-12-31T23:59:59.999Z" };
        for fill in ["null", "previous"] {
            let path = device.at(&format!("data/reading/buckets?fields=payload&fill={fill}&{query}{to}"));
            let answer = ana.get(&path).await.ok();
            let told = answer["data"].as_array().unwrap();
            let begins: Vec<_> = told.iter().map(|bucket| bucket["from"].as_str().unwrap()).collect();
            assert_eq!((begins, &told.last().unwrap()["to"]), (froms.clone(), &json!(ends)), "{query}");
        }
    }
}

// Holds: c13.timeField
#[tokio::test]
async fn time_may_come_from_the_payload() {
    let app = TestApp::start().await;
    app.wait_seconds(40 * 86_400);
    let device = app.developer("ana").await.creates_device("logger").await;
    let asks = async |query: &str| {
        device
            .get(&device.at(&format!(
                "data/reading/buckets?fields=payload.n&functions=sum&every=1h&timeField=payload.at{query}"
            )))
            .await
    };
    // It is 2027-02-24T08:00Z; each value has its time of measurement.
    for (n, at) in [
        (1, json!("2027-02-24T06:10:00Z")),
        (2, json!(1_803_450_600)),
        (4, json!(1_803_450_600_000_u64)),
        (8, json!("2027-02-24T07:30:00+01:00")),
        (16, json!("yesterday")),
        (32, json!("2027-02-22T06:10:00Z")),
        (64, json!("2027-02-24T08:00:05Z")),
    ] {
        device.posts("reading", json!({"n": n, "at": at})).await.created();
    }
    let answer = asks("").await.ok();
    assert_eq!((told(&answer, "sum"), &answer["meta"]["skipped"]), (vec![json!(15.0), json!(64.0)], &json!(1)));
    let late = asks("&late=3d").await.ok();
    assert_eq!(told(&late, "sum"), [json!(32.0), json!(15.0), json!(64.0)]);
    let range = asks("&late=3d&from=2027-02-24T06:30:00Z&to=2027-02-24T08:00:00Z").await.ok();
    assert_eq!(told(&range, "sum"), [json!(14.0)]);
    // A clock that is ahead counts by its own time.
    let ahead = asks("&from=2027-02-24T08:00:01Z").await.ok();
    assert_eq!(told(&ahead, "sum"), [json!(64.0)]);
    // Any spelling of a lateness up to 31 days.
    for late in ["72h", "4320m", "259200s", "25h", "744h", "1441m", "86401s", "31d", "4w"] {
        asks(&format!("&late={late}")).await.ok();
    }
    assert_eq!(told(&asks("&late=72h").await.ok(), "sum"), told(&late, "sum"));
    for late in ["32d", "745h", "44641m", "2678401s", "5w", "1mo", "1y", "0s", "99999999999999999999s"] {
        assert_eq!(asks(&format!("&late={late}")).await.faults(), ["query.late"], "{late}");
    }
}

// Holds: GET /v2/devices/{id}/data/{elementName}/buckets
#[tokio::test]
async fn invalid_bucket_query_names_each_parameter() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = with_values(&ana, [json!({"temp": 1})]).await;
    let faults = async |query: &str| ana.get(&device.at(&format!("data/reading/buckets?{query}"))).await.faults();
    assert_eq!(faults("").await, ["query.fields"]);
    for (query, field) in [
        ("fields=", "fields"),
        ("fields=temp", "fields"),
        ("fields=createdAt", "fields"),
        (
            "fields=payload.a,payload.b,payload.c,payload.d,payload.e,payload.f,payload.g,payload.h,payload.i,payload.j,payload.k",
            "fields",
        ),
        ("fields=payload.temp&functions=median", "functions"),
        ("fields=payload.temp&every=25h", "every"),
        ("fields=payload.temp&every=0s", "every"),
        ("fields=payload.temp&every=5min", "every"),
        ("fields=payload.temp&points=1", "points"),
        ("fields=payload.temp&points=5001", "points"),
        ("fields=payload.temp&points=10&every=1h", "points"),
        ("fields=payload.temp&points=2&from=0000-01-01&to=9999-12-31", "points"),
        ("fields=payload.temp&zone=Mars/Olympus", "zone"),
        ("fields=payload.temp&fill=zero", "fill"),
        ("fields=payload.temp&from=soon", "from"),
        ("fields=payload.temp&to=later", "to"),
        ("fields=payload.temp&filter[temp][eq]=1", "filter[temp][eq]"),
        ("fields=payload.temp&timeField=createdAt", "timeField"),
        ("fields=payload.temp&late=1d", "late"),
        ("fields=payload.temp&timeField=payload.at&late=soon", "late"),
        ("fields=payload.temp&every=1s&fill=null&from=2020-01-01&to=2027-01-01", "every"),
    ] {
        assert_eq!(faults(query).await, [format!("query.{field}")], "{query}");
    }
    assert_eq!(faults("fields=payload.at&timeField=payload.at&points=5").await, ["query.from", "query.to"]);
    let all = "fields=x&functions=x&every=x&points=x&zone=x&fill=x&from=x&to=x&timeField=x&late=x";
    let mut named: Vec<_> = all.split('&').map(|pair| format!("query.{}", pair.split('=').next().unwrap())).collect();
    named.sort();
    assert_eq!(faults(all).await, named, "all at once");
    // A missing or hidden series is reported before faults of the query.
    ana.get(&device.at("data/unheard/buckets?fields=x")).await.not_found();
    ana.get(&device.at("data/unheard/buckets?fields=payload")).await.not_found();
    let bob = app.stranger("bob").await;
    bob.get(&device.at("data/reading/buckets?fields=x")).await.not_found();
    let other = ana.creates_device("other").await;
    other.get(&device.at("data/reading/buckets?fields=payload")).await.not_found();
    app.get(&device.at("data/reading/buckets?fields=payload")).await.unauthenticated();
}

// Holds: GET /v2/data/buckets, c13.fleet
async fn many_devices_are_one_series_or_a_series_each(app: &TestApp) {
    let ana = app.developer("ana").await;
    let beneath = ana.founds("beneath", &ana.organization).await;
    let project = ana.project().await.to_owned();
    let one = ana.creates_device("one").await;
    let other =
        ana.creates_device_as(json!({"name": "other", "projectUuid": project, "organizationId": beneath})).await;
    let silent = ana.creates_device_of(&ana.creates_project("second").await, "silent").await;
    for (n, device) in [&one, &other, &one, &other].into_iter().enumerate() {
        device.posts("reading", json!(n)).await.created();
        app.wait_seconds(60);
    }
    let ask = async |query: &str| {
        ana.get(&format!("/v2/data/buckets?elementName=reading&fields=payload&functions=sum&{query}")).await
    };
    let ids = format!("deviceIds={},{}&deviceIds={}", other.id, one.id, silent.id);
    let all = ask(&format!("{ids}&every=2m")).await.ok();
    assert_eq!((counts(&all), told(&all, "sum")), (vec![2, 2], vec![json!(1.0), json!(5.0)]));
    assert_eq!((&all["meta"]["values"], &all["meta"]["every"]), (&json!(4), &json!("2m")));
    for (scope, sum) in [
        (format!("projectUuid={project}"), 6.0),
        (format!("organizationId={}", ana.organization), 2.0),
        (format!("organizationId={}&depth=2", ana.organization), 6.0),
        (format!("organizationId={beneath}&groupBy=none"), 4.0),
    ] {
        assert_eq!(told(&ask(&scope).await.ok(), "sum"), [json!(sum)], "{scope}");
    }
    let each = ask(&format!("{ids}&groupBy=device&every=2m&fill=null")).await.ok();
    let data = each["data"].as_array().unwrap();
    let of: Vec<_> = data.iter().map(|series| text(series, "deviceId")).collect();
    assert_eq!(of, [&other.id, &one.id, &silent.id], "as they were named");
    for (series, sums) in
        data.iter().zip([[json!(1.0), json!(3.0)], [json!(0.0), json!(2.0)], [json!(null), json!(null)]])
    {
        let told: Vec<_> =
            series["buckets"].as_array().unwrap().iter().map(|it| it["fields"]["payload"]["sum"].clone()).collect();
        assert_eq!(told, sums);
    }
    let points = ask(&format!("{ids}&points=4")).await.ok();
    assert_eq!((&points["meta"]["every"], counts(&points)), (&json!("1m"), vec![1, 1, 1, 1]));
    let path = format!("/v2/data/buckets?elementName=reading&fields=payload&functions=last&groupBy=device&{ids}");
    let csv = ana.get_as("text/csv", &path).await.is(200).text;
    let row = |device: &Device<'_>, last: u8| {
        format!("{},2027-01-15T08:00:00.000Z,2027-01-15T08:03:00.001Z,2,{last}", device.id)
    };
    assert_eq!(csv, format!("deviceId,from,to,count,payload.last\r\n{}\r\n{}\r\n", row(&other, 3), row(&one, 2)));
    let unheard = ana.get(&format!("/v2/data/buckets?elementName=unheard&fields=payload&{ids}")).await.ok();
    assert_eq!(unheard["data"], json!([]), "those that have no such element say nothing");
}

// Holds: GET /v2/data/buckets, c13.fleet
async fn buckets_of_many_devices_are_permitted_and_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    let (bob, low) = (app.stranger("bob").await, ana.invites("low", "basicUser").await);
    let asked = "/v2/data/buckets?elementName=reading&fields=payload";
    let scopes = [
        format!("deviceIds={}", device.id),
        format!("projectUuid={}", ana.project().await),
        format!("organizationId={}", ana.organization),
    ];
    for scope in &scopes {
        low.get(&format!("{asked}&{scope}")).await.ok();
        bob.get(&format!("{asked}&{scope}")).await.not_found();
        bob.get(&format!("{asked}&{scope}&zone=x")).await.not_found();
        app.get(&format!("{asked}&{scope}")).await.unauthenticated();
        device.get(&format!("{asked}&{scope}")).await.unauthenticated();
    }
    // One of several that is hidden hides all.
    ana.get(&format!("{asked}&deviceIds={},{NOBODY}", device.id)).await.not_found();
    let faults = async |query: &str| ana.get(&format!("/v2/data/buckets?{query}")).await.faults();
    assert_eq!(faults("").await, ["query.deviceIds", "query.elementName", "query.fields"]);
    let many: Vec<_> = (0..101).map(|n| format!("01890a5d-ac96-774b-bcce-b302099a{n:04x}")).collect();
    let base = "elementName=reading&fields=payload";
    for (query, field) in [
        ("deviceIds=".to_owned(), "deviceIds"),
        ("deviceIds=fridge".to_owned(), "deviceIds"),
        (format!("deviceIds={}&groupBy=device", many.join(",")), "deviceIds"),
        (format!("{}&{}", scopes[0], scopes[1]), "projectUuid"),
        (format!("{}&{}", scopes[1], scopes[2]), "projectUuid"),
        ("projectUuid=x".to_owned(), "projectUuid"),
        ("organizationId=x".to_owned(), "organizationId"),
        (format!("{}&depth=0", scopes[2]), "depth"),
        (format!("{}&groupBy=project", scopes[0]), "groupBy"),
        (format!("{}&every=1x", scopes[0]), "every"),
    ] {
        assert_eq!(faults(&format!("{base}&{query}")).await, [format!("query.{field}")], "{query}");
    }
    for number in 0..100 {
        ana.creates_device(&format!("{number}")).await;
    }
    let too_many = format!("{base}&groupBy=device&{}", scopes[2]);
    assert_eq!(faults(&too_many).await, ["query.organizationId"]);
    assert_eq!(faults(&too_many.replace(&scopes[2], &scopes[1])).await, ["query.projectUuid"]);
    ana.get(&format!("{asked}&{}", scopes[2])).await.ok();
}
