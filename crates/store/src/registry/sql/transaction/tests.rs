use super::*;
use crate::registry::sql::connections::Connections;
use crate::registry::sql::one;
use crate::registry::support::OwnDatabase;

async fn fill(db: &Connections, bytes: usize) -> Result<()> {
    let tx = db.begin().await?;
    run(&tx, Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; bytes])).await?;
    tx.commit().await
}

/// Counts the rows that another connection sees.
async fn rows(db: &Connections) -> i64 {
    rows_in(&db.read).await
}

async fn rows_in(connection: &impl Connection) -> i64 {
    let row = one(connection, Sql::new("SELECT count(*) AS found FROM filling")).await.unwrap().unwrap();
    row.number("found").unwrap()
}

async fn empty(address: &str) -> Connections {
    let db = Connections::open(address).await.unwrap();
    let key = if address.starts_with("sqlite:") { "BLOB" } else { "BYTEA" };
    db.write.run(Sql::new(format!("CREATE TABLE filling (content {key} CHECK (length(content) > 1))"))).await.unwrap();
    db.write.run(Sql::new("CREATE TABLE pulse (beats BIGINT NOT NULL)")).await.unwrap();
    db.write.run(Sql::new("INSERT INTO pulse (beats) VALUES (0)")).await.unwrap();
    db
}

fn file(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("registry.db").display())
}

#[tokio::test(flavor = "multi_thread")]
async fn later_writes_succeed_after_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let db = empty(&file(&folder)).await;
    for round in 0..4 {
        for _ in 0..=round {
            db.write.run(Sql::new("PRAGMA max_page_count = 8")).await.unwrap();
            assert!(fill(&db, 100_000).await.is_err());
            // A refusal within a transaction that the driver takes for nested ends only that one.
            assert!(fill(&db, 1).await.is_err());
        }
        db.write.run(Sql::new("PRAGMA max_page_count = 1000000")).await.unwrap();
        fill(&db, 10).await.unwrap();
        db.write.run(Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 2])).await.unwrap();
        assert_eq!(rows(&db).await, 2 * (round + 1), "an acknowledged row was not kept");
    }
    db.close().await.unwrap();
}

async fn nothing_is_committed_after_a_failure(address: &str) {
    let db = empty(address).await;
    let tx = db.begin().await.unwrap();
    run(&tx, Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 2])).await.unwrap();
    assert!(run(&tx, Sql::new("INSERT INTO nothing (content) VALUES (1)")).await.is_err());
    assert!(run(&tx, Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 3])).await.is_err());
    assert!(one(&tx, Sql::new("SELECT 1 AS answer")).await.is_err());
    assert!(tx.commit().await.is_err(), "a transaction that was rolled back was called committed");
    assert_eq!(rows(&db).await, 0);
    fill(&db, 10).await.unwrap();
    assert_eq!(rows(&db).await, 1);
    db.close().await.unwrap();
}

async fn nothing_is_committed_after_a_dropped_statement(address: &str) {
    let db = empty(address).await;
    for polls in 0..6 {
        let tx = db.begin().await.unwrap();
        run(&tx, Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 2])).await.unwrap();
        let ended = {
            let statement = run(&tx, Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 3]));
            let mut statement = std::pin::pin!(statement);
            let mut ended = false;
            for _ in 0..polls {
                ended |= futures::poll!(statement.as_mut()).is_ready();
                if ended {
                    break;
                }
            }
            ended
        };
        let before = rows(&db).await;
        let committed = tx.commit().await;
        assert_eq!(committed.is_ok(), ended || polls == 0, "{polls}: {committed:?}");
        let more = i64::from(committed.is_ok()) + i64::from(ended);
        assert_eq!(rows(&db).await - before, more, "{polls} polls, ended: {ended}");
    }
    db.close().await.unwrap();
}

