//! Tests flipped bits in the files of a registry on SQLite: each is reported, or without effect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests: a broken promise ends them"
)]

#[path = "suite/registry/given.rs"]
mod given;

use std::fs;
use std::path::{Path, PathBuf};

use isobar_model::ids::DeviceRef;
use isobar_store::error::StoreError;
use isobar_store::registry::{Registry, companions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

/// Number of flipped bits, one in each round.
const ROUNDS: u64 = 60;
/// Number of rows that every table gets at least.
const ROWS: u32 = 15;

/// Pseudo-random generator with the same sequence in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

fn address(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// Opens a connection besides the registry's.
async fn beside(file: &Path) -> SqlitePool {
    let options =
        SqliteConnectOptions::new().filename(file).vfs(sqlite_page_checksums::VFS).disable_statement_logging();
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

async fn texts(raw: &SqlitePool, question: String) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(question)).fetch_all(raw).await
}

async fn tables(raw: &SqlitePool) -> Result<Vec<(String, Vec<(String, String)>)>, sqlx::Error> {
    let mut found = Vec::new();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    for table in texts(raw, names.to_owned()).await? {
        let of = |column: &str| format!("SELECT {column} FROM pragma_table_info('{table}') ORDER BY cid");
        let kinds = texts(raw, of("type")).await?;
        let columns = texts(raw, of("name")).await?.into_iter().zip(kinds).collect();
        found.push((table, columns));
    }
    Ok(found)
}

/// Adds rows to every table, regardless of their meaning.
async fn fill(raw: &SqlitePool) {
    sqlx::raw_sql("PRAGMA foreign_keys = OFF").execute(raw).await.unwrap();
    for (table, columns) in tables(raw).await.unwrap() {
        if table == "schema_version" {
            continue;
        }
        let value = |(_, kind): &(String, String)| match kind.as_str() {
            "INTEGER" => "n + 100000".to_owned(),
            "BLOB" => "randomblob(200 + n * n * 30)".to_owned(),
            _ => "printf('%s %d %.*c', 'text', n, n * 3, 'x')".to_owned(),
        };
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let values: Vec<String> = columns.iter().map(value).collect();
        let insert = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS}) \
             INSERT OR IGNORE INTO {table} ({}) SELECT {} FROM numbers",
            names.join(", "),
            values.join(", ")
        );
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(raw).await.unwrap();
    }
}

/// Returns every value of every row.
async fn everything(raw: &SqlitePool) -> Result<Vec<String>, sqlx::Error> {
    let mut rows = Vec::new();
    for (table, columns) in tables(raw).await? {
        let quoted: Vec<String> = columns.iter().map(|(name, _)| format!("quote({name})")).collect();
        let question = format!("SELECT {} FROM {table}", quoted.join(" || ',' || "));
        rows.extend(texts(raw, question).await?.into_iter().map(|row| format!("{table}: {row}")));
    }
    rows.sort();
    Ok(rows)
}

/// Registry as a killed process leaves it: a part is in its file, and a part in its log.
struct Killed {
    file: PathBuf,
    truth: Vec<String>,
    devices: Vec<DeviceRef>,
}

