//! Reads all of a registry, whichever database has it: its rows in a form of their own, and what users see.

use std::collections::BTreeMap;
use std::path::Path;

use isobar_model::page::{ListRequest, PageRequest};
use isobar_store::registry::Registry;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Row as _, TypeInfo as _, ValueRef as _};

use crate::suite::given::{self, may, sees};

/// Rows of each table, sorted.
pub type Rows = BTreeMap<String, Vec<String>>;

/// Names a value of a row in words.
macro_rules! value {
    ($row:expr, $index:expr, $number:literal, $float:literal, $text:literal, $bytes:literal) => {{
        let raw = $row.try_get_raw($index).unwrap();
        let kind = raw.type_info().name().to_owned();
        match kind.as_str() {
            _ if raw.is_null() => "null".to_owned(),
            $number => format!("number {}", $row.get::<i64, _>($index)),
            $float => format!("float {:016x}", $row.get::<f64, _>($index).to_bits()),
            $text => format!("text {:?}", $row.get::<String, _>($index)),
            $bytes => format!("bytes {:02x?}", $row.get::<Vec<u8>, _>($index)),
            other => panic!("a value of type {other}"),
        }
    }};
}

fn row_of_sqlite(row: &SqliteRow) -> String {
    let values: Vec<_> = (0..row.len())
        .map(|index| {
            format!("{} = {}", row.column(index).name(), value!(row, index, "INTEGER", "REAL", "TEXT", "BLOB"))
        })
        .collect();
    values.join(", ")
}

fn row_of_postgres(row: &PgRow) -> String {
    let values: Vec<_> = (0..row.len())
        .map(|index| {
            format!("{} = {}", row.column(index).name(), value!(row, index, "INT8", "FLOAT8", "TEXT", "BYTEA"))
        })
        .collect();
    values.join(", ")
}

/// Reads a file of SQLite.
pub async fn rows_of_sqlite(file: &Path) -> Rows {
    let options =
        SqliteConnectOptions::new().filename(file).vfs(sqlite_page_checksums::VFS).disable_statement_logging();
    let mut connection = options.connect().await.unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let mut all = Rows::new();
    for name in sqlx::query_scalar::<_, String>(names).fetch_all(&mut connection).await.unwrap() {
        let rows =
            sqlx::query(AssertSqlSafe(format!("SELECT * FROM {name}"))).fetch_all(&mut connection).await.unwrap();
        let mut rows: Vec<_> = rows.iter().map(row_of_sqlite).collect();
        rows.sort();
        all.insert(name, rows);
    }
    connection.close().await.unwrap();
    all
}

/// Reads the tables of a database.
pub async fn rows_of_postgres(address: &str) -> Rows {
    let mut connection = PgConnection::connect(address).await.unwrap();
    let names = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    let mut all = Rows::new();
    for name in sqlx::query_scalar::<_, String>(names).fetch_all(&mut connection).await.unwrap() {
        let rows =
            sqlx::query(AssertSqlSafe(format!("SELECT * FROM {name}"))).fetch_all(&mut connection).await.unwrap();
        let mut rows: Vec<_> = rows.iter().map(row_of_postgres).collect();
        rows.sort();
        all.insert(name, rows);
    }
    connection.close().await.unwrap();
    all
}

/// Describes all that a schema has: columns, indexes, constraints, triggers and functions.
pub async fn schema_of(address: &str) -> Vec<String> {
    let parts = "\
        SELECT concat_ws(' ', 'column', table_name, ordinal_position, column_name, data_type, collation_name, is_nullable, \
            column_default, is_identity, identity_generation) FROM information_schema.columns WHERE table_schema = 'public' \
        UNION ALL SELECT concat_ws(' ', indexdef, x.indisvalid, x.indisunique) FROM pg_indexes i \
            JOIN pg_index x ON x.indexrelid = i.indexname::regclass WHERE schemaname = 'public' \
        UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated) \
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace \
        UNION ALL SELECT concat_ws(' ', pg_get_triggerdef(oid), tgenabled) FROM pg_trigger WHERE NOT tgisinternal \
        UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace \
        UNION ALL SELECT concat_ws(' ', relname, relkind, relpersistence) FROM pg_class \
            WHERE relnamespace = 'public'::regnamespace ORDER BY 1";
    let mut connection = PgConnection::connect(address).await.unwrap();
    let found = sqlx::query_scalar::<_, String>(parts).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    found
}

/// Asks a registry for what users see.
pub async fn answers(r: &Registry) -> Vec<String> {
    let (all, request) =
        (given::lists_all(), ListRequest { page: PageRequest::new(1, 1_000), ..ListRequest::default() });
    let organizations = r.organization_list(&all, true, &request).await.unwrap();
    let users = r.user_list(&all, &request).await.unwrap();
    let projects = r.project_list(&all, None, &request).await.unwrap();
    let mut answers = vec![format!("{organizations:?}"), format!("{users:?}"), format!("{projects:?}")];
    for organization in &organizations.items {
        answers.push(format!("{:?}", r.board_list(&sees(organization.id)).await.unwrap()));
    }
    for user in &users.items {
        answers.push(format!("{:?}", r.api_key_list(&may(user.id), request.page).await.unwrap()));
        answers.push(format!("{:?}", r.view_list(&sees(user.id)).await.unwrap()));
        answers.push(format!("{:?}", r.notification_list(&may(user.id), request.page, false).await.unwrap()));
    }
    for project in &projects.items {
        answers.push(format!("{:?}", r.specification_versions(&sees(project.id)).await.unwrap()));
        answers.push(format!("{:?}", r.retention_fetch(&sees(project.id)).await));
    }
    let numbers = r.device_numbers().await.unwrap();
    answers.push(format!("{numbers:?}"));
    answers
}
