//! Provides a PostgreSQL for tests: the one that `ISOBAR_TEST_POSTGRES` names, or one started for them.

#![allow(dead_code, reason = "each test that has this module uses a part of it")]

pub mod link;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _};

/// Single connection besides the registry's own, to a file of SQLite or to PostgreSQL. It reconnects if it is lost.
pub enum Raw {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Raw {
    /// Connects to an address.
    pub async fn open(address: &str) -> Self {
        if address.starts_with("sqlite:") {
            let options: SqliteConnectOptions = address.parse().expect("an address of SQLite");
            let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
            return Self::Sqlite(pool.expect("the file can be opened"));
        }
        let options: PgConnectOptions = address.parse().expect("an address of PostgreSQL");
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await;
        Self::Postgres(pool.expect("PostgreSQL can be reached"))
    }

    /// Executes statements that have no values.
    pub async fn run(&self, sql: &str) -> Result<(), sqlx::Error> {
        let statements = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Sqlite(pool) => statements.execute(pool).await.map(drop),
            Self::Postgres(pool) => statements.execute(pool).await.map(drop),
        }
    }

    /// Queries one number.
    pub async fn number(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query);
        let number = match self {
            Self::Sqlite(pool) => sqlx::query(query).fetch_one(pool).await.and_then(|row| row.try_get(0)),
            Self::Postgres(pool) => sqlx::query(query).fetch_one(pool).await.and_then(|row| row.try_get(0)),
        };
        number.expect("a number")
    }

    /// Closes the connection.
    pub async fn close(self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// Server on which tests may create databases.
struct Server {
    address: String,
    /// Process of a server that the tests started. It lives as long as its standard input is open, however this process
    /// ends.
    _own: Option<Child>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var("ISOBAR_TEST_POSTGRES") {
        Ok(address) if !address.is_empty() => Server { address, _own: None },
        _ => start(&[]),
    })
}

fn start(more: &[&str]) -> Server {
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
    command.arg("-c").arg(include_str!("postgres.sh")).arg("postgres.sh").arg(programs).args(more).current_dir("/");
    let mut own =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("PostgreSQL could not be started");
    let mut folder = String::new();
    BufReader::new(own.stdout.take().expect("piped")).read_line(&mut folder).expect("PostgreSQL said nothing");
    assert!(!folder.trim().is_empty(), "PostgreSQL did not come up; its log is above");
    Server { address: format!("postgres://isobar@localhost/postgres?host={}", folder.trim()), _own: Some(own) }
}

/// Port of the standby of a pair, on the socket that both servers have in one folder.
const STANDBY_PORT: &str = "5433";

/// A server of its own for a test, and a standby that follows it; both end when it is dropped.
pub struct Pair {
    /// Address of the primary.
    pub primary: String,
    /// Address of the standby.
    pub standby: String,
    _own: Server,
}

impl Pair {
    /// Starts both servers.
    pub fn start() -> Self {
        let own = start(&[STANDBY_PORT]);
        let primary = own.address.clone();
        Self { standby: format!("{primary}&port={STANDBY_PORT}"), primary, _own: own }
    }

    /// Makes the standby stand still with all that the primary has now.
    pub async fn freeze_standby(&self) {
        let (primary, standby) = (Raw::open(&self.primary).await, Raw::open(&self.standby).await);
        let newest = primary.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").await;
        primary.run("SELECT pg_switch_wal()").await.expect("the test may end a file of the log");
        let replayed = "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint";
        isobar_power::becomes("the standby has all", async || standby.number(replayed).await >= newest).await;
        standby.run("SELECT pg_wal_replay_pause()").await.expect("a standby can stand still");
        primary.close().await;
        standby.close().await;
    }
}

/// Returns the programs of the newest installed version.
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

/// Number of the lock held while looking for the template or creating it; nothing else locks this number.
const TEMPLATE_LOCK: i64 = 0x0069_736f_6261_72ff;

/// Database that only one test uses.
pub struct OwnDatabase {
    /// Address.
    pub address: String,
    name: String,
}

impl OwnDatabase {
    /// Creates an empty database.
    pub async fn new() -> Self {
        Self::made("").await
    }