impl Killed {
    async fn made_in(folder: &Path) -> Self {
        let open = folder.join("open.db");
        let registry = Registry::open(&address(&open)).await.unwrap();
        let home = given::organization(&registry, None, "Home").await;
        let project = given::project(&registry, home.id, "p").await.id;
        let raw = beside(&open).await;
        fill(&raw).await;
        let mut devices = Vec::new();
        for number in 0..30 {
            if number == 15 {
                sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&raw).await.unwrap();
            }
            let device = given::device(&registry, home.id, project, &format!("device {number}")).await;
            devices.push(device.reference());
        }
        let truth = everything(&raw).await.unwrap();
        let file = folder.join("killed.db");
        fs::copy(&open, &file).unwrap();
        for (from, to) in companions(&open).zip(companions(&file)).filter(|(from, _)| from.exists()) {
            fs::copy(from, to).unwrap();
        }
        raw.close().await;
        registry.close().await.unwrap();
        Self { file, truth, devices }
    }

    /// Opens a copy with one flipped bit, and reads everything; returns true if the damage was reported.
    async fn with_a_flip(&self, seeded: &mut Seeded) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("registry.db");
        let copies: Vec<PathBuf> = std::iter::once(file.clone()).chain(companions(&file)).collect();
        for (from, to) in std::iter::once(self.file.clone()).chain(companions(&self.file)).zip(&copies) {
            fs::copy(from, to).unwrap();
        }
        // Choose the file, its log, or rarely a companion file.
        let chosen = &copies[[0, 0, 0, 1, 1, 1, 1, 2, 3][seeded.below(9)]];
        let mut bytes = fs::read(chosen).unwrap();
        let (at, bit) = (seeded.below(bytes.len()), seeded.below(8));
        bytes[at] ^= 1 << bit;
        fs::write(chosen, bytes).unwrap();
        let flipped = format!("bit {bit} of byte {at} of {}", chosen.display());

        let registry = match Registry::open(&address(&file)).await {
            Ok(registry) => registry,
            Err(StoreError::Damaged(why)) => return assert_named(&why, &flipped),
            Err(other) => panic!("{flipped}: {other:?}"),
        };
        let mut named = !sqlite_page_checksums::damage_of(&file.canonicalize().unwrap()).is_empty();
        for device in &self.devices {
            match registry.device_fetch(&given::sees(*device)).await {
                Ok(found) => assert_eq!(found.unwrap().reference(), *device, "{flipped}"),
                Err(StoreError::Damaged(why)) => named = assert_named(&why, &flipped),
                Err(other) => panic!("{flipped}: {other:?}"),
            }
        }
        let raw = beside(&file).await;
        match everything(&raw).await {
            Ok(found) => assert!(found == self.truth, "{flipped}: a wrong answer"),
            Err(error) => named = assert_named(&error.to_string(), &flipped),
        }
        let checked = registry.check().await;
        assert!(!named || checked.as_ref().is_ok_and(|faults| !faults.is_empty()) || checked.is_err(), "{flipped}");
        raw.close().await;
        registry.close().await.unwrap();
        named
    }
}

fn assert_named(why: &str, flipped: &str) -> bool {
    let named = ["checksum", "damaged", "8202", "malformed", "not a database", "begin as a database"];
    assert!(named.iter().any(|word| why.contains(word)), "{flipped}: {why}");
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bit_of_a_registry_is_reported_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let killed = Killed::made_in(folder.path()).await;
    assert!(killed.truth.len() > 29 * ROWS as usize / 2);
    let mut seeded = Seeded(0x1d0b_a12d_5eed);
    let mut named = 0;
    for _ in 0..ROUNDS {
        named += u64::from(killed.with_a_flip(&mut seeded).await);
    }
    assert!(named > ROUNDS / 3 && named < ROUNDS, "{named}");
}

/// Checks that changes are refused from the moment at which a damaged frame is met: changes behind it would be lost at
/// the next start.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_log_of_a_running_registry_ends_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.db");
    let registry = Registry::open(&address(&file)).await.unwrap();
    let raw = beside(&file).await;
    let mut kept = Vec::new();
    for number in 0..20 {
        if number == 19 {
            sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&raw).await.unwrap();
        }
        kept.push(given::organization(&registry, None, &format!("organization {number}")).await);
    }
    let log = companions(&file).next().unwrap();
    // The flipped bit is in the newest page of the last change, the only content of the log.
    let flip = || {
        let mut bytes = fs::read(&log).unwrap();
        let at = bytes.len() - 300;
        bytes[at] ^= 1;
        fs::write(&log, bytes).unwrap();
    };
    flip();
    // SQLite makes this checkpoint by itself after some pages, without reporting its result.
    let checkpoint = sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(&raw).await;
    assert!(checkpoint.is_err(), "{checkpoint:?}");
    for name in ["late", "later"] {
        let made = registry.organization_create(&given::may(None), given::new_organization(name), given::at(0)).await;
        assert!(matches!(made, Err(StoreError::Unavailable(_) | StoreError::Damaged(_))), "{made:?}");
        assert!(registry.healthy().await.is_err());
    }
    let named = registry.check().await.unwrap();
    assert!(named.iter().any(|fault| fault.contains("does not fit to its checksum")), "{named:?}");
    raw.close().await;
    let _ = registry.close().await;
    let refused = Registry::open(&address(&file)).await;
    match refused {
        Err(StoreError::Damaged(why)) => assert!(why.contains("isobar recover") && why.contains("-note"), "{why}"),
        other => panic!("{other:?}"),
    }
    flip();
    let registry = Registry::open(&address(&file)).await.unwrap();
    for organization in kept {
        assert_eq!(given::refetched(&registry, organization.id).await, organization);
    }
    given::organization(&registry, None, "taken again").await;
    registry.close().await.unwrap();
}