/// Checks that health fails as long as changes fail, and no longer.
async fn a_registry_that_keeps_nothing_is_not_healthy(address: &str) {
    let db = empty(address).await;
    db.write.healthy().await.unwrap();
    db.write.run(Sql::new("ALTER TABLE pulse RENAME TO stopped")).await.unwrap();
    db.write.healthy().await.unwrap();
    assert!(db.write.run(Sql::new("INSERT INTO nothing (content) VALUES (1)")).await.is_err());
    for _ in 0..2 {
        assert!(db.write.healthy().await.is_err());
    }
    // A refusal because of a statement's content and an empty transaction are no sign of health.
    db.begin().await.unwrap().commit().await.unwrap();
    assert!(db.write.healthy().await.is_err());
    db.write.run(Sql::new("ALTER TABLE stopped RENAME TO pulse")).await.unwrap();
    db.write.healthy().await.unwrap();
    db.close().await.unwrap();
}

/// Checks that commits are durable even where the server's default allows them not to be.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_until_postgresql_has_written_it() {
    let database = OwnDatabase::new().await;
    // Weaker than `on` is what loses an acknowledged change with its server, whatever a standby has.
    for (default, expected) in
        [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
    {
        let db = Connections::open(&database.address).await.unwrap();
        let set = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = {default}', current_database()); END $$"
        );
        db.write.run(Sql::new(set)).await.unwrap();
        db.close().await.unwrap();
        let db = Connections::open(&database.address).await.unwrap();
        let tx = db.begin().await.unwrap();
        assert_eq!(setting(&tx, "synchronous_commit").await, expected);
        drop(tx);
        db.close().await.unwrap();
    }
    database.remove().await;
}

/// Returns a setting of PostgreSQL within a transaction.
async fn setting(tx: &impl Connection, name: &str) -> String {
    let query = Sql::new("SELECT current_setting(?) AS it").bind(name);
    one(tx, query).await.unwrap().unwrap().text("it").unwrap()
}

/// Checks that a reading transaction sees one moment, and that a writing one sees earlier commits of others.
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_reader_sees_one_snapshot_and_writes_nothing() {
    let database = OwnDatabase::new().await;
    let db = empty(&database.address).await;
    let (reads, writes) = (db.snapshot().await.unwrap(), db.begin().await.unwrap());
    assert_eq!(setting(&reads, "transaction_isolation").await, "repeatable read");
    assert_eq!(setting(&reads, "transaction_read_only").await, "on");
    assert_eq!(setting(&writes, "transaction_isolation").await, "read committed");
    writes.commit().await.unwrap();
    fill(&db, 10).await.unwrap();
    assert_eq!((rows_in(&reads).await, rows(&db).await), (0, 1));
    assert!(run(&reads, Sql::new("DELETE FROM filling")).await.is_err());
    drop(reads);
    assert_eq!(rows(&db).await, 1);
    db.close().await.unwrap();
    database.remove().await;
}

macro_rules! on_both {
    ($($test:ident)*) => {
        mod its_file {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                super::$test(&super::file(&folder)).await;
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
    nothing_is_committed_after_a_failure
    nothing_is_committed_after_a_dropped_statement
    a_registry_that_keeps_nothing_is_not_healthy
}

#[tokio::test(flavor = "multi_thread")]
async fn begin_that_is_given_up_leaves_no_open_transaction() {
    const ROUNDS: usize = 60;
    const WRITES: usize = 12;
    let database = OwnDatabase::new().await;
    let db = empty(&database.address).await;
    for round in 0..ROUNDS {
        {
            let mut begin = std::pin::pin!(db.begin());
            for _ in 0..round * round / 4 {
                if futures::poll!(&mut begin).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..WRITES {
            db.write.run(Sql::new("INSERT INTO filling (content) VALUES (?)").bind(vec![7_u8; 2])).await.unwrap();
        }
        assert_eq!(rows(&db).await, ((round + 1) * WRITES) as i64, "after round {round}");
    }
    db.write.close().await;
    db.read.close().await;
    database.remove().await;
}
