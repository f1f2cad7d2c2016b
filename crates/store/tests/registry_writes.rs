//! Tests that acknowledged changes of the registry survive whatever failed, was lost or was dropped before.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests: a broken promise ends them"
)]

#[path = "suite/registry/given.rs"]
mod given;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use given::{may, sees};
use isobar_model::ids::OrganizationId;
use isobar_model::page::ListRequest;
use isobar_power::{becomes, within_patience};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;
use support::{OwnDatabase, Raw};

/// Bound of the turns that the test gives other tasks before a call is dropped, or connections are cut; the number
/// varies.
const TURNS_MAX: usize = 240;
/// Step by which the number of turns grows.
const TURNS_STEP: usize = 12;

/// Gives other tasks this many turns.
async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Opens a connection besides the registry's own: it sees committed changes only.
async fn beside(address: &str) -> Raw {
    // Its pages have checksums too.
    let address = match address.starts_with("sqlite:") {
        true => format!("{address}?vfs={}", sqlite_page_checksums::VFS),
        false => address.to_owned(),
    };
    Raw::open(&address).await
}

async fn tell(raw: &Raw, sqlite: &str, postgres: &str) {
    let text = if matches!(raw, Raw::Postgres(_)) { postgres } else { sqlite };
    raw.run(text).await.unwrap();
}

/// Makes the database fail inserts of organizations named `full` like a full disk: SQLite then ends the whole
/// transaction by itself. One named `late` fails at the commit.
async fn fails_some_writes(raw: &Raw) {
    tell(
        raw,
        "CREATE TRIGGER full BEFORE INSERT ON organizations WHEN NEW.name = 'full' \
         BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END; \
         CREATE TABLE nobody (id INTEGER PRIMARY KEY); \
         CREATE TABLE late (id INTEGER REFERENCES nobody (id) DEFERRABLE INITIALLY DEFERRED); \
         CREATE TRIGGER late AFTER INSERT ON organizations WHEN NEW.name = 'late' \
         BEGIN INSERT INTO late (id) VALUES (1); END",
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON organizations FOR EACH ROW WHEN (NEW.name = 'full') \
         EXECUTE FUNCTION full_disk(); \
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON organizations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         WHEN (NEW.name = 'late') EXECUTE FUNCTION full_disk()",
    )
    .await;
}

async fn create(registry: &Registry, name: &str) -> Result<OrganizationId, StoreError> {
    registry.organization_create(&may(None), given::new_organization(name), given::at(0)).await.map(|made| made.id)
}

async fn refused(registry: &Registry) {
    let gone = OrganizationId(given::uuid());
    let refused = registry.organization_create(&may(Some(gone)), given::new_organization("lost"), given::at(0)).await;
    assert!(matches!(refused, Err(StoreError::Gone(_))), "{refused:?}");
}

/// Checks that failures cost no later acknowledged change, in any order: a commit that fails, a statement with which
/// the database ends the whole transaction, a change that is refused.
async fn write_succeeds_after_a_failed_one(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let reader = Registry::open(address).await.unwrap();
    let raw = beside(address).await;
    fails_some_writes(&raw).await;
    for round in 0..9 {
        for step in 0..3 {
            match (round + step * (round / 3 + 1)) % 3 {
                0 => assert!(create(&registry, "full").await.is_err()),
                1 => assert!(create(&registry, "late").await.is_err()),
                _ => refused(&registry).await,
            }
        }
        let id = create(&registry, "kept").await.unwrap();
        let seen = reader.organization_fetch(&sees(id)).await.unwrap();
        assert!(seen.is_some(), "round {round}: an acknowledged organization was not kept");
        registry.jwt_revoke(&format!("jwt {round}"), given::at(1)).await.unwrap();
        let seen = reader.jwts_revoked(given::at(0)).await.unwrap();
        assert_eq!(seen.len(), round + 1, "an acknowledged change was not kept");
    }
    raw.close().await;
    reader.close().await.unwrap();
    registry.close().await.unwrap();
}

