//! Backups by an operator, of a running platform under load or a stopped one, restored, and checked for damage
//! (contract: The program).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use isobar_power::{PATIENCE, becomes, within_patience};
use program_support::site::{Api, ENVIRONMENT, everything};
use program_support::{Serving, failure, isobar, text};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const DEVICES: usize = 12;
/// Number of events that are acknowledged before the backup begins.
const BEFORE: usize = 300;

/// Runs a command with a folder and a data folder.
fn command(verb: &str, folder: Option<&Path>, data: &Path) -> Output {
    let mut command = isobar(&[verb]);
    command.args(folder);
    command.arg("--data").arg(data).args(["--config", "/dev/null"]).output().unwrap()
}

/// Runs a command that must fail; returns its error. A hanging one fails after a time.
fn tried(verb: &str, folder: &Path, data: &Path) -> String {
    let mut command = std::process::Command::new("timeout");
    let isobar = isobar(&[verb]);
    command.arg(PATIENCE.as_secs().to_string()).arg(isobar.get_program()).arg(verb).arg(folder);
    failure(&command.arg("--data").arg(data).args(["--config", "/dev/null"]).output().unwrap())
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

struct Folders {
    _all: tempfile::TempDir,
    data: PathBuf,
    copy: PathBuf,
    restored: PathBuf,
}

fn folders() -> Folders {
    let all = tempfile::tempdir().unwrap();
    let of = |name: &str| all.path().join(name);
    Folders { data: of("data"), copy: of("copy"), restored: of("restored"), _all: all }
}

/// Makes a stopped platform with a device that has sent events; returns the device's id.
async fn stopped(data: &Path) -> String {
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    for n in 0..20 {
        api.post(&device, "reading", &json!({"n": n})).await.created();
    }
    assert_eq!(serving.stop(), Some(0));
    device.id
}

// Holds: c12.backup
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_holds_all_acknowledged_before_it_began() {
    let Folders { data, copy, restored, _all } = folders();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let devices = Arc::new(api.found(&everything(), DEVICES).await);
    let acknowledged: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let (next, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut posters = JoinSet::new();
    for place in 0..DEVICES {
        let (api, devices, acknowledged) = (api.clone(), devices.clone(), acknowledged.clone());
        let (next, enough) = (next.clone(), enough.clone());
        posters.spawn(async move {
            while !enough.load(Ordering::Relaxed) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let id = api.post(&devices[place], "reading", &json!({"n": n})).await.created();
                acknowledged.lock().unwrap().insert(id, place);
            }
        });
    }
    becomes("some are acknowledged", async || acknowledged.lock().unwrap().len() >= BEFORE).await;
    let before = acknowledged.lock().unwrap().clone();
    let (from, to) = (data.clone(), copy.clone());
    let told = tokio::task::spawn_blocking(move || success(&command("backup", Some(&to), &from))).await.unwrap();
    assert!(told.starts_with("The backup is in "), "{told}");
    // Later changes of the platform are not in the copy.
    let project = api.get("/v2/projects").await["data"][0]["id"].clone();
    let late = json!({"name": "late", "projectUuid": project});
    let late = api.admin(Method::POST, "/v2/devices", Some(&late)).await["id"].as_str().unwrap().to_owned();
    enough.store(true, Ordering::Relaxed);
    while let Some(poster) = posters.join_next().await {
        poster.unwrap();
    }
    assert_eq!(serving.stop(), Some(0));

    let told = success(&command("restore", Some(&copy), &restored));
    assert!(told.contains("Everything is sound."), "{told}");
    let serving = Serving::on(&restored, &ENVIRONMENT);
    let api = api.at(&serving);
    let mut found: HashMap<String, usize> = HashMap::new();
    for (place, device) in devices.iter().enumerate() {
        let history = api.list(&format!("/v2/devices/{}/events?limit=10000&cloudEvents=false", device.id)).await;
        let values = api.list(&format!("/v2/devices/{}/data/log?limit=10000", device.id)).await;
        let ids = |items: &[Value]| items.iter().map(|item| item["id"].clone()).collect::<Vec<_>>();
        assert_eq!(ids(&history), ids(&values), "an event and its value come together");
        let status = history.first().map_or(0, |newest| newest["payload"]["n"].as_u64().unwrap() % 4 + 1);
        let shown = api.get(&format!("/v2/devices/{}", device.id)).await["statusInt"].as_u64().unwrap();
        assert!(history.is_empty() || (1..=4).contains(&shown), "{status} or that of a later event: {shown}");
        found.extend(history.iter().map(|event| (event["id"].as_str().unwrap().to_owned(), place)));
    }
    let lost: Vec<_> = before.iter().filter(|(id, place)| found.get(*id) != Some(place)).collect();
    assert!(lost.is_empty(), "acknowledged before the backup and not in it: {lost:?}");

    // No device number is given out again, so nobody sees the data of others.
    let answer = api.send(Method::GET, &format!("/v2/devices/{late}"), &[], None).await.unwrap();
    assert_eq!(answer.status, 401, "nobody asks without credentials: {}", answer.body);
    let fresh = json!({"name": "fresh", "projectUuid": project});
    let fresh = api.admin(Method::POST, "/v2/devices", Some(&fresh)).await["id"].as_str().unwrap().to_owned();
    assert!(api.list(&format!("/v2/devices/{fresh}/events")).await.is_empty());
    assert_eq!(serving.stop(), Some(0));
    assert!(success(&command("check", None, &restored)).contains("Everything is sound."));
}

// Holds: c12.backup
#[tokio::test]
async fn backup_of_a_stopped_platform_restores_its_mail() {
    let Folders { data, copy, restored, _all } = folders();
    let device = stopped(&data).await;
    std::fs::create_dir_all(data.join("mail")).unwrap();
    std::fs::write(data.join("mail/letter.eml"), "Dear all").unwrap();
    success(&command("backup", Some(&copy), &data));
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700);
    success(&command("restore", Some(&copy), &restored));
    assert_eq!(std::fs::read_to_string(restored.join("mail/letter.eml")).unwrap(), "Dear all");
    let serving = Serving::on(&restored, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    assert_eq!(api.list(&format!("/v2/devices/{device}/data/log")).await.len(), 20);
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c12.check
#[tokio::test]
async fn running_platform_is_checked_for_its_owner_alone() {
    let Folders { data, _all, .. } = folders();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let socket = data.join("isobar.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(success(&command("check", None, &data)).contains("Everything is sound."));
    serving.kill();
    // Leftovers of a killed process do not disturb the next one.
    assert!(socket.exists());
    assert!(success(&command("check", None, &data)).contains("Everything is sound."));
    let serving = Serving::on(&data, &ENVIRONMENT);
    assert!(success(&command("check", None, &data)).contains("Everything is sound."));
    assert_eq!(serving.stop(), Some(0));
    assert!(!socket.exists());
}

// Holds: c12.restore
#[tokio::test]
async fn backup_and_restore_leave_existing_files_alone() {
    let Folders { data, copy, restored, _all } = folders();
    assert!(failure(&command("backup", Some(&copy), &data)).contains("no data folder"));
    assert!(!data.exists() && !copy.exists(), "nothing is made up");
    stopped(&data).await;
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::write(copy.join("thesis"), "years of work").unwrap();
    assert!(failure(&command("backup", Some(&copy), &data)).contains("is not empty"));
    assert_eq!(std::fs::read_to_string(copy.join("thesis")).unwrap(), "years of work");
    std::fs::remove_file(copy.join("thesis")).unwrap();
    success(&command("backup", Some(&copy), &data));
    assert!(failure(&command("restore", Some(&copy), &data)).contains("is not empty"));

    let mark = std::fs::read_to_string(copy.join("BACKUP")).unwrap();
    std::fs::remove_file(copy.join("BACKUP")).unwrap();
    assert!(failure(&command("restore", Some(&copy), &restored)).contains("not finished"));
    std::fs::write(copy.join("BACKUP"), mark.replace("\"layout\": 2", "\"layout\": 9")).unwrap();
    assert!(failure(&command("restore", Some(&copy), &restored)).contains("layout 9"));
    std::fs::write(copy.join("BACKUP"), mark).unwrap();
    let registry = std::fs::read(copy.join("registry.db")).unwrap();
    std::fs::remove_file(copy.join("registry.db")).unwrap();
    assert!(failure(&command("restore", Some(&copy), &restored)).contains("registry.db"));
    assert!(
        !restored.join("telemetry").exists() || std::fs::read_dir(restored.join("telemetry")).unwrap().count() == 0
    );
    std::fs::write(copy.join("registry.db"), registry).unwrap();
    success(&command("restore", Some(&copy), &restored));
}

/// Makes a named pipe.
fn pipe(at: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, at, rustix::fs::Mode::RWXU).unwrap();
}

#[tokio::test]
async fn backup_with_links_and_pipes_is_refused_by_name() {
    let Folders { data, copy, restored, _all } = folders();
    stopped(&data).await;
    let outside = data.join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(data.join("mail")).unwrap();
    std::fs::write(outside.join("secret"), "not for a restored platform").unwrap();
    success(&command("backup", Some(&copy), &data));
    let refused = |name: &str| {
        let told = tried("restore", &copy, &restored);
        assert!(told.contains(&format!("{} is neither a file nor a folder", copy.join(name).display())), "{told}");
        let left = std::fs::read_dir(&restored).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name != "isobar.lock").count(), 0, "nothing of it is left");
    };
    let socket = |at: &Path| drop(std::os::unix::net::UnixListener::bind(at).unwrap());
    let link = |to: PathBuf| move |at: &Path| std::os::unix::fs::symlink(&to, at).unwrap();
    let makers: [&dyn Fn(&Path); 4] = [&pipe, &socket, &link(outside.join("secret")), &link(outside.clone())];
    for make in makers {
        for name in ["telemetry/more", "mail/letter.eml", "mail"] {
            let at = copy.join(name);
            if name == "mail" {
                std::fs::rename(&at, copy.join("mail-away")).unwrap();
            } else {
                std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            }
            make(&at);
            refused(name);
            std::fs::remove_file(&at).unwrap();
            if name == "mail" {
                std::fs::rename(copy.join("mail-away"), &at).unwrap();
            }
        }
        for name in ["registry.db", "BACKUP"] {
            let at = copy.join(name);
            std::fs::rename(&at, copy.join("away")).unwrap();
            make(&at);
            refused(name);
            std::fs::remove_file(&at).unwrap();
            std::fs::rename(copy.join("away"), &at).unwrap();
        }
    }
    success(&command("restore", Some(&copy), &restored));
    // Other kinds of files are not copied into a backup either.
    pipe(&data.join("mail/pipe.eml"));
    let told = tried("backup", &copy.join("again"), &data);
    assert!(told.contains("mail/pipe.eml is neither a file nor a folder"), "{told}");
}

