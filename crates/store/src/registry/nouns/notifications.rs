//! Stores the notifications of each user: the user's own, and those for everybody since the user was created.
//!
//! A user's change of one notice for everybody is stored in a row; a change of all of them, in a single mark.

use isobar_model::access::CanWrite;
use isobar_model::ids::{NotificationId, UserId};
use isobar_model::notification::Notification;
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{count, is_a_page, limit_offset};
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

/// Expression for the user's read state of a notice for everybody.
const READ: &str = "coalesce(s.read, CASE WHEN n.number <= coalesce(m.read_to, 0) THEN 1 ELSE 0 END)";

/// Selects the notices for everybody of the user `u`: those issued since the user was created. A user and a notice of
/// one millisecond are distinguished by their ids, which increase.
const FOR_EVERYBODY: &str = " FROM users u JOIN notifications n ON n.everybody = 1 AND n.created_at >= u.created_at \
    AND (n.created_at > u.created_at OR n.id > u.id) \
    LEFT JOIN notification_marks m ON m.user_id = u.id \
    LEFT JOIN notification_states s ON s.user_id = u.id AND s.number = n.number \
    WHERE n.number > coalesce(m.deleted_to, 0) AND coalesce(s.deleted, 0) = 0 AND u.id = ?";

/// Number of notifications that are read without asking their length: 40 KB each.
const FEW: usize = 100;

/// Change of notifications by their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationMark {
    /// Marks them as read or unread.
    Read(bool),
    /// Deletes them.
    Delete,
}

impl Registry {
    /// Lists the notifications of the permit's user, newest first; only unread ones, if requested.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] where their texts take more than [`crate::telemetry::PAGE_BYTES_MAX`].
    pub async fn notification_list(
        &self,
        permit: &CanWrite<UserId>,
        page: PageRequest,
        unread: bool,
    ) -> Result<Page<Notification>> {
        let user = *permit.target();
        let tx = self.db.snapshot().await?;
        let total = count(&tx, own(user, unread)).await? + count(&tx, of_everybody(user, unread)).await?;
        if page.offset() >= total {
            return Ok(Page::new(Vec::new(), total, page));
        }
        let query = Sql::new("SELECT r.number AS number, r.created_at AS created_at, r.read AS read")
            .then(own(user, unread))
            .text(&format!(" UNION ALL SELECT n.number, n.created_at, {READ}"))
            .then(of_everybody(user, unread))
            .text(" ORDER BY created_at DESC, number DESC")
            .then(limit_offset(page.limit, page.offset()));
        let marks = all(&tx, query).await?;
        if marks.len() > FEW {
            let numbers = marks.iter().map(|mark| mark.number("number")).collect::<Result<Vec<_>>>()?;
            let sum = "SELECT CAST(coalesce(sum(octet_length(message)), 0) AS BIGINT) AS bytes FROM notifications WHERE number";
            is_a_page(&tx, Sql::new(sum).among_numbers(self.db.dialect, &numbers)).await?;
        }
        let items = notifications_of(&tx, &marks).await?;
        Ok(Page::new(items, total, page))
    }

    /// Fetches a notification of the permit's user.
    pub async fn notification_fetch(
        &self,
        permit: &CanWrite<UserId>,
        id: NotificationId,
    ) -> Result<Option<Notification>> {
        let tx = self.db.snapshot().await?;
        let found = match located(&tx, *permit.target(), id).await? {
            Some((mark, _)) => notifications_of(&tx, &[mark]).await?.pop(),
            None => None,
        };
        Ok(found)
    }

