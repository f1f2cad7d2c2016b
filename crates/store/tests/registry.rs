//! Tests the registry's promises on SQLite and on PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests: a broken promise ends them"
)]

#[path = "suite/registry/mod.rs"]
mod suite;
mod support;

use isobar_store::error::StoreError;
use isobar_store::registry::Registry;
use suite::given;
use support::{OwnDatabase, Pooler, Raw};

macro_rules! on_sqlite {
    ($($scene:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let folder = tempfile::tempdir().unwrap();
                let registry = super::Registry::open(&super::sqlite(&folder)).await.unwrap();
                super::suite::$scene(&registry).await;
                registry.close().await.unwrap();
            })*
        }
    };
}

macro_rules! on_postgres {
    ($($scene:ident)*) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $scene() {
                let database = super::OwnDatabase::with_schema(super::migrate).await;
                let registry = super::Registry::open(&database.address).await.unwrap();
                super::suite::$scene(&registry).await;
                registry.close().await.unwrap();
                database.remove().await;
            })*
        }
    };
}

suite::registry_scenes!(on_sqlite);
suite::registry_scenes!(on_postgres);

async fn migrate(address: &str) {
    Registry::open(address).await.unwrap().close().await.unwrap();
}

fn sqlite(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("odd name?#%20.db").display())
}

/// Returns the address for another program: a page that is written without the checksum layer has no checksum.
fn through_the_layer(address: &str) -> String {
    if address.starts_with("sqlite:") {
        format!("{address}?vfs={}", sqlite_page_checksums::VFS)
    } else {
        address.to_owned()
    }
}

async fn is_kept_when_reopened(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let home = given::organization(&registry, None, "Home").await;
    registry.healthy().await.unwrap();
    registry.close().await.unwrap();
    assert!(registry.healthy().await.is_err());
    let registry = Registry::open(address).await.unwrap();
    assert_eq!(given::refetched(&registry, home.id).await, home);
    registry.close().await.unwrap();
}

async fn refuses_a_newer_schema(address: &str) {
    Registry::open(address).await.unwrap().close().await.unwrap();
    let raw = Raw::open(&through_the_layer(address)).await;
    raw.run("INSERT INTO schema_version (version) VALUES (1000)").await.unwrap();
    raw.close().await;
    match Registry::open(address).await {
        Err(StoreError::Damaged(why)) => assert!(why.contains("version 1000"), "{why}"),
        other => panic!("{other:?}"),
    }
}

async fn shows_damage_as_damage(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let home = given::organization(&registry, None, "Home").await;
    let project = given::project(&registry, home.id, "p").await.id;
    let device = given::device(&registry, home.id, project, "d").await.reference();
    let raw = Raw::open(&through_the_layer(address)).await;
    for damage in [
        "UPDATE devices SET status = 77",
        "UPDATE devices SET status = 0, protocols = '{'",
        "UPDATE devices SET protocols = '[]', street_address = '[1]'",
        "UPDATE devices SET street_address = NULL, created_by = 'nobody'",
        "UPDATE devices SET created_by = NULL; UPDATE organizations SET lineage = '/x/'",
    ] {
        raw.run(damage).await.unwrap();
        let fetched = registry.device_fetch(&given::sees(device)).await;
        assert!(matches!(fetched, Err(StoreError::Damaged(_))), "{damage}: {fetched:?}");
    }
    raw.close().await;
    registry.close().await.unwrap();
}

/// Checks that two processes that start at once on a new database agree on which of them creates the schema.
async fn opens_twice_at_once(address: &str) {
    let (first, second) = tokio::join!(Registry::open(address), Registry::open(address));
    let (first, second) = (first.unwrap(), second.unwrap());
    let home = given::organization(&first, None, "Home").await;
    assert_eq!(given::refetched(&second, home.id).await, home);
    first.close().await.unwrap();
    second.close().await.unwrap();
}

/// Checks that a process assigns no number again after its database was set back to an earlier state.
async fn numbers_are_unique_after_the_registry_is_restored(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let home = given::organization(&registry, None, "Home").await;
    let project = given::project(&registry, home.id, "p").await.id;
    let first = given::device(&registry, home.id, project, "first").await.key;
    let raw = Raw::open(&through_the_layer(address)).await;
    let back = match address.starts_with("sqlite:") {
        true => "DELETE FROM devices; UPDATE sqlite_sequence SET seq = 0",
        false => "DELETE FROM devices; ALTER TABLE devices ALTER COLUMN key RESTART WITH 1",
    };
    raw.run(back).await.unwrap();
    raw.close().await;
    let again = registry.device_create(&given::may(home.id), given::new_device(project, "again"), given::at(0)).await;
    match again {
        Err(StoreError::Damaged(why)) => assert!(why.contains("device number 1 a second time"), "{why}"),
        other => panic!("{other:?}"),
    }
    registry.close().await.unwrap();
    let registry = Registry::open(address).await.unwrap();
    registry.device_numbers_raise(first).await.unwrap();
    assert!(given::device(&registry, home.id, project, "fresh").await.key > first);
    registry.close().await.unwrap();
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

on_both! {
    is_kept_when_reopened
    refuses_a_newer_schema
    shows_damage_as_damage
    opens_twice_at_once
    numbers_are_unique_after_the_registry_is_restored
}

#[tokio::test]
async fn database_of_another_encoding_is_refused_with_a_reason() {
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let database = OwnDatabase::encoded(encoding).await;
        for opened in [Registry::open(&database.address).await, Registry::open_as_it_is(&database.address).await] {
            let Err(StoreError::Unavailable(cause)) = opened else { panic!("{encoding}: {opened:?}") };
            let told = cause.to_string();
            assert!(told.contains(&format!("has the encoding {encoding}")) && told.contains("needs UTF8"), "{told}");
        }
        database.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pooler_that_shares_sessions_is_refused_with_a_reason() {
    let database = OwnDatabase::new().await;
    for mode in ["transaction", "statement", "session"] {
        let pooler = Pooler::start(mode);
        match (mode, Registry::open(&pooler.address(&database)).await) {
            ("session", opened) => opened.unwrap().close().await.unwrap(),
            (_, Err(StoreError::Unavailable(cause))) => {
                assert!(cause.to_string().contains("set pool_mode = session"), "{cause}");
            }
            (_, other) => panic!("{mode}: {other:?}"),
        }
    }
    database.remove().await;
}

#[tokio::test]
async fn address_of_an_unknown_kind_is_refused() {
    for address in ["", "mysql://localhost/isobar", "sqlite:", "sqlite::memory:", "/tmp/registry.db"] {
        assert!(matches!(Registry::open(address).await, Err(StoreError::Unavailable(_))), "{address}");
    }
    assert!(Registry::open("sqlite:/no/such/folder/registry.db").await.is_err());
}