#[tokio::test]
async fn silent_control_peers_block_no_command() {
    let Folders { data, copy, _all, .. } = folders();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let connect = || std::os::unix::net::UnixStream::connect(data.join("isobar.sock")).unwrap();
    // More than are served at a time.
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    for _ in 0..2 {
        let (asked, to) = (data.clone(), copy.clone());
        let checked = tokio::task::spawn_blocking(move || success(&command("check", None, &asked)));
        let checked = within_patience("a check beside silent peers", checked).await.unwrap();
        assert!(checked.contains("Everything is sound."));
        let asked = data.clone();
        tokio::task::spawn_blocking(move || success(&command("backup", Some(&to), &asked))).await.unwrap();
        std::fs::remove_dir_all(&copy).unwrap();
    }
    drop(silent);
    assert_eq!(serving.stop(), Some(0));
}

// Holds: c12.check
#[tokio::test]
async fn damage_is_found_and_named() {
    let Folders { data, copy, restored, _all } = folders();
    stopped(&data).await;
    success(&command("backup", Some(&copy), &data));

    // A changed byte in telemetry.
    let tables = std::fs::read_dir(data.join("telemetry")).unwrap().map(|entry| entry.unwrap().path());
    let tables = tables.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    let table = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let sound = std::fs::read(&table).unwrap();
    let mut bytes = sound.clone();
    bytes[20] ^= 0x55;
    // A copied file, as the backup has a hard link to the same one.
    std::fs::remove_file(&table).unwrap();
    std::fs::write(&table, bytes).unwrap();
    let found = command("check", None, &data);
    assert_eq!(found.status.code(), Some(1));
    assert!(text(&found.stdout).contains("Damage was found") || text(&found.stderr).contains("damaged"), "{found:?}");
    std::fs::write(&table, sound).unwrap();
    success(&command("check", None, &data));

    // A project deleted beneath its device, and a registry older than telemetry.
    success(&command("restore", Some(&copy), &restored));
    let registry = program_support::registry(&restored).await;
    for spoil in [
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM projects",
        "DELETE FROM devices",
        "UPDATE sqlite_sequence SET seq = 0",
    ] {
        sqlx::raw_sql(spoil).execute(&registry).await.unwrap();
    }
    registry.close().await;
    let found = command("check", None, &restored);
    assert_eq!(found.status.code(), Some(1));
    let told = text(&found.stdout);
    for part in ["1 rows of specifications refer to rows of projects", "count other devices", "older than telemetry"] {
        assert!(told.contains(part), "{part} is missing in: {told}");
    }
}