    /// Creates a database with the registry's schema. The first process runs `migrate` once for a server; later
    /// databases are copies, which cost less.
    pub async fn with_schema(migrate: impl AsyncFnOnce(&str)) -> Self {
        let template = format!("isobar_template_{:016x}", schema_digest());
        let administrator = Administrator::new().await;
        administrator.run(&format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
        if !administrator.has(&template).await {
            let making = format!("{template}_making");
            administrator.run(&format!("DROP DATABASE IF EXISTS {making} WITH (FORCE)")).await;
            administrator.run(&format!("CREATE DATABASE {making}")).await;
            migrate(&on(&server().address, &making)).await;
            administrator.run(&format!("ALTER DATABASE {making} RENAME TO {template}")).await;
        }
        // The lock ends with the connection.
        administrator.close().await;
        Self::made(&format!("TEMPLATE {template}")).await
    }

    /// Creates a copy, while nothing is connected to the original.
    pub async fn copy(&self) -> Self {
        Self::made(&format!("TEMPLATE {}", self.name)).await
    }

    /// Creates an empty database with another encoding.
    pub async fn encoded(encoding: &str) -> Self {
        let locale = "LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'";
        Self::made(&format!("ENCODING '{encoding}' {locale} TEMPLATE template0")).await
    }

    async fn made(how: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("isobar_test_{}_{number}", std::process::id());
        administer(&format!("CREATE DATABASE {name} {how}")).await;
        Self { address: on(&server().address, &name), name }
    }

    /// Removes the database.
    pub async fn remove(self) {
        administer(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

/// Script that runs PgBouncer with the settings in a file, as the user of PostgreSQL: it refuses to run as root.
const POOLER: &str = r#"PATH=$PATH:/usr/sbin
[ "$(id -u)" -eq 0 ] || exec pgbouncer -q "$1"
user=nobody
id postgres >/dev/null 2>&1 && user=postgres
chown -R "$user" "${1%/*}"
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups pgbouncer -q "$1""#;

/// PgBouncer in front of the server; it ends when it is dropped.
pub struct Pooler {
    own: Child,
    folder: tempfile::TempDir,
}

impl Pooler {
    /// Starts a PgBouncer with this `pool_mode`.
    pub fn start(mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        let (place, options) = server().address.split_once('?').unwrap_or((&server().address, ""));
        let authority = place.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap_or("localhost");
        let (host, port) = authority.split_once(':').unwrap_or((authority, "5432"));
        let host = options.strip_prefix("host=").unwrap_or(host);
        let settings = format!(
            "[databases]\n* = host={host} port={port} user=isobar\n[pgbouncer]\nauth_type = any\npool_mode = {mode}\n\
             listen_addr =\nlisten_port = 6432\nunix_socket_dir = {at}\nignore_startup_parameters = extra_float_digits\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("it can be written");
        let mut command = Command::new("sh");
        command.args(["-c", POOLER, "sh"]).arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        let own = command.spawn().expect("PgBouncer is not installed: scripts/prepare test installs it");
        let pooler = Self { own, folder };
        let socket = pooler.folder.path().join(".s.PGSQL.6432");
        isobar_power::becomes_blocking("PgBouncer comes up", || socket.exists());
        pooler
    }

    /// Returns the address of a database through the pooler.
    pub fn address(&self, database: &OwnDatabase) -> String {
        let folder = self.folder.path().display();
        format!("postgres://isobar@localhost/{}?host={folder}&port=6432", database.name)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.own.kill();
        let _ = self.own.wait();
    }
}

/// Returns a digest of the schema: of all the registry's migrations.
fn schema_digest() -> u64 {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/src/registry/migrations");
    let steps = std::fs::read_dir(folder).expect("the migrations are there").map(|step| step.expect("a file").path());
    let mut steps: Vec<_> = steps.collect();
    steps.sort();
    let mut digest = DefaultHasher::new();
    steps.iter().for_each(|step| std::fs::read(step).expect("it can be read").hash(&mut digest));
    digest.finish()
}

async fn administer(sql: &str) {
    let administrator = Administrator::new().await;
    administrator.run(sql).await;
    administrator.close().await;
}

/// Single connection to the server.
struct Administrator(Raw);

impl Administrator {
    async fn new() -> Self {
        Self(Raw::open(&server().address).await)
    }

    async fn run(&self, sql: &str) {
        self.0.run(sql).await.expect("the test may make and remove databases");
    }

    async fn has(&self, database: &str) -> bool {
        let query = format!("SELECT count(*) FROM pg_database WHERE datname = '{database}'");
        self.0.number(&query).await > 0
    }

    async fn close(self) {
        self.0.close().await;
    }
}

/// Returns the address of another database on the same server.
fn on(address: &str, database: &str) -> String {
    let (place, options) = address.split_once('?').map_or((address, None), |(place, options)| (place, Some(options)));
    let authority = place.find("://").map_or(0, |at| at + 3);
    let end = place[authority..].find('/').map_or(place.len(), |at| authority + at);
    let options = options.map_or(String::new(), |options| format!("?{options}"));
    format!("{}/{database}{options}", &place[..end])
}
