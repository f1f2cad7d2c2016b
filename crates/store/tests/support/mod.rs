//! A PostgreSQL for tests: the one that `ISOBAR_TEST_POSTGRES` names, or one of our own.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sea_orm::{ConnectionTrait, Database};

/// A server that tests may make databases on.
struct Server {
    address: String,
    /// Our own server lives as long as its standard input is open, however this process ends.
    _own: Option<Child>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var("ISOBAR_TEST_POSTGRES") {
        Ok(address) if !address.is_empty() => Server { address, _own: None },
        _ => start(),
    })
}

fn start() -> Server {
    let programs = programs().expect("PostgreSQL is not installed: no /usr/lib/postgresql/*/bin/postgres");
    // PostgreSQL refuses to run as root.
    let mut command = if whoami("id", &["-u"]) == "0" {
        let user = if whoami("id", &["-u", "postgres"]).is_empty() { "nobody" } else { "postgres" };
        let mut command = Command::new("runuser");
        command.args(["-u", user, "--", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    command.arg("-c").arg(include_str!("postgres.sh")).arg("postgres.sh").arg(programs).current_dir("/");
    let mut own =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("PostgreSQL could not be started");
    let mut folder = String::new();
    BufReader::new(own.stdout.take().expect("piped")).read_line(&mut folder).expect("PostgreSQL said nothing");
    assert!(!folder.trim().is_empty(), "PostgreSQL did not come up; its log is above");
    Server { address: format!("postgres://isobar@localhost/postgres?host={}", folder.trim()), _own: Some(own) }
}

/// The newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<_> = versions
        .filter_map(|version| Some(version.ok()?.path()))
        .filter(|version| version.join("bin/postgres").exists())
        .filter_map(|version| Some((version.file_name()?.to_str()?.parse::<u32>().ok()?, version.join("bin"))))
        .collect();
    folders.sort();
    folders.pop().map(|(_, folder)| folder)
}

fn whoami(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("id runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A database that nobody else uses.
pub struct OwnDatabase {
    /// Its address.
    pub address: String,
    name: String,
}

impl OwnDatabase {
    /// Makes one.
    pub async fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("isobar_test_{}_{number}", std::process::id());
        administer(&format!("CREATE DATABASE {name}")).await;
        Self { address: on(&server().address, &name), name }
    }

    /// Removes it.
    pub async fn remove(self) {
        administer(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

async fn administer(sql: &str) {
    let connection = Database::connect(&server().address).await.expect("PostgreSQL can be reached");
    connection.execute_unprepared(sql).await.expect("the test may make and remove databases");
    connection.close().await.expect("it closes");
}

/// The address of another database on the same server.
fn on(address: &str, database: &str) -> String {
    let (place, options) = address.split_once('?').map_or((address, None), |(place, options)| (place, Some(options)));
    let authority = place.find("://").map_or(0, |at| at + 3);
    let end = place[authority..].find('/').map_or(place.len(), |at| authority + at);
    let options = options.map_or(String::new(), |options| format!("?{options}"));
    format!("{}/{database}{options}", &place[..end])
}
