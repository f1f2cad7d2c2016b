//! Flipped bits in files of a data folder, after a kill and after an orderly stop: each is reported by `isobar check`,
//! by the start or by an answer of 5xx, or has no effect. No answer ever changes silently.
//!
//! `FLIPS=1000` makes a long run, `FLIPS_SEED` a different one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use isobar_power::{Chance, becomes};
use program_support::site::{Api, ENVIRONMENT, everything};
use program_support::{Serving, isobar, serve, text};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

const SEED: u64 = 0x15_0b_a4;
/// Flips of a normal run.
const FLIPS: u64 = 16;
const AT_ONCE: usize = 2;
const DEVICES: usize = 4;
const EVENTS: u64 = 40;
/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Members that change by themselves: after a kill, usage is counted anew during the first calls.
const PASSING: [&str; 3] = ["lastActive", "lastUsedAt", "dataUsageMb"];

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// A data folder with the answers of its server.
struct Folder {
    name: &'static str,
    path: PathBuf,
    files: Vec<PathBuf>,
    truth: BTreeMap<String, Answer>,
}

type Answer = (u16, Value);

/// The paths to ask, and the credentials for them.
struct Questions {
    paths: Vec<String>,
    key: String,
    tokens: Vec<(String, String)>,
}

/// Returns a server's answers to all questions.
async fn answers(base: &str, questions: &Questions) -> Result<BTreeMap<String, Answer>, String> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
    let mut all = BTreeMap::new();
    let of_key = questions.paths.iter().map(|path| (path.clone(), "api_auth_token", &questions.key));
    let of_token = questions.tokens.iter().map(|(id, token)| (format!("/v2/devices/{id}?"), "cloud", token));
    for (path, header, credential) in of_key.chain(of_token) {
        let request = client.get(format!("http://{base}{path}")).header(header, credential);
        let response = request.send().await.map_err(|error| format!("{path}: {error}"))?;
        let status = response.status().as_u16();
        let body = response.text().await.map_err(|error| format!("{path}: {error}"))?;
        let mut body = serde_json::from_str(&body).unwrap_or(Value::String(body));
        forget_what_passes(&mut body);
        all.insert(path, (status, body));
    }
    Ok(all)
}

fn forget_what_passes(value: &mut Value) {
    match value {
        Value::Object(members) => {
            PASSING.iter().for_each(|name| drop(members.remove(*name)));
            members.values_mut().for_each(forget_what_passes);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_what_passes),
        _ => {}
    }
}

