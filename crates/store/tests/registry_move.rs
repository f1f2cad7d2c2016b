//! Tests that a registry that is moved to PostgreSQL has the same rows and answers, and that a move is whole or has left nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[allow(dead_code, unused_imports, unused_macros, reason = "some of its scenes are used")]
#[path = "suite/registry/mod.rs"]
mod suite;
mod support;

#[path = "registry_move/between.rs"]
mod between;
#[path = "registry_move/rows.rs"]
mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use between::{Between, Disturbance};
use isobar_model::ids::DeviceKey;
use isobar_model::page::ListRequest;
use isobar_store::error::StoreError;
use isobar_store::registry::{
    Registry, RegistryChange, RegistryMoveError, RegistryMoveProgress, RegistryMoveStage, RegistryMoveTotals,
    companions, move_registry,
};
use rows::{answers, rows_of_postgres, rows_of_sqlite, schema_of};
use suite::given::{self, may};
use support::{OwnDatabase, Raw};
use tokio::sync::Notify;

/// Rows of nouns that no scene leaves behind, and values at the ends of their ranges.
const REST: &str = "\
    INSERT INTO api_keys (id, user_id, name, digest, created_at, last_used_at, role, expires_at) \
        SELECT '01890a5d-ac96-774b-bcce-b302099a8057', min(id), 'Schlüssel 🔑 '' \\ \" \n\t', zeroblob(32), \
        -9223372036854775807 - 1, 9223372036854775807, NULL, 0 FROM users; \
    INSERT INTO nonces (digest, user_id, purpose, expires_at) SELECT randomblob(32), min(id), 'reset-password', 5 FROM users; \
    INSERT INTO login_failures VALUES ('', 1, 2), ('É', 3, 4), ('é', 5, 6); \
    INSERT INTO project_retention SELECT id, '{\"bounds\":{}}' FROM projects; \
    INSERT INTO usage_counted VALUES (1); \
    INSERT INTO telemetry_stores VALUES (0, 'i', 'p'); \
    INSERT INTO nodes VALUES ('n', 'n', '1', 's', 1, 2, 3); \
    INSERT INTO notification_states SELECT max(number), (SELECT min(id) FROM users), 1, 0 FROM notifications; \
    UPDATE pulse SET beats = 77; \
    UPDATE devices SET latitude = -0.5e-323, longitude = 9e999, description = '' WHERE key = (SELECT min(key) FROM devices); \
    UPDATE devices SET latitude = 0.1, longitude = -9e999, description = NULL WHERE key = (SELECT max(key) FROM devices);";

/// Renames all users, so that the next scene finds their names free.
const FREE_NAMES: &str = "\
    UPDATE users SET username = username || '+', email = '+' || email; UPDATE login_names SET name = name || '+'";

/// Runs scenes on one registry.
macro_rules! scenes {
    ($registry:expr, $file:expr; $($scene:ident)*) => {$(
        Box::pin(suite::$scene($registry)).await;
        change($file, FREE_NAMES).await;
    )*};
}

/// Makes a registry with rows in all tables.
async fn fill(file: &Path) {
    let registry = Registry::open(&address(file)).await.unwrap();
    scenes! { &registry, file;
        device_is_stored_unchanged
        limited_organization_has_its_usage
        timer_is_claimed_by_one
        sessions_beyond_the_bound_end_oldest_first
        revoked_jwts_are_remembered_until_they_expire
        signing_key_is_permanent
        a_new_sign_in_address_is_noticed_once
        job_is_claimed_once_in_its_time
        concurrent_changes_of_an_appearance_are_all_kept
        links_of_a_board_are_bounded
        setting_has_a_history
        image_is_found_by_its_owner
        view_is_visible_to_its_user_alone
        welcome_email_is_created_with_its_user
        every_written_design_is_kept
        a_device_is_found_by_its_labels
        alarm_change_is_noted_with_its_author
        a_notification_names_its_alarm
        notifications_after_a_mark_stay_unread
    }
    // The last numbers are of a device that is gone.
    let home = given::organization(&registry, None, "Home").await;
    let below = given::organization(&registry, Some(home.id), "Below").await;
    let project = given::project(&registry, below.id, "p").await.id;
    given::device(&registry, home.id, project, "stays").await;
    let gone = given::device(&registry, below.id, project, "goes").await;
    registry.device_delete(&may(gone.reference())).await.unwrap();
    registry.close().await.unwrap();
    change(file, REST).await;
}