    /// Records if the permit's user has read a notification; returns false if the user has none with this identifier.
    pub async fn notification_update(&self, permit: &CanWrite<UserId>, id: NotificationId, read: bool) -> Result<bool> {
        let user = *permit.target();
        let tx = self.db.begin().await?;
        let Some((mark, is_own)) = located(&tx, user, id).await? else { return Ok(false) };
        let number = mark.number("number")?;
        let update = if is_own {
            let update = Sql::new("UPDATE notification_recipients SET read = ? WHERE number = ? AND user_id = ?");
            update.bind(read).bind(number).bind(user)
        } else {
            Sql::new(
                "INSERT INTO notification_states (number, user_id, read, deleted) VALUES (?, ?, ?, 0) \
                 ON CONFLICT (user_id, number) DO UPDATE SET read = excluded.read",
            )
            .bind(number)
            .bind(user)
            .bind(read)
        };
        run(&tx, update).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Marks the notifications of the permit's user within a range of time, at once.
    pub async fn notifications_mark(
        &self,
        permit: &CanWrite<UserId>,
        range: TimeRange,
        mark: NotificationMark,
    ) -> Result<()> {
        let user = *permit.target();
        let tx = self.db.begin().await?;
        let own = match mark {
            NotificationMark::Read(read) => {
                let update = Sql::new("UPDATE notification_recipients SET read = ? WHERE read <> ?");
                update.bind(read).bind(read).text(" AND user_id = ?")
            }
            NotificationMark::Delete => Sql::new("DELETE FROM notification_recipients WHERE user_id = ?"),
        };
        run(&tx, own.bind(user).then(within(range, "created_at"))).await?;
        match all_of_everybody(&tx, user, range).await? {
            Some(newest) => mark_all(&tx, user, mark, newest).await?,
            None => mark_each(&tx, user, mark, range).await?,
        }
        tx.commit().await
    }
}

/// Selects a user's own notices.
fn own(user: UserId, unread: bool) -> Sql {
    let own = Sql::new(" FROM notification_recipients r WHERE r.user_id = ?").bind(user);
    if unread { own.text(" AND r.read = 0") } else { own }
}

/// Selects the notices for everybody that a user has not deleted.
fn of_everybody(user: UserId, unread: bool) -> Sql {
    let everybody = Sql::new(FOR_EVERYBODY).bind(user);
    if unread { everybody.text(&format!(" AND {READ} = 0")) } else { everybody }
}

/// Builds `AND` with the condition that a moment lies in a range.
fn within(range: TimeRange, column: &str) -> Sql {
    let mut sql = Sql::default();
    if let Some(from) = range.from {
        sql = sql.text(&format!(" AND {column} >= ?")).bind(from);
    }
    if let Some(to) = range.to {
        sql = sql.text(&format!(" AND {column} < ?")).bind(to);
    }
    sql
}

/// Finds the number and state of the user's notification with this identifier; true if it is the user's own.
async fn located(connection: &impl Connection, user: UserId, id: NotificationId) -> Result<Option<(Row, bool)>> {
    let query = Sql::new(
        "SELECT n.number, r.read FROM notifications n JOIN notification_recipients r ON r.number = n.number \
         WHERE n.id = ? AND r.user_id = ?",
    );
    if let Some(own) = one(connection, query.bind(id).bind(user)).await? {
        return Ok(Some((own, true)));
    }
    let query = Sql::new(format!("SELECT n.number, {READ} AS read")).then(of_everybody(user, false));
    Ok(one(connection, query.text(" AND n.id = ?").bind(id)).await?.map(|row| (row, false)))
}

/// Reads the notifications of these numbers and states, in order.
async fn notifications_of(connection: &impl Connection, marks: &[Row]) -> Result<Vec<Notification>> {
    let numbers = marks.iter().map(|mark| mark.number("number")).collect::<Result<Vec<_>>>()?;
    let query =
        Sql::new("SELECT number, id, kind, message, device_id, alarm_id, created_at FROM notifications WHERE number")
            .among_numbers(crate::registry::sql::Dialect::of(connection), &numbers);
    let mut notices = std::collections::HashMap::with_capacity(numbers.len());
    for row in all(connection, query).await? {
        notices.insert(row.number("number")?, row);
    }
    let with_mark = |(number, mark): (&i64, &Row)| {
        notices.get(number).map(|row| {
            Ok(Notification {
                id: row.id("id")?,
                kind: super::notices::kind(row)?,
                message: row.text("message")?,
                device: row.id_if("device_id")?,
                alarm: row.id_if("alarm_id")?,
                read: mark.truth("read")?,
                created_at: row.time("created_at")?,
            })
        })
    };
    numbers.iter().zip(marks).filter_map(with_mark).collect()
}

/// Returns the number of the newest notice for everybody, if the range covers all of them that the user has.
async fn all_of_everybody(tx: &impl Connection, user: UserId, range: TimeRange) -> Result<Option<i64>> {
    let query = Sql::new(
        "SELECT u.created_at AS since, (SELECT coalesce(max(number), 0) FROM notifications WHERE everybody = 1) AS \
         newest, (SELECT coalesce(max(created_at), 0) FROM notifications WHERE everybody = 1) AS until \
         FROM users u WHERE u.id = ?",
    );
    let row = one(tx, query.bind(user)).await?.ok_or(StoreError::Gone("user"))?;
    let (since, until) = (row.time("since")?, row.time("until")?);
    let takes_in = |moment: Timestamp| range.from.is_none_or(|from| from <= moment);
    let ends_after = range.to.is_none_or(|to| until < to);
    Ok(if takes_in(since) && ends_after { Some(row.number("newest")?) } else { None })
}

/// Marks every existing notice for everybody.
async fn mark_all(tx: &impl Connection, user: UserId, mark: NotificationMark, newest: i64) -> Result<()> {
    let (columns, read_to, deleted_to, forget) = match mark {
        NotificationMark::Read(read) => {
            ("read_to = excluded.read_to", if read { newest } else { 0 }, 0, " AND deleted = 0")
        }
        NotificationMark::Delete => ("deleted_to = excluded.deleted_to", 0, newest, ""),
    };
    let upsert = format!(
        "INSERT INTO notification_marks (user_id, read_to, deleted_to) VALUES (?, ?, ?) \
         ON CONFLICT (user_id) DO UPDATE SET {columns}"
    );
    run(tx, Sql::new(upsert).bind(user).bind(read_to).bind(deleted_to)).await?;
    let states = Sql::new("DELETE FROM notification_states WHERE user_id = ?").bind(user).text(forget);
    run(tx, states).await.map(|_| ())
}

/// Marks the notices for everybody within a range, one by one.
async fn mark_each(tx: &impl Connection, user: UserId, mark: NotificationMark, range: TimeRange) -> Result<()> {
    let (read, deleted, column) = match mark {
        NotificationMark::Read(read) => (read, false, "read"),
        NotificationMark::Delete => (true, true, "deleted"),
    };
    let upsert = Sql::new("INSERT INTO notification_states (number, user_id, read, deleted) SELECT n.number, u.id, ")
        .text(&format!("{}, {}", i64::from(read), i64::from(deleted)))
        .then(of_everybody(user, false))
        .then(within(range, "n.created_at"))
        .text(&format!(" ON CONFLICT (user_id, number) DO UPDATE SET {column} = excluded.{column}"));
    run(tx, upsert).await.map(|_| ())
}
