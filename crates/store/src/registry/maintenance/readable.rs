//! Checks that every row can be read: each column of each table, as the server reads it.

use isobar_model::alarm::{AlarmSeverity, AlarmState};
use isobar_model::device::StreetAddress;
use isobar_model::ids::{
    AlarmId, ApiKeyId, BoardLinkId, DashboardId, DeviceId, EventId, NotificationId, OrganizationId, ProjectId,
    SessionId, SettingId, UserId, ViewId,
};
use isobar_model::json::{Json, parse};
use isobar_model::limits::Fill;
use isobar_model::status::Status;

use crate::error::{Result, StoreError};
use crate::registry::nouns::{alarms, devices, nonces, notices, specification_versions, users};
use crate::registry::sql::{Connection, Dialect, Row, Sql, all, one, thirty_two};

/// Rows that are checked in one batch.
const CHECKED_ROWS_AT_ONCE: i64 = 200;
/// Rows that are checked in one batch if one may take megabytes.
const CHECKED_LARGE_ROWS_AT_ONCE: i64 = 8;
/// Rows that a block of PostgreSQL is assumed to have.
const ROWS_OF_BLOCK: u64 = 20;
/// Faulty rows that are named of one table, at most; the number of the others is reported too.
const FAULTS_OF_TABLE_MAX: u64 = 20;

/// Function that reads a column as the server does.
type Read = fn(&Row, &str) -> Result<()>;

/// Table with every column that the server reads. The first ones name a row to the operator.
struct Table {
    name: &'static str,
    named_by: usize,
    at_once: i64,
    columns: &'static [(&'static str, Read)],
}