/// Runs `isobar check` on a data folder that is mounted read-only.
fn check_read_only(data: &Path) -> Output {
    let mut unshare = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let mount = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && ! touch \"$1/new\" 2>/dev/null \
        && exec \"$0\" check --config /dev/null --data \"$1\"";
    unshare.args(["--mount", "sh", "-c", mount]).arg(isobar(&[]).get_program()).arg(data).output().unwrap()
}

// Holds: c12.check
#[tokio::test]
async fn read_only_platform_is_checked() {
    let Folders { data, copy, .. } = &folders();
    stopped(data).await;
    assert!(success(&check_read_only(data)).contains("Everything is sound."));
    // A killed one, whose logs hold what its files lack, moved without its lock file.
    let serving = Serving::on(data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    api.found(&everything(), 1).await;
    serving.kill();
    std::fs::rename(data, copy).unwrap();
    std::fs::remove_file(copy.join("isobar.lock")).unwrap();
    assert!(copy.join("registry.db-wal").metadata().unwrap().len() > 0);
    assert!(success(&check_read_only(copy)).contains("Everything is sound."));
    let damaged = copy.join("registry.db");
    let mut bytes = std::fs::read(&damaged).unwrap();
    // A byte of each page, as the log may hold another state of some.
    bytes.chunks_mut(4096).for_each(|page| page[2000] ^= 1);
    std::fs::write(&damaged, bytes).unwrap();
    assert_eq!(check_read_only(copy).status.code(), Some(1));
}

// Holds: c12.check
#[tokio::test]
async fn pipe_in_the_place_of_a_file_is_refused() {
    let Folders { data, copy, .. } = &folders();
    stopped(data).await;
    let mut tables = std::fs::read_dir(data.join("telemetry")).unwrap().map(|entry| entry.unwrap().path());
    let log = tables.find(|path| path.extension().is_some_and(|end| end == "log")).unwrap();
    let places = ["registry.db", "registry.db-note", "telemetry/CURRENT"].map(|name| data.join(name));
    for place in places.into_iter().chain([log]) {
        let aside = data.with_extension("aside");
        std::fs::rename(&place, &aside).unwrap();
        pipe(&place);
        for verb in ["check", "serve", "backup", "recover", "upgrade-check"] {
            let mut words = vec![verb];
            words.extend((verb == "backup").then(|| copy.to_str().unwrap()));
            let isobar = isobar(&words);
            let mut waiting = std::process::Command::new("timeout");
            waiting.arg(PATIENCE.as_secs().to_string()).arg(isobar.get_program()).args(isobar.get_args());
            waiting.args(["--config", "/dev/null", "--data"]).arg(data).env("ISOBAR_LISTEN", "127.0.0.1:0");
            let told = failure(&waiting.output().unwrap());
            assert!(told.contains(&format!("{} is neither a file nor a folder", place.display())), "{verb}: {told}");
        }
        std::fs::rename(&aside, &place).unwrap();
    }
    assert!(success(&command("check", None, data)).contains("Everything is sound."));
}
