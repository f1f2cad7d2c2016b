//! Stores notices: each once, then distributed to its recipients in steps, in the order of their identifiers.
//!
//! A notice for everybody gets no row for each user: `notifications` compares its time with the time at which a user
//! was created. It is distributed like others to users who also want an e-mail.

use isobar_model::access::CanWrite;
use isobar_model::ids::{AlarmId, DeviceId, NotificationId, UserId};
use isobar_model::json::RawJson;
use isobar_model::notification::{Audience, Notice, NotificationKind};
use isobar_model::time::Timestamp;

use super::letters::{self, NewLetter};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::AdvisoryLock;
use crate::registry::sql::{Row, Sql, all, one, run};

const SELECT_NOTICES: &str = "SELECT number, id, kind, message, device_id, alarm_id, everybody, user_id, organization_id, minimum_role, \
    spread_to, created_at FROM notifications WHERE spread_to IS NOT NULL";

/// Notice that is being distributed to its recipients.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreading {
    /// Content of the notice.
    pub notice: Notice,
    number: i64,
    /// Last user to whom it was distributed; empty at the beginning.
    after: String,
}

/// Recipient of a notice.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipient {
    /// Identifier of the user.
    pub id: UserId,
    /// E-mail address.
    pub email: String,
    /// Preferences, or `None`: the defaults.
    pub preferences: Option<RawJson>,
    /// True if every credential of the user is refused.
    pub disabled: bool,
    /// True if the address was verified.
    pub verified: bool,
}

/// One step of the distribution of a notice.
#[derive(Clone, Debug, Default)]
pub struct SpreadStep {
    /// Users who see the notice in the application from now on; empty for a notice for everybody.
    pub in_app: Vec<UserId>,
    /// Letters to users who want the notice outside the application, as far as there is room.
    pub letters: Vec<NewLetter>,
    /// Last user of the step, in the order of ids; `None` after the last recipient.
    pub to: Option<UserId>,
}

