//! Nodes that are started wrongly are refused with a reason, and leave nothing behind; what they lack is logged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;
#[path = "../../store/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use isobar_power::becomes_blocking;
use program_support::furnished::furnish;
use program_support::site::{Api, ENVIRONMENT};
use program_support::{Serving, failure, isobar, serve, text};
use support::{OwnDatabase, Pooler, Raw};

/// Makes a command use these stores; the folder is the data folder's if none is named.
fn with_stores(mut command: Command, registry: &str, telemetry: Option<&str>) -> Command {
    command.env("ISOBAR_STORES__REGISTRY", registry).env("ISOBAR_STORES__NEEDS_SYNCS", "false");
    telemetry.map(|telemetry| command.env("ISOBAR_STORES__TELEMETRY", telemetry));
    command
}

fn started(data: &Path, registry: &str, telemetry: Option<&str>) -> Output {
    with_stores(serve(data, &ENVIRONMENT), registry, telemetry).output().unwrap()
}

async fn count(address: &str, query: &str) -> i64 {
    let raw = Raw::open(address).await;
    let found = raw.number(query).await;
    raw.close().await;
    found
}

/// Makes the database that of a role with these defaults; returns its address as that role.
async fn as_role(database: &OwnDatabase, role: &str, attributes: &str, defaults: &[&str]) -> String {
    let raw = Raw::open(&database.address).await;
    raw.run(&format!("CREATE ROLE {role} LOGIN {attributes}")).await.unwrap();
    for default in defaults {
        raw.run(&format!("ALTER ROLE {role} SET {default}")).await.unwrap();
    }
    raw.run(&format!("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO {role}', current_database()); END $$"))
        .await
        .unwrap();
    raw.close().await;
    let (scheme, rest) = database.address.split_once("://").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    format!("{scheme}://{role}@{place}")
}

async fn remove_with_role(database: OwnDatabase, role: &str) {
    let other = OwnDatabase::new().await;
    database.remove().await;
    let raw = Raw::open(&other.address).await;
    raw.run(&format!("DROP ROLE {role}")).await.unwrap();
    raw.close().await;
    other.remove().await;
}

mod on_postgres {
    use super::*;

    const TABLES: &str = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                          WHERE c.relkind = 'r' AND n.nspname IN ('public', 'telemetry')";

    #[tokio::test]
    async fn refused_first_start_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (data, database) = (folder.path().join("new/data"), OwnDatabase::new().await);
        let pooler = Pooler::start("transaction");
        let refused = failure(&started(&data, &database.address, Some(&pooler.address(&database))));
        assert!(refused.contains("pool_mode = session") && refused.contains("as stores.telemetry"), "{refused}");
        assert!(!folder.path().join("new").exists());
        drop(pooler);
        assert_eq!(count(&database.address, TABLES).await, 0);
        database.remove().await;
    }

    #[tokio::test]
    async fn node_with_other_telemetry_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let (database, other) = (OwnDatabase::new().await, OwnDatabase::new().await);
        let (registry, telemetry) = (database.address.as_str(), Some(database.address.as_str()));
        let serving = Serving::of(with_stores(serve(&first, &ENVIRONMENT), registry, telemetry));
        for wrong in [Some(other.address.as_str()), None] {
            let refused = failure(&started(&second, registry, wrong));
            assert!(
                refused.contains("the registry has telemetry store 0") && refused.contains("no telemetry store"),
                "{refused}"
            );
            assert!(!second.exists());
        }
        assert_eq!(count(&other.address, TABLES).await, 0);
        // The right ones are checked from a machine without a data folder.
        let mut check = isobar(&["check", "--data"]);
        check.arg(&second);
        assert_eq!(serving.stop(), Some(0));
        let checked = with_stores(check, registry, telemetry).output().unwrap();
        assert!(text(&checked.stdout).contains("Everything is sound."), "{checked:?}");
        assert!(!second.exists());
        database.remove().await;
        other.remove().await;
    }

    #[tokio::test]
    async fn defaults_of_a_role_change_nothing() {
        let (folder, database) = (tempfile::tempdir().unwrap(), OwnDatabase::new().await);
        let defaults = [
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "default_transaction_deferrable = on",
            "standard_conforming_strings = off",
            "statement_timeout = '300ms'",
            "lock_timeout = '1ms'",
            "idle_in_transaction_session_timeout = '1ms'",
            "idle_session_timeout = '1s'",
            "bytea_output = 'escape'",
            "intervalstyle = 'iso_8601'",
            "datestyle = 'German'",
            "timezone = 'Asia/Kathmandu'",
            "transform_null_equals = on",
            "array_nulls = off",
            "gin_fuzzy_search_limit = 1",
            "exit_on_error = on",
            "session_replication_role = 'origin'",
            "extra_float_digits = -15",
        ];
        let role = format!("isobar_odd_{}", std::process::id());
        let address = as_role(&database, &role, "", &defaults).await;
        let data = folder.path().join("data");
        let serving = Serving::of(with_stores(serve(&data, &ENVIRONMENT), &address, Some(&address)));
        furnish(&Api::of(&serving).await, 2).await;
        assert_eq!(serving.stop(), Some(0));
        let mut check = isobar(&["check", "--data"]);
        check.arg(&data);
        let checked = with_stores(check, &address, Some(&address)).output().unwrap();
        assert!(text(&checked.stdout).contains("Everything is sound."), "{checked:?}");
        remove_with_role(database, &role).await;
    }

    #[tokio::test]
    async fn second_node_logs_what_nodes_lack() {
        let (folder, database) = (tempfile::tempdir().unwrap(), OwnDatabase::new().await);
        let role = format!("isobar_few_{}", std::process::id());
        let address = as_role(&database, &role, "CONNECTION LIMIT 40", &[]).await;
        let log = folder.path().join("log");
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        let start = |data: &str| {
            let mut command = with_stores(serve(&folder.path().join(data), &ENVIRONMENT), &address, Some(&address));
            command.stderr(std::fs::File::create(&log).unwrap());
            Serving::of(command)
        };
        let first = start("first");
        assert!(!logged().contains("public_url") && !logged().contains("fewer connections"), "{}", logged());
        // The role has no connection left for it.
        let all = database.address.as_str();
        let list = || with_stores(isobar(&["nodes"]), all, Some(all)).output().unwrap();
        becomes_blocking("the first node is listed", || text(&list().stdout).contains("1 of 1 nodes serve"));
        let second = start("second");
        let warned = logged();
        assert!(
            warned.contains("public_url is not set") && warned.contains("fewer connections than the nodes"),
            "{warned}"
        );
        becomes_blocking("the second node is listed", || text(&list().stdout).contains("2 of 2 nodes serve"));
        let listed = list();
        let told = text(&listed.stdout);
        assert!(listed.status.code() == Some(1) && told.contains("different settings (public_url)"), "{told}");
        assert!(told.contains(&first.address) && told.contains(&second.address), "{told}");
        assert_eq!((first.stop(), second.stop()), (Some(0), Some(0)));
        remove_with_role(database, &role).await;
    }
}
