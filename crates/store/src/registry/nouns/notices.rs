//! Notices given out: stored once, then spread to their recipients, a part at a time and in the order of their ids.
//!
//! A notice for everybody gets no row for each user: `notifications` tells from the user's own moment of creation
//! whether it is for it. It is spread all the same, for those who also want an e-mail.

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

/// A notice on its way to its recipients.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreading {
    /// What it says.
    pub notice: Notice,
    number: i64,
    /// The last user that it was spread to; empty: none yet.
    after: String,
}

/// Somebody whom a notice is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipient {
    /// Who.
    pub id: UserId,
    /// Its e-mail address.
    pub email: String,
    /// Its preferences, as set; none: the defaults.
    pub preferences: Option<RawJson>,
    /// Whether it is refused with every credential.
    pub disabled: bool,
    /// Whether the address was verified to be its own.
    pub verified: bool,
}

/// One step of a notice on its way.
#[derive(Clone, Debug, Default)]
pub struct SpreadStep {
    /// Those who have it in the application from now on. Of a notice for everybody there is nobody to name.
    pub in_app: Vec<UserId>,
    /// What goes to those who want it outside, as far as there is room.
    pub letters: Vec<NewLetter>,
    /// The last user of the step, in the order of ids; none: nobody comes after it.
    pub to: Option<UserId>,
}

impl Registry {
    /// Keeps a notice, to be spread. False: it was given out before, and nothing changed.
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

    /// The notice with this identifier, if it is not spread to all its recipients yet.
    pub async fn notice_spreading(&self, id: NotificationId) -> Result<Option<Spreading>> {
        let row = one(&self.db.read, Sql::new(SELECT_NOTICES).text(" AND id = ?").bind(id)).await?;
        row.map(|row| spreading(&row)).transpose()
    }

    /// The oldest notice that is not spread to all its recipients yet.
    pub async fn notice_to_spread(&self) -> Result<Option<Spreading>> {
        let row = one(&self.db.read, Sql::new(SELECT_NOTICES).text(" ORDER BY number LIMIT 1")).await?;
        row.map(|row| spreading(&row)).transpose()
    }

    /// The next recipients of a notice, at most so many. Of everybody, only those who have set preferences: by default
    /// nobody gets an e-mail, and nothing else is to be done for them.
    pub async fn notice_recipients(&self, spreading: &Spreading, most: u32) -> Result<Vec<Recipient>> {
        let query = Sql::new("SELECT u.id, u.email, u.preferences, u.disabled, u.verified FROM users u WHERE ")
            .then(audience(&spreading.notice))
            .text(" AND u.id > ?")
            .bind(spreading.after.as_str())
            .text(" ORDER BY u.id LIMIT ?")
            .bind(i64::from(most));
        all(&self.db.read, query).await?.iter().map(recipient).collect()
    }

    /// Notes that a notice was spread as far as it says, to all of that step or to nobody.
    /// What comes next; none: all have it, or somebody else spreads it too and was faster.
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
            // Users who went away in the meantime are left out.
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

    /// Removes notices of before that moment, at most so many. How many there were.
    pub async fn notices_sweep(&self, before: Timestamp, most: u32) -> Result<u64> {
        let delete = Sql::new(
            "DELETE FROM notifications WHERE number IN \
             (SELECT number FROM notifications WHERE created_at < ? ORDER BY created_at, number LIMIT ?)",
        );
        self.db.write.run(delete.bind(before).bind(i64::from(most))).await
    }

    /// The users who have more than so many notices of their own.
    pub async fn notices_hoarded(&self, kept: u64) -> Result<Vec<UserId>> {
        let query = Sql::new("SELECT user_id AS id FROM notification_recipients GROUP BY user_id HAVING count(*) > ?");
        crate::registry::lists::ids(&all(&self.db.read, query.bind(kept)).await?)
    }

    /// Removes a user's oldest notices, at most `most` of those beyond the newest `kept`. How many there were.
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

/// The condition that a user `u` is one that the notice is for, and was there when it was given out.
fn audience(notice: &Notice) -> Sql {
    match notice.to {
        Audience::User(id) => Sql::new("u.id = ?").bind(id),
        // Of one millisecond, the ids tell who was there first: they grow.
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

/// A notice's row in the words of the model.
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