/// Fills a folder: some data is in tables and pages, the rest in the logs when the program is killed.
async fn fill(folder: &Path) -> Questions {
    let serving = Serving::on(folder, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let mut design = everything();
    design["limit"] = json!({"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 0}});
    let devices = api.found(&design, DEVICES).await;
    let me = api.get("/v2/auth/user").await;
    let (user, organization) = (me["id"].as_str().unwrap().to_owned(), me["organizationId"].as_str().unwrap());
    let key = api.admin(Method::POST, &format!("/v2/users/{user}/apiKeys"), Some(&json!({"name": "k"}))).await;
    let project = api.get("/v2/projects").await["data"][0]["id"].as_str().unwrap().to_owned();
    let mut paths: Vec<String> = [
        "/v2/auth/user",
        "/v2/organizations?depth=all&limit=10000",
        "/v2/projects?depth=all&limit=10000",
        "/v2/users?depth=all&limit=10000",
        "/v2/devices?depth=all&limit=10000&lastValues=log",
        "/v2/devices/locations?depth=all",
        "/v2/notifications?limit=10000",
    ]
    .map(str::to_owned)
    .into();
    for member in ["", "/branding", "/dashboard", "/deviceTable"] {
        paths.push(format!("/v2/organizations/{organization}{member}"));
    }
    paths.extend(["", "/specification"].map(|member| format!("/v2/projects/{project}{member}")));
    paths.push(format!("/v2/users/{user}/apiKeys"));
    for device in &devices {
        for member in ["", "/events?limit=10000", "/data/log?limit=10000", "/last/log", "/storage", "/settings"] {
            paths.push(format!("/v2/devices/{}{member}", device.id));
        }
        paths.push(format!("/v2/devices/{}/settings/history?limit=10000", device.id));
        paths.push(format!("/v2/events/cloud?peek=true&limit=10000&deviceId={}", device.id));
    }
    work(&api, &devices, 0).await;
    assert_eq!(serving.stop(), Some(0));
    let serving = Serving::on(folder, &ENVIRONMENT);
    let api = api.at(&serving);
    work(&api, &devices, EVENTS).await;
    // All reports have reached the registry, and e-mails are written.
    for device in &devices {
        let path = format!("/v2/devices/{}", device.id);
        let is_told = async || api.get(&path).await["statusInt"] == (2 * EVENTS - 1) % 4 + 1;
        becomes("the newest status", is_told).await;
    }
    serving.kill();
    let tokens = devices.into_iter().map(|device| (device.id, device.token)).collect();
    Questions { paths, key: key["key"].as_str().unwrap().to_owned(), tokens }
}

async fn work(api: &Api, devices: &[program_support::site::Device], first: u64) {
    for (place, device) in devices.iter().enumerate() {
        for n in first..first + EVENTS {
            api.post(device, "reading", &json!({"n": n, "text": "a reading"})).await.created();
        }
        let settings = format!("/v2/devices/{}/settings/limit", device.id);
        api.admin(Method::PUT, &settings, Some(&json!(first + 1))).await;
        let name = format!("user-{first}-{place}");
        let user = json!({
            "username": name, "email": format!("{name}@example.com"), "role": "technician", "firstName": "Ada",
            "lastName": "Lovelace", "company": "none",
        });
        api.admin(Method::POST, "/v2/users", Some(&user)).await;
    }
    api.admin(Method::POST, "/v2/notifications/system", Some(&json!({"message": "It works."}))).await;
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, place) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &place);
        } else if kind.is_file() {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// Lists all files beneath a folder that are not empty.
fn files(folder: &Path, beneath: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(beneath)).unwrap() {
        let entry = entry.unwrap();
        let (kind, path) = (entry.file_type().unwrap(), beneath.join(entry.file_name()));
        if kind.is_dir() {
            found.extend(files(folder, &path));
        } else if kind.is_file() && entry.metadata().unwrap().len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the kind of a file: its name without numbers.
fn kind(file: &Path) -> String {
    let name = file.file_name().unwrap().to_str().unwrap();
    match file.extension().and_then(OsStr::to_str) {
        Some(end @ ("sst" | "log" | "eml")) => format!("*.{end}"),
        _ => ["OPTIONS", "MANIFEST", "LOG"].into_iter().find(|kind| name.starts_with(kind)).unwrap_or(name).to_owned(),
    }
}

impl Folder {
    async fn of(name: &'static str, path: PathBuf, questions: &Questions) -> Self {
        let files = files(&path, Path::new(""));
        let place = tempfile::tempdir().unwrap();
        copy(&path, place.path());
        let serving = Serving::on(place.path(), &ENVIRONMENT);
        let truth = answers(&serving.address, questions).await.unwrap();
        let again = answers(&serving.address, questions).await.unwrap();
        for (path, answer) in &truth {
            assert!(again[path] == *answer, "{path} changes by itself: {}", differing(answer, &again[path]));
        }
        assert!(truth.values().all(|(status, _)| *status == 200), "{truth:#?}");
        Self { name, path, files, truth }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Check,
    Start,
    Read,
    NoEffect,
    Wrong,
}

struct Flip {
    file: PathBuf,
    at: u64,
    bit: u8,
}

impl Flip {
    /// Draws a flip: alternately from one kind of file, and from anywhere.
    fn by(chance: &mut Chance, folder: &Folder, number: u64) -> Self {
        let length = |file: &PathBuf| fs::metadata(folder.path.join(file)).unwrap().len();
        let file = if number.is_multiple_of(2) {
            let mut kinds: BTreeMap<String, Vec<&PathBuf>> = BTreeMap::new();
            folder.files.iter().for_each(|file| kinds.entry(kind(file)).or_default().push(file));
            let of_kind = kinds.values().nth((number / 4) as usize % kinds.len()).unwrap();
            of_kind[chance.below(of_kind.len() as u64) as usize]
        } else {
            let mut place = chance.below(folder.files.iter().map(length).sum());
            let holds = |file: &&PathBuf| {
                let found = place < length(file);
                place = place.saturating_sub(length(file));
                found
            };
            folder.files.iter().find(holds).unwrap()
        };
        Self { file: file.clone(), at: chance.below(length(file)), bit: chance.below(8) as u8 }
    }

    fn make(&self, folder: &Path) {
        let path = folder.join(&self.file);
        let mut bytes = fs::read(&path).unwrap();
        bytes[self.at as usize] ^= 1 << self.bit;
        fs::write(path, bytes).unwrap();
    }

    /// Returns the outcome of a flip, and the message.
    async fn outcome(&self, folder: &Folder, questions: &Questions) -> (Outcome, String) {
        let place = tempfile::tempdir().unwrap();
        let (looked_at, served) = (place.path().join("check"), place.path().join("serve"));
        for each in [&looked_at, &served] {
            copy(&folder.path, each);
            self.make(each);
        }
        let check =
            spawn_blocking(move || isobar(&["check", "--data"]).arg(looked_at).output().unwrap()).await.unwrap();
        let told = text(&check.stdout) + &String::from_utf8_lossy(&check.stderr);
        let named = !check.status.success();
        if named && (check.status.code() != Some(1) || told.trim().is_empty()) {
            return (Outcome::Wrong, format!("check ended with {} and said {told:?}", check.status));
        }
        let (outcome, told_later) = self.served(folder, questions, &place, served).await;
        match outcome {
            Outcome::NoEffect | Outcome::Start | Outcome::Read if named => (Outcome::Check, told),
            outcome => (outcome, told_later),
        }
    }

    async fn served(
        &self,
        folder: &Folder,
        questions: &Questions,
        place: &TempDir,
        served: PathBuf,
    ) -> (Outcome, String) {
        let log = place.path().join("stderr");
        let stderr = Stdio::from(fs::File::create(&log).unwrap());
        let started = spawn_blocking(move || Serving::by(serve(&served, &ENVIRONMENT).stderr(stderr))).await.unwrap();
        let serving = match started {
            Ok(serving) => serving,
            Err((status, _)) => {
                let said = fs::read_to_string(log).unwrap();
                let outcome =
                    if status.code() == Some(1) && !said.trim().is_empty() { Outcome::Start } else { Outcome::Wrong };
                return (outcome, format!("{status}: {said}"));
            }
        };
        let answers = match answers(&serving.address, questions).await {
            Ok(answers) => answers,
            Err(error) => return (Outcome::Wrong, error),
        };
        spawn_blocking(|| serving.kill()).await.unwrap();
        let others = answers.iter().filter(|(path, answer)| folder.truth[*path] != **answer);
        let mut others = others.map(|(path, answer)| (answer.0 >= 500, path, answer)).collect::<Vec<_>>();
        // Wrong answers come first: they count, whatever else is reported.
        others.sort_by_key(|(is_named, ..)| *is_named);
        let Some((is_named, path, answer)) = others.first() else { return (Outcome::NoEffect, String::new()) };
        let told = format!("{path}: {}", differing(&folder.truth[*path], answer));
        (if *is_named { Outcome::Read } else { Outcome::Wrong }, told)
    }
}

/// Describes the difference of two answers.
fn differing(truth: &Answer, answer: &Answer) -> String {
    let (one, other) = (truth.1.to_string(), answer.1.to_string());
    let common = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| text.chars().skip(common.saturating_sub(40)).take(120).collect::<String>();
    format!("{} {}, and was {} {}", answer.0, part(&other), truth.0, part(&one))
}

/// Outcomes by kind of file.
#[derive(Default)]
struct Table(BTreeMap<(String, &'static str), BTreeMap<Outcome, u64>>);

impl Table {
    fn text(&self) -> String {
        let mut text = String::from(
            "| file | folder | named by check | at the start only | by an answer only | without effect | wrong |\n|---|---|---:|---:|---:|---:|---:|\n",
        );
        for ((kind, folder), counts) in &self.0 {
            let count = |outcome| counts.get(&outcome).copied().unwrap_or_default();
            writeln!(
                text,
                "| `{kind}` | {folder} | {} | {} | {} | {} | {} |",
                count(Outcome::Check),
                count(Outcome::Start),
                count(Outcome::Read),
                count(Outcome::NoEffect),
                count(Outcome::Wrong)
            )
            .unwrap();
        }
        text
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_is_reported_or_has_no_effect() {
    let (flips, seed) = (given("FLIPS", FLIPS), given("FLIPS_SEED", SEED));
    let all = tempfile::tempdir().unwrap();
    let (killed, stopped) = (all.path().join("killed"), all.path().join("stopped"));
    let questions = Arc::new(fill(&killed).await);
    copy(&killed, &stopped);
    let serving = Serving::on(&stopped, &ENVIRONMENT);
    assert_eq!(serving.stop(), Some(0));
    let folders = [
        Arc::new(Folder::of("killed", killed, &questions).await),
        Arc::new(Folder::of("stopped", stopped, &questions).await),
    ];
    let (mut chance, places, mut under_way) = (Chance::new(seed), Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for number in 0..flips {
        // Two of a kind in a row, one in each folder.
        let folder = folders[(number / 2 % 2) as usize].clone();
        let flip = Flip::by(&mut chance, &folder, number);
        let (questions, places) = (questions.clone(), places.clone());
        under_way.spawn(async move {
            let _place = places.acquire().await.unwrap();
            let (outcome, told) = flip.outcome(&folder, &questions).await;
            (number, flip, folder.name, outcome, told)
        });
    }
    let (mut table, mut wrong) = (Table::default(), Vec::new());
    while let Some(done) = under_way.join_next().await {
        let (number, flip, folder, outcome, told) = done.unwrap();
        *table.0.entry((kind(&flip.file), folder)).or_default().entry(outcome).or_default() += 1;
        if outcome == Outcome::Wrong {
            let line = format!("{number}: {folder}, {} byte {} bit {}: {told}", flip.file.display(), flip.at, flip.bit);
            println!("WRONG {line}");
            wrong.push(line);
        }
    }
    println!("{flips} flips of seed {seed:#x}\n\n{}", table.text());
    assert!(wrong.is_empty(), "{} of {flips}: {wrong:#?}", wrong.len());
}