/// Executes statements on a file, besides Isobar.
async fn change(file: &Path, statements: &str) {
    let raw = Raw::open(&format!("{}?vfs={}", address(file), sqlite_page_checksums::VFS)).await;
    raw.run("PRAGMA foreign_keys = OFF").await.unwrap();
    raw.run(statements).await.unwrap();
    raw.close().await;
}

fn address(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// Folder with a registry.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.db");
    (folder, file)
}

/// Makes a registry with few rows.
async fn small() -> (tempfile::TempDir, PathBuf) {
    let (folder, file) = place();
    let registry = Registry::open(&address(&file)).await.unwrap();
    let home = given::organization(&registry, None, "Home").await;
    let project = given::project(&registry, home.id, "p").await.id;
    for name in ["a", "b", "c"] {
        given::device(&registry, home.id, project, name).await;
    }
    registry.close().await.unwrap();
    (folder, file)
}

async fn moved(file: &Path, database: &OwnDatabase) -> Result<RegistryMoveTotals, RegistryMoveError> {
    move_registry(file.to_str().unwrap(), &database.address, &mut |_| ()).await
}

/// Returns the contents of the file, its log and its note.
fn files(file: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let kept = companions(file).filter(|path| !path.to_string_lossy().ends_with("-shm"));
    let all = std::iter::once(file.to_owned()).chain(kept).filter(|path| path.exists());
    all.map(|path| (path.clone(), std::fs::read(path).unwrap())).filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// Checks that no platform starts on the database, though it is reachable.
async fn is_not_served(database: &OwnDatabase) {
    for opened in [Registry::open(&database.address).await, Registry::open_as_it_is(&database.address).await] {
        let Err(StoreError::Unavailable(why)) = opened else { panic!("{opened:?}") };
        assert!(why.to_string().contains("run isobar move again"), "{why}");
    }
}

mod on_postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn moved_registry_has_the_same_rows_and_answers() {
        let (_folder, file) = place();
        fill(&file).await;
        let before = files(&file);
        let database = OwnDatabase::new().await;
        let mut stages = Vec::new();
        let mut view = |progress: RegistryMoveProgress| {
            if progress.is_last {
                stages.push((progress.stage, progress.done == progress.of || progress.of == 0));
            }
        };
        let totals = move_registry(file.to_str().unwrap(), &database.address, &mut view).await.unwrap();
        use RegistryMoveStage::{Compared, Copied, Indexed, Read};
        assert_eq!(stages, [Read, Copied, Indexed, Compared].map(|stage| (stage, true)));
        assert!(files(&file) == before, "the file is not changed");

        let source = rows_of_sqlite(&file).await;
        let found = rows_of_postgres(&database.address).await;
        for (table, rows) in &source {
            match table.as_str() {
                "nodes" => assert!(rows.len() == 1 && found[table].is_empty(), "no process serves yet"),
                _ => assert!(!rows.is_empty() && found[table] == *rows, "{table}: {rows:?} {:?}", found[table]),
            }
        }
        // Those that SQLite lacks have no rows.
        let others: Vec<_> = found.iter().filter(|(table, _)| !source.contains_key(*table)).collect();
        assert!(others.len() == 4 && others.iter().all(|(_, rows)| rows.is_empty()), "{others:?}");
        let expected = source.iter().filter(|(table, _)| !["nodes", "schema_version"].contains(&table.as_str()));
        let expected: Vec<_> = expected.map(|(table, rows)| (table.clone(), rows.len() as u64)).collect();
        assert_eq!(totals, expected);

        let (old, new) =
            (Registry::open(&address(&file)).await.unwrap(), Registry::open(&database.address).await.unwrap());
        assert_eq!(answers(&new).await, answers(&old).await);
        assert_eq!(new.steps().await.unwrap(), old.steps().await.unwrap());
        old.close().await.unwrap();
        new.close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn moved_registry_goes_on() {
        let (_folder, file) = small().await;
        change(&file, "UPDATE sqlite_sequence SET seq = 90 WHERE name = 'devices'").await;
        let (database, fresh) = (OwnDatabase::new().await, OwnDatabase::new().await);
        moved(&file, &database).await.unwrap();
        Registry::open(&fresh.address).await.unwrap().close().await.unwrap();
        assert_eq!(schema_of(&database.address).await, schema_of(&fresh.address).await);
        let registry = Registry::open(&database.address).await.unwrap();
        assert_eq!(registry.device_number_given().await.unwrap(), DeviceKey(90));
        let home = given::organization(&registry, None, "Another").await;
        let project = given::project(&registry, home.id, "p").await.id;
        let device = given::device(&registry, home.id, project, "d").await;
        assert_eq!(device.key, DeviceKey(91));
        // Processes hear of changes again.
        let mut reader = registry.changes().await.unwrap();
        registry.device_delete(&may(device.reference())).await.unwrap();
        let told = reader.next().await.unwrap().unwrap();
        assert!(matches!(told.as_slice(), [RegistryChange::Device { .. }]), "{told:?}");
        assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
        registry.close().await.unwrap();
        database.remove().await;
        fresh.remove().await;
    }

    /// Tells when a stage has ended.
    fn told_at(stage: RegistryMoveStage, reached: &Notify) -> impl FnMut(RegistryMoveProgress) + Send {
        move |progress| {
            if progress.stage == stage && progress.is_last {
                reached.notify_one();
            }
        }
    }

    /// Runs a move until a stage has ended, and then something else before the move goes on.
    async fn paused(
        file: &Path,
        address: &str,
        stage: RegistryMoveStage,
        meanwhile: impl AsyncFnOnce(),
    ) -> Result<RegistryMoveTotals, RegistryMoveError> {
        let reached = Notify::new();
        let mut view = told_at(stage, &reached);
        let mut moving = Box::pin(move_registry(file.to_str().unwrap(), address, &mut view));
        tokio::select! {
            biased;
            () = reached.notified() => {}
            ended = &mut moving => panic!("{ended:?}"),
        }
        meanwhile().await;
        moving.await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dropped_move_leaves_nothing_and_is_repeated() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        for stage in [RegistryMoveStage::Copied, RegistryMoveStage::Indexed, RegistryMoveStage::Compared] {
            let reached = Notify::new();
            let mut view = told_at(stage, &reached);
            let moving = move_registry(file.to_str().unwrap(), &database.address, &mut view);
            tokio::select! {
                biased;
                () = reached.notified() => {}
                ended = moving => panic!("{ended:?}"),
            }
            is_not_served(&database).await;
        }
        moved(&file, &database).await.unwrap();
        assert_eq!(rows_of_postgres(&database.address).await["devices"], rows_of_sqlite(&file).await["devices"]);
        Registry::open(&database.address).await.unwrap().close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn move_whose_connection_ends_is_repeated() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let raw = Raw::open(&database.address).await;
        let ends = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid() \
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        for stage in [RegistryMoveStage::Copied, RegistryMoveStage::Compared] {
            let ended = paused(&file, &database.address, stage, async || raw.run(ends).await.unwrap()).await;
            assert!(matches!(ended, Err(RegistryMoveError::Store(StoreError::Unavailable(_)))), "{ended:?}");
            is_not_served(&database).await;
        }
        moved(&file, &database).await.unwrap();
        Registry::open(&database.address).await.unwrap().close().await.unwrap();
        raw.close().await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commit_whose_answer_is_lost_is_looked_up() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let between = Between::start(&database.address, Disturbance::CutBeforeCommit).await;
        let lost = move_registry(file.to_str().unwrap(), &between.address, &mut |_| ()).await;
        assert!(matches!(lost, Err(RegistryMoveError::Store(StoreError::Unavailable(_)))), "{lost:?}");
        is_not_served(&database).await;
        let between = Between::start(&database.address, Disturbance::CutAfterCommit).await;
        move_registry(file.to_str().unwrap(), &between.address, &mut |_| ()).await.unwrap();
        Registry::open(&database.address).await.unwrap().close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn difference_is_found_and_taken_back() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let between = Between::start(&database.address, Disturbance::Replace([b"Home", b"Nome"])).await;
        let refused = move_registry(file.to_str().unwrap(), &between.address, &mut |_| ()).await.unwrap_err();
        let RegistryMoveError::Different(differences) = &refused else { panic!("{refused}") };
        assert_eq!(differences, &["organizations: as many rows (1), but not the same"]);
        is_not_served(&database).await;
        moved(&file, &database).await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn platform_that_starts_during_a_move_is_refused() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let starts = async || is_not_served(&database).await;
        paused(&file, &database.address, RegistryMoveStage::Indexed, starts).await.unwrap();
        Registry::open(&database.address).await.unwrap().close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn source_that_is_written_meanwhile_is_refused() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let writes = async || change(&file, "UPDATE pulse SET beats = beats + 1").await;
        let refused = paused(&file, &database.address, RegistryMoveStage::Copied, writes).await;
        assert!(matches!(refused, Err(RegistryMoveError::SourceChanged)), "{refused:?}");
        is_not_served(&database).await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_two_moves_at_once_succeeds() {
        let (_folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let both = tokio::join!(moved(&file, &database), moved(&file, &database));
        let ((Ok(_), Err(refused)) | (Err(refused), Ok(_))) = &both else { panic!("{both:?}") };
        assert!(matches!(refused, RegistryMoveError::Occupied { .. } | RegistryMoveError::OtherWriter), "{refused}");
        Registry::open(&database.address).await.unwrap().close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn database_with_anything_in_it_is_refused() {
        let (_folder, file) = small().await;
        let others = ["CREATE TABLE devices (id TEXT)", "CREATE VIEW one AS SELECT 1", "CREATE SEQUENCE numbers"];
        for (statement, named) in others.into_iter().zip(["devices", "one", "numbers"]) {
            let database = OwnDatabase::new().await;
            let raw = Raw::open(&database.address).await;
            raw.run(statement).await.unwrap();
            let before = schema_of(&database.address).await;
            let refused = moved(&file, &database).await.unwrap_err();
            let expected = format!("the database is not empty: its schema public has {named}.");
            assert!(refused.to_string().starts_with(&expected), "{refused}");
            assert_eq!(schema_of(&database.address).await, before);
            raw.close().await;
            database.remove().await;
        }
        let database = OwnDatabase::new().await;
        let registry = Registry::open(&database.address).await.unwrap();
        let refused = moved(&file, &database).await;
        assert!(matches!(refused, Err(RegistryMoveError::Occupied { .. })), "{refused:?}");
        registry.close().await.unwrap();
        database.remove().await;
        // Telemetry has a schema of its own, and extensions have theirs or none.
        let database = OwnDatabase::new().await;
        let raw = Raw::open(&database.address).await;
        raw.run("CREATE SCHEMA telemetry; CREATE TABLE telemetry.head (device BIGINT)").await.unwrap();
        raw.run("CREATE EXTENSION pg_stat_statements; CREATE TABLE terms (n BIGINT PRIMARY KEY)").await.unwrap();
        raw.run("INSERT INTO terms VALUES (1); ALTER EXTENSION pg_stat_statements ADD TABLE terms").await.unwrap();
        moved(&file, &database).await.unwrap();
        assert_eq!(raw.number("SELECT count(*) FROM terms").await, 1);
        raw.close().await;
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_that_cannot_be_moved_are_named_first() {
        let (_folder, file) = small().await;
        let damage = "UPDATE devices SET name = 'a' || char(0) WHERE key = 2; \
                      UPDATE devices SET description = CAST(x'ff' AS TEXT) WHERE key = 3; \
                      UPDATE projects SET device_count = 'many', search = x'61'; \
                      INSERT INTO jobs VALUES (NULL, 1); \
                      INSERT INTO settings (id, device_key, name, created_at) VALUES ('s', 99, 'n', 1)";
        change(&file, damage).await;
        let (before, database) = (files(&file), OwnDatabase::new().await);
        let vacant = schema_of(&database.address).await;
        let refused = moved(&file, &database).await.unwrap_err();
        let RegistryMoveError::Unmovable(faults) = &refused else { panic!("{refused}") };
        let expected = [
            "1 rows of settings refer to rows of devices that are not there",
            "devices (key \"2\"): name: the text has U+0000",
            "devices (key \"3\"): description: ",
            "jobs (row 1): name: there is no value",
            "projects (id ",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}");
        }
        assert!(
            faults[4].ends_with("device_count: it is TEXT, not INTEGER")
                || faults[4].ends_with("search: it is BLOB, not TEXT"),
            "{faults:?}"
        );
        assert_eq!(schema_of(&database.address).await, vacant);
        assert!(files(&file) == before);
        // Many are counted.
        let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) \
                    INSERT INTO jobs SELECT NULL, i FROM n";
        change(&file, many).await;
        let refused = moved(&file, &database).await.unwrap_err();
        assert!(refused.to_string().ends_with("\n  and 25 more"), "{refused}");
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn other_sources_are_refused() {
        let (folder, file) = small().await;
        let database = OwnDatabase::new().await;
        let vacant = schema_of(&database.address).await;
        let refusal = async |file: &Path| moved(file, &database).await.unwrap_err();
        assert!(matches!(
            refusal(&folder.path().join("none")).await,
            RegistryMoveError::Store(StoreError::Unavailable(_))
        ));
        let text = folder.path().join("text");
        std::fs::write(&text, "no database".repeat(1_000)).unwrap();
        assert!(matches!(refusal(&text).await, RegistryMoveError::Store(StoreError::Damaged(_))));
        let other = folder.path().join("other.db");
        let raw = Raw::open(&format!("{}?mode=rwc", address(&other))).await;
        raw.run("CREATE TABLE devices (id TEXT)").await.unwrap();
        raw.close().await;
        let refused = refusal(&other).await;
        assert!(refused.to_string().ends_with("is no registry"), "{refused}");

        change(&file, "DELETE FROM schema_version WHERE version > 20").await;
        let older = refusal(&file).await;
        assert!(matches!(older, RegistryMoveError::OlderSource { found: 20, .. }), "{older}");
        change(&file, "INSERT INTO schema_version VALUES (1000)").await;
        assert!(refusal(&file).await.to_string().contains("has version 1000"));
        let back = "DELETE FROM schema_version; INSERT INTO schema_version VALUES (21); DROP INDEX alarms_assigned; \
                    DROP INDEX organizations_by_creation; DROP INDEX projects_by_creation; DROP INDEX alarms_by_creation; \
                    DROP TABLE telemetry_stores; CREATE TABLE mine (a TEXT)";
        change(&file, back).await;
        let known = Registry::open(&address(&file)).await.unwrap();
        let steps = known.steps().await.unwrap();
        known.close().await.unwrap();
        assert_eq!(steps.0, steps.1);
        let refused = refusal(&file).await;
        assert!(refused.to_string().contains("the table mine of the file"), "{refused}");
        change(&file, "DROP TABLE mine").await;
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.iter_mut().skip(4_096 + 100).step_by(4_096).for_each(|byte| *byte ^= 1);
        std::fs::write(&file, bytes).unwrap();
        let damaged = refusal(&file).await;
        assert!(matches!(damaged, RegistryMoveError::Store(StoreError::Damaged(_))), "{damaged:?}");
        assert_eq!(schema_of(&database.address).await, vacant);
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn changes_in_the_log_alone_are_moved_and_stay_there() {
        let (folder, open) = place();
        let registry = Registry::open(&address(&open)).await.unwrap();
        given::organization(&registry, None, "In the log").await;
        // As a killed process leaves it.
        let file = folder.path().join("killed.db");
        std::fs::copy(&open, &file).unwrap();
        for (from, to) in companions(&open).zip(companions(&file)).filter(|(from, _)| from.exists()) {
            std::fs::copy(from, to).unwrap();
        }
        registry.close().await.unwrap();
        let (before, database) = (files(&file), OwnDatabase::new().await);
        assert!(before.keys().any(|path| path.to_string_lossy().ends_with("-wal")));
        moved(&file, &database).await.unwrap();
        assert!(files(&file) == before);
        let registry = Registry::open(&database.address).await.unwrap();
        let request = ListRequest::default();
        let all = registry.organization_list(&given::lists_all(), true, &request).await.unwrap();
        assert_eq!(all.items[0].name, "In the log");
        registry.close().await.unwrap();
        database.remove().await;
    }
}
