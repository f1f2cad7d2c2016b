//! Tests docs/integrations: the requests of every page are sent to a server, and must have the documented outcome.
//!
//! A page's fenced blocks are read in order: `http` is a request line and its headers, `json body` its body, and `json
//! outcome` the resulting devices, each with its metadata and its newest stored payload.

use std::collections::BTreeMap;
use std::path::Path;

use reqwest::Method;
use serde_json::Value;

use crate::support::TestApp;
use crate::support::person::text;

/// One request of a page and its outcome.
struct Example {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    outcome: Vec<Value>,
}

/// Returns the fenced blocks of a page: the info string and the text. Blocks about a design are left out.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap());
    fenced.filter(|(kind, _)| !matches!(*kind, "json properties" | "json decoded")).collect()
}

fn examples(page: &str, project: &str, key: &str) -> Vec<Example> {
    let page = page.replace("PROJECT_UUID", project).replace("API_KEY", key);
    let blocks = blocks(&page);
    let example = |[request, body, outcome]: &[(&str, &str); 3]| {
        assert_eq!([request.0, body.0, outcome.0], ["http", "json body", "json outcome"]);
        let (line, headers) = request.1.trim_end().split_once('\n').unwrap();
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        Example {
            path: line.strip_prefix("POST ").unwrap().to_owned(),
            headers: headers.lines().map(|line| header(line).unwrap()).collect(),
            body: body.1.to_owned(),
            outcome: serde_json::from_str(outcome.1).unwrap(),
        }
    };
    let (examples, rest) = blocks.as_chunks::<3>();
    assert!(rest.is_empty() && !examples.is_empty());
    examples.iter().map(example).collect()
}

/// Returns the pages, by name.
fn pages() -> BTreeMap<String, String> {
    let folder = Path::new("../../docs/integrations");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let page = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    };
    files.map(page).collect()
}

// Holds: webhook.debugShape
#[tokio::test]
async fn every_example_of_the_guides_works_as_described() {
    let mut pages = pages();
    let contents = pages.remove("README.md").unwrap();
    assert!(pages.len() >= 6);
    for (name, page) in &pages {
        assert!(contents.contains(&format!("({name})")), "{name} is not among the contents");
        let app = TestApp::start().await;
        let ana = app.developer("ana").await;
        let project = ana.creates_project("p").await;
        let key = ana.makes_api_key("for the guide").await;
        for example in examples(page, &project, &key) {
            let request = app.request(Method::POST, &example.path).body(example.body);
            let request = example.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            let answer = app.send(request).await.ok();
            assert_eq!(answer["errors"], Value::Array(Vec::new()), "{name}: {answer}");
            let devices = ana.get("/v2/devices?sortBy=name").await.ok();
            let devices = devices["data"].as_array().unwrap();
            let names: Vec<&str> = devices.iter().map(|device| text(device, "name")).collect();
            let expected: Vec<&str> = example.outcome.iter().map(|device| text(device, "name")).collect();
            assert_eq!(names, expected, "{name}");
            for (device, expected) in devices.iter().zip(&example.outcome) {
                assert_eq!(device["meta"], expected["meta"], "{name}");
                let data = format!("/v2/devices/{}/data/{}?limit=1", text(device, "id"), text(expected, "element"));
                assert_eq!(ana.get(&data).await.list_of("/payload")[0], expected["payload"], "{name}");
            }
        }
        app.end().await;
    }
}