impl Registry {
    /// Stores a notice, to be distributed. Returns false, without a change, if it exists already.
    pub async fn notice_create(&self, permit: &CanWrite<Notice>) -> Result<bool> {
        let notice = permit.target();
        let (user, organization, minimum_role) = match notice.to {
            Audience::Everybody => (None, None, 0),
            Audience::User(id) => (Some(id), None, 0),
            Audience::Organization { id, minimum_role } => (None, Some(id), minimum_role as i64),
        };
        let everybody = notice.to == Audience::Everybody;
        let tx = self.db.begin().await?;
        if everybody {
            AdvisoryLock::NoticeNumbers.hold(&tx).await?;
        }
        let insert = Sql::new(
            "INSERT INTO notifications (id, kind, message, device_id, everybody, user_id, organization_id, \
             minimum_role, spread_to, created_at, alarm_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?) \
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(notice.id)
        .bind(notice.kind.name())
        .bind(notice.message.as_str())
        .bind(notice.device)
        .bind(everybody)
        .bind(user)
        .bind(organization)
        .bind(minimum_role)
        .bind(notice.at)
        .bind(notice.alarm);
        let is_new = run(&tx, insert).await? > 0;
        tx.commit().await?;
        Ok(is_new)
    }

    /// Fetches the notice with this identifier, if its distribution is unfinished.
    pub async fn notice_spreading(&self, id: NotificationId) -> Result<Option<Spreading>> {
        let row = one(&self.db.read, Sql::new(SELECT_NOTICES).text(" AND id = ?").bind(id)).await?;
        row.map(|row| spreading(&row)).transpose()
    }

    /// Fetches the oldest notice whose distribution is unfinished.
    pub async fn notice_to_spread(&self) -> Result<Option<Spreading>> {
        let row = one(&self.db.read, Sql::new(SELECT_NOTICES).text(" ORDER BY number LIMIT 1")).await?;
        row.map(|row| spreading(&row)).transpose()
    }

    /// Lists at most `most` next recipients of a notice. For a notice for everybody these are only users with
    /// preferences: by default users get no e-mail, and nothing else is to be done for them.
    pub async fn notice_recipients(&self, spreading: &Spreading, most: u32) -> Result<Vec<Recipient>> {
        let query = Sql::new("SELECT u.id, u.email, u.preferences, u.disabled, u.verified FROM users u WHERE ")
            .then(audience(&spreading.notice))
            .text(" AND u.id > ?")
            .bind(spreading.after.as_str())
            .text(" ORDER BY u.id LIMIT ?")
            .bind(i64::from(most));
        all(&self.db.read, query).await?.iter().map(recipient).collect()
    }

    /// Records a step of a notice's distribution, for all recipients of the step or none. Returns the next state, or
    /// `None` if the distribution is finished, or if a concurrent one was faster.
    pub async fn notice_spread(
        &self,
        spreading: Spreading,
        step: &SpreadStep,
        now: Timestamp,
    ) -> Result<Option<Spreading>> {
        let tx = self.db.begin().await?;
        let taken = Sql::new("UPDATE notifications SET spread_to = ? WHERE number = ? AND spread_to = ?")
            .bind(step.to)
            .bind(spreading.number)
            .bind(spreading.after.as_str());
        if run(&tx, taken).await? == 0 {
            return Ok(None);
        }
        if !step.in_app.is_empty() {
            // Users removed in the meantime are left out.
            let insert = Sql::new(
                "INSERT INTO notification_recipients (number, user_id, created_at) SELECT n.number, u.id, n.created_at \
                 FROM users u JOIN notifications n ON n.number = ? WHERE u.id",
            )
            .bind(spreading.number)
            .among(self.db.dialect, &step.in_app)
            .text(self.db.dialect.either("", " FOR KEY SHARE OF u"));
            run(&tx, insert).await?;
        }
        letters::put(&tx, &step.letters, now).await?;
        tx.commit().await?;
        Ok(step.to.map(|to| Spreading { after: to.to_string(), ..spreading }))
    }

    /// Removes at most `most` notices from before this moment. Returns how many were removed.
    pub async fn notices_sweep(&self, before: Timestamp, most: u32) -> Result<u64> {
        let delete = Sql::new(
            "DELETE FROM notifications WHERE number IN \
             (SELECT number FROM notifications WHERE created_at < ? ORDER BY created_at, number LIMIT ?)",
        );
        self.db.write.run(delete.bind(before).bind(i64::from(most))).await
    }

    /// Lists the users who have more than `kept` notices of their own.
    pub async fn notices_hoarded(&self, kept: u64) -> Result<Vec<UserId>> {
        let query = Sql::new("SELECT user_id AS id FROM notification_recipients GROUP BY user_id HAVING count(*) > ?");
        crate::registry::lists::ids(&all(&self.db.read, query.bind(kept)).await?)
    }

    /// Removes a user's oldest notices, at most `most` of those beyond the newest `kept`. Returns how many were
    /// removed.
    pub async fn notices_trim(&self, permit: &CanWrite<UserId>, kept: u64, most: u32) -> Result<u64> {
        let user = *permit.target();
        let delete = Sql::new("DELETE FROM notification_recipients WHERE user_id = ?")
            .bind(user)
            .text(
                " AND number IN (SELECT number FROM notification_recipients WHERE user_id = ? \
                 ORDER BY created_at DESC, number DESC LIMIT ? OFFSET ?)",
            )
            .bind(user)
            .bind(i64::from(most))
            .bind(kept);
        self.db.write.run(delete).await
    }
}

/// Builds the condition that a user `u` is a recipient of the notice, and existed when it was issued.
fn audience(notice: &Notice) -> Sql {
    match notice.to {
        Audience::User(id) => Sql::new("u.id = ?").bind(id),
        // Within one millisecond the ids decide who existed first: they increase.
        Audience::Everybody => {
            Sql::new("u.preferences IS NOT NULL AND u.created_at <= ? AND (u.created_at < ? OR u.id < ?)")
                .bind(notice.at)
                .bind(notice.at)
                .bind(notice.id)
        }
        Audience::Organization { id, minimum_role } => {
            Sql::new("u.organization_id = ? AND u.role >= ? AND u.created_at <= ?")
                .bind(id)
                .bind(minimum_role as i64)
                .bind(notice.at)
        }
    }
}

/// Reads the kind of a notice from a row.
pub(crate) fn kind(row: &Row) -> Result<NotificationKind> {
    let name = row.text("kind")?;
    NotificationKind::named(&name).ok_or_else(|| StoreError::Damaged(format!("notification kind {name:?}")))
}

fn spreading(row: &Row) -> Result<Spreading> {
    let to = match (row.id_if("user_id")?, row.id_if("organization_id")?) {
        (Some(user), _) => Audience::User(user),
        (None, Some(id)) => Audience::Organization { id, minimum_role: super::users::role_at(row, "minimum_role")? },
        (None, None) => Audience::Everybody,
    };
    Ok(Spreading {
        notice: Notice {
            id: row.id("id")?,
            kind: kind(row)?,
            to,
            message: row.text("message")?,
            device: row.id_if::<DeviceId>("device_id")?,
            alarm: row.id_if::<AlarmId>("alarm_id")?,
            at: row.time("created_at")?,
        },
        number: row.number("number")?,
        after: row.text("spread_to")?,
    })
}

fn recipient(row: &Row) -> Result<Recipient> {
    Ok(Recipient {
        id: row.id("id")?,
        email: row.text("email")?,
        preferences: row.json_if("preferences")?,
        disabled: row.truth("disabled")?,
        verified: row.truth("verified")?,
    })
}