const fn table(name: &'static str, named_by: usize, columns: &'static [(&'static str, Read)]) -> Table {
    Table { name, named_by, at_once: CHECKED_ROWS_AT_ONCE, columns }
}

const fn table_of_large_rows(name: &'static str, named_by: usize, columns: &'static [(&'static str, Read)]) -> Table {
    Table { name, named_by, at_once: CHECKED_LARGE_ROWS_AT_ONCE, columns }
}

const TEXT: Read = |row, column| row.text(column).map(|_| ());
const TEXT_IF: Read = |row, column| row.text_if(column).map(|_| ());
const NUMBER: Read = |row, column| row.number(column).map(|_| ());
const COUNT: Read = |row, column| row.count(column).map(|_| ());
const TRUTH: Read = |row, column| match row.number(column)? {
    0 | 1 => Ok(()),
    other => Err(StoreError::Damaged(format!("column {column}: {other} is neither true nor false"))),
};
const FLOAT: Read = |row, column| row.float(column).map(|_| ());
const FLOAT_IF: Read = |row, column| row.float_if(column).map(|_| ());
const TIME: Read = |row, column| row.time(column).map(|_| ());
const TIME_IF: Read = |row, column| row.time_if(column).map(|_| ());
const BYTES: Read = |row, column| row.bytes(column).map(|_| ());
const DIGEST: Read = |row, column| thirty_two(column, row.bytes(column)?).map(|_| ());
const DIGEST_IF: Read = |row, column| row.digest_if(column).map(|_| ());
const LINEAGE: Read = |row, column| row.lineage(column).map(|_| ());
const ROLE: Read = |row, column| users::role_at(row, column).map(|_| ());
const KIND: Read = |row, _| notices::kind(row).map(|_| ());
const ROLE_IF: Read = |row, column| users::role_if(row, column).map(|_| ());
const JSON: Read = |row, column| well_formed(column, &row.text(column)?);
const JSON_IF: Read = |row, column| row.text_if(column)?.map_or(Ok(()), |text| well_formed(column, &text));
const OBJECT: Read = |row, column| match parse(&row.text(column)?) {
    Ok(Json::Object(_)) => Ok(()),
    _ => Err(StoreError::Damaged(format!("column {column}: no JSON object"))),
};
/// Design stored with a version: metadata and planes, each an object.
const DESIGN: Read = |row, column| {
    let (meta, planes) = specification_versions::design_of(column, row)?;
    match [meta, planes].iter().all(|part| matches!(part.tree(), Json::Object(_))) {
        true => Ok(()),
        false => Err(StoreError::Damaged(format!("column {column}: no two JSON objects"))),
    }
};
const TEXTS: Read = |row, column| devices::read_json::<Vec<String>>(column, &row.text(column)?).map(|_| ());
const STREET_IF: Read = |row, column| match row.text_if(column)? {
    Some(text) => devices::read_json::<StreetAddress>(column, &text).map(|_| ()),
    None => Ok(()),
};
const STATUS: Read = |row, column| row.named(column, Status::numbered).map(|_| ());
const SEVERITY: Read = |row, column| row.named(column, AlarmSeverity::numbered).map(|_| ());
const ALARM_STATE: Read = |row, column| row.named(column, AlarmState::numbered).map(|_| ());
const ALARM_HISTORY: Read = |row, column| alarms::history(column, row).map(|_| ());
const FILL: Read = |row, column| row.named(column, Fill::numbered).map(|_| ());
const PURPOSE: Read = |row, column| {
    let text = row.text(column)?;
    if nonces::Purpose::ALL.iter().any(|purpose| purpose.name() == text) {
        return Ok(());
    }
    Err(StoreError::Damaged(format!("column {column}: {text:?} is no purpose")))
};
/// Text that is empty before the first user and an identifier after it, or null at the end.
const SPREAD_TO: Read = |row, column| match row.text_if(column)?.as_deref() {
    None | Some("") => Ok(()),
    Some(_) => row.id_if::<UserId>(column).map(|_| ()),
};

macro_rules! identifiers {
    ($($id:ident, $name:ident, $name_if:ident;)*) => {$(
        #[allow(dead_code, reason = "not every identifier stands alone somewhere")]
        const $name: Read = |row, column| row.id::<$id>(column).map(|_| ());
        #[allow(dead_code, reason = "not every identifier may be missing somewhere")]
        const $name_if: Read = |row, column| row.id_if::<$id>(column).map(|_| ());
    )*};
}

identifiers! {
    OrganizationId, ORGANIZATION, ORGANIZATION_IF;
    DashboardId, DASHBOARD, DASHBOARD_IF;
    BoardLinkId, BOARD_LINK, BOARD_LINK_IF;
    UserId, USER, USER_IF;
    ProjectId, PROJECT, PROJECT_IF;
    DeviceId, DEVICE, DEVICE_IF;
    SessionId, SESSION, SESSION_IF;
    ApiKeyId, API_KEY, API_KEY_IF;
    SettingId, SETTING, SETTING_IF;
    NotificationId, NOTIFICATION, NOTIFICATION_IF;
    AlarmId, ALARM, ALARM_IF;
    ViewId, VIEW, VIEW_IF;
    EventId, EVENT, EVENT_IF;
}

fn well_formed(column: &str, text: &str) -> Result<()> {
    parse(text).map(|_| ()).map_err(|error| StoreError::Damaged(format!("column {column}: {error}")))
}

#[rustfmt::skip]
const TABLES: &[Table] = &[
    table("schema_version", 1, &[("version", COUNT)]),
    table("pulse", 1, &[("beats", NUMBER)]),
    table("organizations", 1, &[
        ("id", ORGANIZATION), ("parent_id", ORGANIZATION_IF), ("name", TEXT), ("description", TEXT_IF),
        ("lineage", LINEAGE), ("level", COUNT), ("search", TEXT), ("device_count", COUNT), ("bytes_stored", COUNT),
        ("device_count_limit", FLOAT), ("data_usage_mb_limit", FLOAT), ("children_inherit_dashboard", TRUTH),
        ("device_table", JSON_IF), ("created_at", TIME), ("updated_at", TIME),
    ]),
    table("organization_brandings", 1, &[
        ("organization_id", ORGANIZATION), ("company_name", TEXT_IF), ("address_line_1", TEXT_IF),
        ("address_line_2", TEXT_IF), ("domain", TEXT_IF), ("domain_http_file_overrides", JSON_IF),
        ("domain_public_configuration", JSON_IF), ("email", TEXT_IF), ("email_sender_name", TEXT_IF),
    ]),
    table_of_large_rows("organization_dashboards", 1, &[
        ("id", DASHBOARD), ("organization_id", ORGANIZATION), ("version", COUNT), ("created_at", TIME),
        ("updated_at", TIME), ("name", TEXT_IF), ("project_id", PROJECT_IF), ("options", JSON), ("configuration", JSON),
    ]),
    table("dashboard_links", 1, &[
        ("id", BOARD_LINK), ("dashboard_id", DASHBOARD), ("organization_id", ORGANIZATION), ("user_id", USER),
        ("name", TEXT), ("digest", DIGEST), ("created_at", TIME), ("expires_at", TIME),
    ]),
    table("organization_alerts", 2, &[
        ("organization_id", ORGANIZATION), ("used", TEXT), ("fill", FILL), ("since", TIME), ("told", TRUTH),
    ]),
    table("users", 1, &[
        ("id", USER), ("organization_id", ORGANIZATION), ("username", TEXT), ("email", TEXT), ("role", ROLE),
        ("first_name", TEXT), ("last_name", TEXT), ("company", TEXT), ("job_title", TEXT_IF), ("language", TEXT_IF),
        ("tos_hash", TEXT_IF), ("preferences", JSON_IF), ("disabled", TRUTH), ("verified", TRUTH),
        ("password_hash", TEXT_IF), ("reason", TEXT_IF), ("search", TEXT), ("created_at", TIME), ("updated_at", TIME),
        ("last_active", TIME_IF),
    ]),
    table("login_names", 1, &[("name", TEXT), ("user_id", USER)]),
    table("sessions", 1, &[
        ("id", SESSION), ("user_id", USER), ("refresh", DIGEST_IF), ("created_at", TIME), ("expires_at", TIME),
    ]),
    table("nonces", 2, &[("user_id", USER), ("purpose", PURPOSE), ("digest", DIGEST), ("expires_at", TIME)]),
    table("letter_hours", 1, &[
        ("whose", TEXT), ("begins_at", TIME), ("links", COUNT), ("notices", COUNT), ("is_told", TRUTH),
    ]),
    table("sign_in_addresses", 2, &[("user_id", USER), ("address", TEXT), ("last_seen", TIME)]),
    table("revoked_jwts", 1, &[("jti", TEXT), ("expires_at", TIME)]),
    table("secrets", 1, &[("name", TEXT), ("secret", DIGEST)]),
    table("api_keys", 1, &[
        ("id", API_KEY), ("user_id", USER), ("name", TEXT), ("digest", DIGEST), ("created_at", TIME),
        ("last_used_at", TIME_IF), ("role", ROLE_IF), ("expires_at", TIME_IF),
    ]),
    table("user_views", 1, &[
        ("id", VIEW), ("user_id", USER), ("organization_id", ORGANIZATION_IF), ("name", TEXT), ("query", TEXT),
        ("created_at", TIME), ("updated_at", TIME),
    ]),
    table_of_large_rows("notifications", 1, &[
        ("id", NOTIFICATION), ("number", COUNT), ("kind", KIND), ("message", TEXT), ("device_id", DEVICE_IF),
        ("everybody", TRUTH), ("user_id", USER_IF), ("organization_id", ORGANIZATION_IF), ("minimum_role", ROLE),
        ("spread_to", SPREAD_TO), ("created_at", TIME), ("alarm_id", ALARM_IF),
    ]),
    table("notification_recipients", 2, &[
        ("number", COUNT), ("user_id", USER), ("read", TRUTH), ("created_at", TIME),
    ]),
    table("notification_states", 2, &[("number", COUNT), ("user_id", USER), ("read", TRUTH), ("deleted", TRUTH)]),
    table("notification_marks", 1, &[("user_id", USER), ("read_to", NUMBER), ("deleted_to", NUMBER)]),
    table("projects", 1, &[
        ("id", PROJECT), ("organization_id", ORGANIZATION), ("name", TEXT), ("kind", TEXT), ("created_by", USER_IF),
        ("search", TEXT), ("created_at", TIME), ("updated_at", TIME), ("device_count", COUNT),
    ]),
    table_of_large_rows("specifications", 1, &[
        ("project_id", PROJECT), ("name", TEXT), ("create_version", TEXT), ("description", TEXT), ("created", TIME),
        ("last_modified", TIME), ("meta", OBJECT), ("planes", OBJECT), ("version", COUNT),
    ]),
    table_of_large_rows("specification_versions", 2, &[
        ("project_id", PROJECT), ("number", COUNT), ("name", TEXT), ("element_count", COUNT), ("created_at", TIME),
        ("created_by", USER_IF), ("create_version", TEXT), ("description", TEXT), ("design", DESIGN),
    ]),
    table("project_retention", 1, &[("project_id", PROJECT), ("bounds", TEXT)]),
    table("project_timers", 2, &[("project_id", PROJECT), ("element", TEXT), ("minutes", COUNT)]),
    table("devices", 1, &[
        ("id", DEVICE), ("key", COUNT), ("organization_id", ORGANIZATION), ("project_id", PROJECT), ("token", DIGEST),
        ("name", TEXT), ("version", TEXT_IF), ("protocol", TEXT_IF), ("protocols", TEXTS), ("meta", OBJECT),
        ("description", TEXT_IF), ("street_address", STREET_IF), ("latitude", FLOAT_IF), ("longitude", FLOAT_IF),
        ("place_latitude", FLOAT_IF), ("place_longitude", FLOAT_IF), ("status", STATUS), ("status_before", STATUS),
        ("created_by", USER_IF), ("created_at", TIME), ("updated_at", TIME), ("findings_from", COUNT),
    ]),
    table("device_activity", 1, &[
        ("id", DEVICE), ("key", COUNT), ("organization_id", ORGANIZATION), ("last_active", TIME),
    ]),
    table("device_timers", 2, &[
        ("device_key", COUNT), ("element", TEXT), ("id", COUNT), ("due_at", TIME), ("claimed_until", TIME),
    ]),
    table("device_search", 1, &[("key", COUNT), ("organization_id", ORGANIZATION), ("search", TEXT)]),
    table("device_labels", 3, &[("device_key", COUNT), ("label", TEXT), ("value", TEXT)]),
    table("device_usage", 1, &[("key", COUNT), ("bytes", COUNT)]),
    table("usage_counted", 1, &[("counted", COUNT)]),
    table("jobs", 1, &[("name", TEXT), ("due_at", TIME)]),
    table("login_failures", 1, &[("subject", TEXT), ("since", TIME), ("count", COUNT)]),
    table("nodes", 1, &[
        ("id", TEXT), ("name", TEXT), ("version", TEXT), ("settings", TEXT), ("started_at", TIME), ("seen_at", TIME),
        ("clock_ahead", NUMBER),
    ]),
    table("telemetry_stores", 1, &[("number", COUNT), ("identity", TEXT), ("place", TEXT)]),
    table("settings", 1, &[
        ("id", SETTING), ("device_key", COUNT), ("name", TEXT), ("value", JSON_IF), ("created_at", TIME),
        ("changed_at", TIME_IF), ("changed_to", SETTING_IF), ("changed_by", TEXT_IF),
    ]),
    table_of_large_rows("alarms", 1, &[
        ("id", ALARM), ("device_key", COUNT), ("element", TEXT), ("key", TEXT), ("title", TEXT), ("severity", SEVERITY),
        ("state", ALARM_STATE), ("acknowledged", TRUTH), ("raised_at", TIME), ("cleared_at", TIME_IF),
        ("acknowledged_at", TIME_IF), ("acknowledged_by", USER_IF), ("assignee_id", USER_IF), ("count", COUNT),
        ("value", JSON_IF), ("history", ALARM_HISTORY), ("episode", NUMBER), ("episode_count", COUNT),
        ("last_change", EVENT_IF), ("ended_at", TIME_IF), ("created_at", TIME), ("updated_at", TIME),
        ("organization_id", ORGANIZATION),
    ]),
    table_of_large_rows("deliveries", 1, &[
        ("id", TEXT), ("kind", TEXT), ("body", JSON), ("attempts", COUNT), ("due_at", TIME), ("created_at", TIME),
        ("destination", TEXT_IF), ("claimed_until", TIME),
    ]),
    table_of_large_rows("images", 4, &[
        ("organization_id", ORGANIZATION_IF), ("project_id", PROJECT_IF), ("user_id", USER_IF), ("device_id", DEVICE_IF),
        ("posted", TEXT), ("png", BYTES), ("digest", DIGEST), ("updated_at", TIME),
    ]),
];

/// Lists the unreadable rows of every table.
pub(super) async fn unreadable(connection: &impl Connection) -> Vec<String> {
    let mut faults = Vec::new();
    for table in TABLES {
        let mut found = 0;
        if let Err(error) = look_at(connection, table, &mut found, &mut faults).await {
            faults.push(format!("rows of {} cannot be read: {}", table.name, cause(&error)));
        }
        if found > FAULTS_OF_TABLE_MAX {
            faults.push(format!("and {} more rows of {} cannot be read", found - FAULTS_OF_TABLE_MAX, table.name));
        }
    }
    faults
}

async fn look_at(connection: &impl Connection, table: &Table, found: &mut u64, faults: &mut Vec<String>) -> Result<()> {
    let mut pieces = Pieces::of(connection, table).await?;
    while let Some(rows) = pieces.next(connection).await? {
        for row in &rows {
            let wrong = table.columns.iter().filter_map(|(column, read)| read(row, column).err());
            let wrong: Vec<_> = wrong.map(|error| cause(&error)).collect();
            if wrong.is_empty() {
                continue;
            }
            *found += 1;
            if *found <= FAULTS_OF_TABLE_MAX {
                faults.push(format!("a row of {} ({}): {}", table.name, name_of(table, row), wrong.join("; ")));
            }
        }
    }
    Ok(())
}

/// Rows of a table in their physical order, regardless of its key.
enum Pieces {
    /// By row numbers, from the next one.
    Numbered { select: String, at_once: i64, from: Option<i64> },
    /// By blocks, from the next one to the last.
    InBlocks { select: String, at_once: i64, from: u64, blocks: u64 },
}

impl Pieces {
    async fn of(connection: &impl Connection, table: &Table) -> Result<Self> {
        let columns: Vec<&str> = table.columns.iter().map(|(column, _)| *column).collect();
        let select = |place| format!("SELECT {}, {place} AS row_place FROM {}", columns.join(", "), table.name);
        let at_once = table.at_once;
        if Dialect::of(connection) == Dialect::Sqlite {
            return Ok(Self::Numbered { select: select("rowid"), at_once, from: Some(i64::MIN) });
        }
        let size =
            "SELECT pg_relation_size(CAST(? AS regclass)) / CAST(current_setting('block_size') AS BIGINT) AS blocks";
        let row = one(connection, Sql::new(size).bind(table.name)).await?;
        let blocks = row.map_or(Ok(0), |row| row.count("blocks"))?;
        Ok(Self::InBlocks { select: select("CAST(ctid AS TEXT)"), at_once, from: 0, blocks })
    }

    /// Reads the next batch of rows, or `None` at the end.
    async fn next(&mut self, connection: &impl Connection) -> Result<Option<Vec<Row>>> {
        match self {
            Self::Numbered { select, at_once, from } => {
                let Some(first) = *from else { return Ok(None) };
                let query = Sql::new(&**select).text(" WHERE rowid >= ? ORDER BY rowid LIMIT ?");
                let rows = all(connection, query.bind(first).bind(*at_once)).await?;
                let Some(last) = rows.last() else { return Ok(None) };
                *from = last.number("row_place")?.checked_add(1);
                Ok(Some(rows))
            }
            Self::InBlocks { select, at_once, from, blocks } => {
                if *from >= *blocks {
                    return Ok(None);
                }
                let to = *from + (at_once.unsigned_abs() / ROWS_OF_BLOCK).max(1);
                let query = Sql::new(&**select).text(" WHERE ctid >= CAST(? AS tid) AND ctid < CAST(? AS tid)");
                let rows = all(connection, query.bind(format!("({from},0)")).bind(format!("({to},0)"))).await?;
                *from = to;
                Ok(Some(rows))
            }
        }
    }
}

/// Names a row so that an operator can find it.
fn name_of(table: &Table, row: &Row) -> String {
    let named = table.columns.iter().take(table.named_by).filter_map(|(column, _)| {
        let text = row.text(column).or_else(|_| row.number(column).map(|number| number.to_string()));
        text.ok().map(|text| format!("{column} {text}"))
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        let place = row.text("row_place").or_else(|_| row.number("row_place").map(|number| number.to_string()));
        return format!("at {}", place.unwrap_or_default());
    }
    named.join(", ")
}

/// Returns the cause alone, without the surrounding error.
pub(super) fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Damaged(why) => why.clone(),
        StoreError::Unavailable(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
