use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::registry::Registry;
use crate::registry::support::{self, Raw};

fn file(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("registry.db").display())
}

/// Returns the columns of every table, with the kind of each. Rows of `changes` and
/// `rate_shares` are read within seconds or never, marks of streams for a week.
async fn columns(registry: &Registry) -> BTreeMap<String, Vec<(String, String)>> {
    let query = match registry.db.dialect {
        Dialect::Sqlite => {
            "SELECT t.name AS of_table, c.name AS named, CASE WHEN c.type = 'INTEGER' AND c.pk = 1 AND \
             (SELECT count(*) FROM pragma_table_info(t.name) k WHERE k.pk > 0) = 1 THEN 'key' ELSE '' END AS kind \
             FROM sqlite_master t, pragma_table_info(t.name) c \
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
        }
        Dialect::Postgres => {
            "SELECT CAST(table_name AS TEXT) AS of_table, CAST(column_name AS TEXT) AS named, \
             CASE is_identity WHEN 'YES' THEN 'key' ELSE CAST(data_type AS TEXT) END AS kind \
             FROM information_schema.columns WHERE table_schema = current_schema() \
             AND table_name NOT IN ('changes', 'rate_shares', 'stream_marks', 'stream_places')"
        }
    };
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in all(&registry.db.read, Sql::new(query)).await.unwrap() {
        let column = (row.text("named").unwrap(), row.text("kind").unwrap());
        tables.entry(row.text("of_table").unwrap()).or_default().push(column);
    }
    tables
}

/// Checks that no table or column is forgotten, even one added later.
#[tokio::test(flavor = "multi_thread")]
async fn every_column_of_every_table_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open(&file(&folder)).await.unwrap();
    let there: BTreeSet<_> = columns(&registry)
        .await
        .into_iter()
        .flat_map(|(table, columns)| columns.into_iter().map(move |(column, _)| (table.clone(), column)))
        .collect();
    let looked_at: BTreeSet<_> = TABLES
        .iter()
        .flat_map(|table| table.columns.iter().map(|(column, _)| (table.name.to_owned(), (*column).to_owned())))
        .collect();
    assert_eq!(looked_at, there);
    registry.close().await.unwrap();
}

/// Opens a connection that may write invalid rows.
async fn damager(address: &str, freely: &str) -> Raw {
    // Its pages get valid checksums: this test is not about damaged pages.
    let layer =
        if address.starts_with("sqlite:") { format!("?vfs={}", sqlite_page_checksums::VFS) } else { String::new() };
    let raw = Raw::open(&format!("{address}{layer}")).await;
    raw.run(freely).await.unwrap();
    raw
}

/// Adds to each table a row in which every value is damaged.
async fn damage(registry: &Registry, raw: &Raw, value: fn(&str) -> &'static str) {
    for (table, columns) in columns(registry).await {
        let columns: Vec<_> = columns.iter().filter(|(_, kind)| kind != "key").collect();
        let names: Vec<_> = columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let values: Vec<_> = columns.iter().map(|(_, kind)| value(kind)).collect();
        let insert = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
        raw.run(&insert).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_each_column_is_named_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let address = file(&folder);
    let registry = Registry::open(&address).await.unwrap();
    assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
    let raw = damager(&address, "PRAGMA foreign_keys = OFF").await;
    damage(&registry, &raw, |_| "x'ff'").await;
    let faults = registry.check().await.unwrap();
    for (table, columns) in columns(&registry).await {
        let faults = faults.iter().find(|fault| fault.starts_with(&format!("a row of {table} (")));
        let faults = faults.unwrap_or_else(|| panic!("nothing is said of {table}"));
        for (column, kind) in columns {
            let may_be_so = kind == "key" || (&*table, &*column) == ("images", "png");
            assert_eq!(faults.contains(&format!("column {column}:")), !may_be_so, "{column}: {faults}");
        }
    }
    assert!(faults.iter().any(|fault| fault.contains("refer to rows")), "{faults:?}");
    raw.close().await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_each_table_is_named_in_postgresql() {
    let database = support::OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
    let raw = damager(&database.address, "SET session_replication_role = replica").await;
    damage(&registry, &raw, |kind| match kind {
        "text" => "'x'",
        "bytea" => "'\\xff'",
        _ => "-1",
    })
    .await;
    let faults = registry.check().await.unwrap();
    for table in columns(&registry).await.into_keys() {
        let is_named = faults.iter().any(|fault| fault.starts_with(&format!("a row of {table} (")));
        // Any text and any number is valid in these.
        let means_anything = ["jobs", "nodes", "pulse", "revoked_jwts"].contains(&&*table);
        assert_eq!(is_named, !means_anything, "{table}: {faults:#?}");
    }
    raw.close().await;
    registry.close().await.unwrap();
    database.remove().await;
}

/// Checks that every one of many rows is read, and only a few are named.
async fn every_row_is_looked_at(address: &str) {
    let registry = Registry::open(address).await.unwrap();
    let insert = "INSERT INTO revoked_jwts (jti, expires_at) WITH RECURSIVE counted (n) AS \
         (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 3001) SELECT 'jwt' || n, n FROM counted";
    registry.db.write.run(Sql::new(insert)).await.unwrap();
    let organizations = "INSERT INTO organizations (id, name, lineage, level, search, created_at, updated_at) \
                         SELECT jti, '', '/' || jti || '/', expires_at, '', 0, 0 FROM revoked_jwts";
    registry.db.write.run(Sql::new(organizations)).await.unwrap();
    let faults = registry.check().await.unwrap();
    let rows = faults.iter().filter(|fault| fault.starts_with("a row of organizations (id jwt")).count();
    assert_eq!(rows as u64, FAULTS_OF_TABLE_MAX);
    assert!(faults.contains(&format!("and {} more rows of organizations cannot be read", 3001 - FAULTS_OF_TABLE_MAX)));
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_looked_at_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    every_row_is_looked_at(&file(&folder)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_looked_at_in_postgresql() {
    let database = support::OwnDatabase::new().await;
    every_row_is_looked_at(&database.address).await;
    database.remove().await;
}