/// Checks that calls dropped at any moment leave nothing half-done, and cost no later acknowledged change.
async fn call_succeeds_after_a_dropped_one(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let reader = Registry::open(address).await.unwrap();
    for round in 0..60 {
        let calls = (0..3).map(async |_| {
            tokio::select! {
                created = create(&registry, "dropped?") => Some(created),
                () = turns(round * TURNS_STEP % TURNS_MAX) => None,
            }
        });
        for created in futures::future::join_all(calls).await.into_iter().flatten() {
            assert!(reader.organization_fetch(&sees(created.unwrap())).await.unwrap().is_some(), "round {round}");
        }
        let id = create(&registry, "kept").await.unwrap();
        assert!(reader.organization_fetch(&sees(id)).await.unwrap().is_some(), "round {round}");
    }
    reader.close().await.unwrap();
    registry.close().await.unwrap();
}

/// Checks that connections cut at any moment cost changes in progress only, and no acknowledged one.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_changes_survive_a_lost_connection() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    let raw = beside(&database.address).await;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers = (0..8).map(|_| {
        let (registry, acknowledged) = (registry.clone(), acknowledged.clone());
        tokio::spawn(async move {
            let mut kept = Vec::new();
            for _ in 0..40 {
                if let Ok(id) = create(&registry, "kept?").await {
                    kept.push(id);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            }
            kept
        })
    });
    let writers: Vec<_> = writers.collect();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let are_done = || writers.iter().all(tokio::task::JoinHandle::is_finished);
    for round in 0.. {
        if are_done() {
            break;
        }
        let before = acknowledged.load(Ordering::Relaxed);
        raw.run(cut).await.unwrap();
        // Wait for an acknowledgement between two cuts, since a connection and a change may take long here.
        let goes_on = async || acknowledged.load(Ordering::Relaxed) > before || are_done();
        becomes("a change between two cuts", goes_on).await;
        turns(round * TURNS_STEP % TURNS_MAX).await;
    }
    for writer in writers {
        for id in writer.await.unwrap() {
            assert!(registry.organization_fetch(&sees(id)).await.unwrap().is_some());
        }
    }
    assert!(acknowledged.load(Ordering::Relaxed) > 0);
    create(&registry, "kept").await.unwrap();
    raw.close().await;
    registry.close().await.unwrap();
    database.remove().await;
}

/// Checks that a list does not fail because of connections lost since the last one: it takes another.
#[tokio::test(flavor = "multi_thread")]
async fn list_succeeds_after_lost_connections() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    create(&registry, "listed").await.unwrap();
    let raw = Raw::open(&database.address).await;
    let of_others = "FROM pg_stat_activity \
                     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let cut = format!(
        "CREATE TABLE IF NOT EXISTS ended (pid INT, begun TIMESTAMPTZ); TRUNCATE ended; \
         INSERT INTO ended SELECT pid, backend_start {of_others}; SELECT pg_terminate_backend(pid) FROM ended"
    );
    // Counting connections within the server would let each delay it by a tenth of a second. Others come meanwhile.
    let left = format!("SELECT count(*) {of_others} AND (pid, backend_start) IN (SELECT pid, begun FROM ended)");
    let (permit, request) = (given::lists_all(), ListRequest::default());
    for round in 0..30 {
        let lists =
            futures::future::join_all((0..8).map(|_| registry.organization_list(&permit, true, &request))).await;
        for list in lists {
            let list = list.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            assert_eq!(list.items.len(), 1);
        }
        raw.run(&cut).await.unwrap();
        becomes("all connections have ended", async || raw.number(&left).await == 0).await;
    }
    raw.close().await;
    registry.close().await.unwrap();
    database.remove().await;
}

/// Checks that unrelated changes do not wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn notices_and_tree_changes_have_separate_locks() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    let raw = Raw::open(&database.address).await;
    // This lock is the one that assigns numbers to notices for everybody.
    raw.run(&format!("SELECT pg_advisory_lock({})", 0x0069_736f_6261_7202_i64)).await.unwrap();
    within_patience("a change of the tree beside a notice", create(&registry, "kept")).await.unwrap();
    raw.close().await;
    registry.close().await.unwrap();
    database.remove().await;
}

macro_rules! on_both {
    ($($test:ident)*) => {
        mod its_file {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("registry.db");
                super::$test(&format!("sqlite:{}", path.display())).await;
            })*
        }
        mod its_database {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let database = super::OwnDatabase::new().await;
                super::$test(&database.address).await;
                database.remove().await;
            })*
        }
    };
}

on_both! { write_succeeds_after_a_failed_one call_succeeds_after_a_dropped_one }
