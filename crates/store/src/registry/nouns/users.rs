//! Stores users and their profiles. Login names are in one table, whose key makes them unique.

use std::collections::BTreeMap;

use isobar_model::access::{CanList, CanRead, CanWrite, Lineage};
use isobar_model::ids::{OrganizationId, SessionId, UserId};
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page};
use isobar_model::role::Role;
use isobar_model::time::Timestamp;
use isobar_model::user::User;
use isobar_model::user_input::CredentialEnds;

use super::letters::{self, NewLetter};
use super::organizations::{self, NewOrganization, hold_organization};
use super::{credentials, sessions};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{USERS, folded, page_of, read_by_id, searched};
use crate::registry::sql::AdvisoryLock;
use crate::registry::sql::{Connection, Dialect, Row, Sql, one, run};

const SELECT_USERS: &str = "SELECT u.id, u.username, u.email, u.role, u.organization_id, o.lineage, o.name AS organization, \
    u.tos_hash, u.first_name, u.last_name, u.company, u.job_title, u.language, u.preferences, u.disabled, u.verified, \
    u.created_at, u.updated_at, u.last_active \
    FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id";

/// User to be created.
#[derive(Clone, Debug)]
pub struct NewUserRow {
    /// Identifier.
    pub id: UserId,
    /// Username, unique regardless of case, among e-mail addresses too.
    pub username: String,
    /// E-mail address, unique regardless of case, among usernames too.
    pub email: String,
    /// Role.
    pub role: Role,
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Company.
    pub company: String,
    /// Hash of the password, or `None`: the user sets one through a reset.
    pub password_hash: Option<String>,
    /// Signature that the Terms of Service were accepted.
    pub tos_hash: Option<String>,
    /// Language.
    pub language: Option<String>,
    /// True if the e-mail address needs no verification.
    pub verified: bool,
    /// E-mail that asks the user to verify the address, stored together with the user.
    pub welcome: Option<NewLetter>,
}

/// New values of a user, all except usernames and e-mail address.
#[derive(Clone, Debug)]
pub struct UserChange {
    /// Role.
    pub role: Role,
    /// Organization of the user.
    pub organization: OrganizationId,
    /// Signature that the Terms of Service were accepted.
    pub tos_hash: Option<String>,
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Company.
    pub company: String,
    /// Job title.
    pub job_title: Option<String>,
    /// Language.
    pub language: Option<String>,
    /// Notification preferences.
    pub preferences: Option<RawJson>,
    /// True if every credential of the user is refused.
    pub disabled: bool,
    /// Reason of the change, for the operator, or `None`: unchanged.
    pub reason: Option<String>,
    /// New password, if it changes.
    pub password: Option<NewPassword>,
}

/// New password of a user. Setting it ends the user's sessions, except one.
#[derive(Clone)]
pub struct NewPassword {
    /// Hash of the password.
    pub hash: String,
    /// Session that continues: the one in which the user set the password.
    pub keeps: Option<SessionId>,
    /// Credentials that end too.
    pub ends: CredentialEnds,
}

impl std::fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPassword").field("keeps", &self.keeps).finish_non_exhaustive()
    }
}

impl Registry {
    /// Returns the lineage of a user's organization and the user's role; only for authorization.
    pub async fn user_placement(&self, id: UserId) -> Result<Option<(Lineage, Role)>> {
        let query = Sql::new(
            "SELECT o.lineage, u.role FROM users u JOIN organizations o ON o.id = u.organization_id WHERE u.id = ?",
        );
        let row = one(&self.db.read, query.bind(id)).await?;
        row.map(|row| Ok((row.lineage("lineage")?, role(&row)?))).transpose()
    }

    /// Returns true if there is no user yet.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(one(&self.db.read, Sql::new("SELECT id FROM users LIMIT 1")).await?.is_none())
    }

    /// Creates an organization and its first user, both or neither.
    ///
    /// # Errors
    /// [`StoreError::Taken`] where the username or the e-mail address is another user's; [`StoreError::Gone`] where the
    /// organization above is gone; [`StoreError::Limit`] where the tree would be too deep.
    pub async fn account_found(
        &self,
        parent: &CanWrite<Option<OrganizationId>>,
        organization: NewOrganization,
        user: NewUserRow,
        now: Timestamp,
    ) -> Result<User> {
        let tx = self.db.begin().await?;
        organizations::insert(&tx, *parent.target(), &organization, now).await?;
        let made = insert(&tx, organization.id, &user, now).await?;
        tx.commit().await?;
        Ok(made)
    }

    /// Creates a user in the permit's organization.
    ///
    /// # Errors
    /// [`StoreError::Taken`] where the username or the e-mail address is another user's; [`StoreError::Gone`] where the
    /// organization is gone.
    pub async fn user_create(
        &self,
        permit: &CanWrite<OrganizationId>,
        new: NewUserRow,
        now: Timestamp,
    ) -> Result<User> {
        let tx = self.db.begin().await?;
        hold_organization(&tx, *permit.target(), self.db.dialect.hold_in_place()).await?;
        let made = insert(&tx, *permit.target(), &new, now).await?;
        tx.commit().await?;
        Ok(made)
    }

    /// Fetches a user.
    pub async fn user_fetch(&self, permit: &CanRead<UserId>) -> Result<Option<User>> {
        Ok(read(&self.db.read, &[*permit.target()]).await?.pop())
    }

    /// Lists the users of a part of the tree.
    pub async fn user_list(&self, permit: &CanList, request: &ListRequest) -> Result<Page<User>> {
        let tx = self.db.snapshot().await?;
        USERS.allow_after(&tx, permit.scope(), request).await?;
        let (ids, total) = USERS.page_within(&tx, permit.scope(), Sql::new("1 = 1"), request).await?;
        let users = read(&tx, &ids).await?;
        Ok(page_of(request, (&ids, users, total), |user| user.id))
    }

    /// Locks a user, and changes it to the values that `decide` returns; a refusal leaves it unchanged.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the user or its new organization is gone; [`StoreError::LastAdministrator`] where it
    /// is the last enabled system administrator, and would no longer be one.
    pub async fn user_update<Refusal: Send>(
        &self,
        permit: &CanWrite<UserId>,
        decide: impl FnOnce(User) -> std::result::Result<UserChange, Refusal> + Send,
        now: Timestamp,
    ) -> Result<std::result::Result<User, Refusal>> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        hold_user(&tx, id).await?;
        let present = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("user"))?;
        let administers = present.role == Role::SystemAdmin && !present.disabled;
        let (username, email) = (present.username.clone(), present.email.clone());
        let change = match decide(present) {
            Ok(change) => change,
            Err(refusal) => return Ok(Err(refusal)),
        };
        hold_organization(&tx, change.organization, self.db.dialect.hold_in_place()).await?;
        if administers && (change.role != Role::SystemAdmin || change.disabled) {
            another_administers(&tx, id).await?;
        }
        let update = Sql::new(
            "UPDATE users SET role = ?, organization_id = ?, tos_hash = ?, first_name = ?, last_name = ?, \
             company = ?, job_title = ?, language = ?, preferences = ?, disabled = ?, reason = coalesce(?, reason), \
             search = ?, updated_at = ? WHERE id = ?",
        )
        .bind(change.role as i64)
        .bind(change.organization)
        .bind(change.tos_hash)
        .bind(change.first_name.as_str())
        .bind(change.last_name.as_str())
        .bind(change.company.as_str())
        .bind(change.job_title)
        .bind(change.language)
        .bind(change.preferences)
        .bind(change.disabled)
        .bind(change.reason)
        .bind(searched([&*username, &email, &change.first_name, &change.last_name, &change.company]))
        .bind(now)
        .bind(id);
        run(&tx, update).await?;
        if let Some(password) = &change.password {
            credentials::set_password(&tx, id, &password.hash, now).await?;
            sessions::end(&tx, id, password.keeps).await?;
            credentials::end(&tx, id, password.ends).await?;
        }
        let changed = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("user"))?;
        tx.commit().await?;
        Ok(Ok(changed))
    }

    /// Records that a user's e-mail address was verified.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where there is no such user.
    pub async fn user_verify(&self, permit: &CanWrite<UserId>, now: Timestamp) -> Result<()> {
        let update = Sql::new("UPDATE users SET verified = 1, updated_at = ? WHERE id = ?").bind(now);
        match self.db.write.run(update.bind(*permit.target())).await? {
            0 => Err(StoreError::Gone("user")),
            _ => Ok(()),
        }
    }

    /// Removes a user with its sessions, API keys and login names.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where there is no such user; [`StoreError::LastAdministrator`] where it is the last enabled
    /// system administrator.
    pub async fn user_delete(&self, permit: &CanWrite<UserId>) -> Result<()> {
        let id = *permit.target();
        let tx = self.db.begin().await?;
        let row = hold_user(&tx, id).await?;
        if role(&row)? == Role::SystemAdmin && !row.truth("disabled")? {
            another_administers(&tx, id).await?;
        }
        run(&tx, Sql::new("DELETE FROM users WHERE id = ?").bind(id)).await?;
        tx.commit().await
    }

    /// Records when users last made a call. A moment never moves backwards.
    pub async fn users_touch(&self, touched: &[(UserId, Timestamp)]) -> Result<()> {
        if touched.is_empty() {
            return Ok(());
        }
        let update = Sql::new("UPDATE users SET last_active = t.moment FROM ")
            .moments(self.db.dialect, latest(touched).map(|(id, at)| (id.to_string().into(), at)))
            .text(" AS t WHERE users.id = t.item AND coalesce(users.last_active, 0) < t.moment");
        self.db.write.run(update).await.map(|_| ())
    }
}

/// Returns the latest moment of each id, in the order of the ids.
pub(crate) fn latest<K: Ord + Copy>(touched: &[(K, Timestamp)]) -> impl Iterator<Item = (K, Timestamp)> {
    let mut latest: BTreeMap<K, Timestamp> = BTreeMap::new();
    for (id, at) in touched {
        let newest = latest.entry(*id).or_insert(*at);
        *newest = (*newest).max(*at);
    }
    latest.into_iter()
}

/// Locks a user that must exist until the transaction ends.
pub(super) async fn hold_user(tx: &impl Connection, id: UserId) -> Result<Row> {
    let query = Sql::new("SELECT role, disabled FROM users WHERE id = ?").bind(id);
    one(tx, query.text(Dialect::of(tx).hold_for_change())).await?.ok_or(StoreError::Gone("user"))
}

/// Refuses if no other user is an enabled system administrator: then no user could make another one. Transactions that
/// each remove an administrator, whose row they have locked, wait here for each other; the second then finds the first
/// one removed.
async fn another_administers(tx: &impl Connection, user: UserId) -> Result<()> {
    AdvisoryLock::Administrators.hold(tx).await?;
    let other = Sql::new("SELECT id FROM users WHERE role = ? AND disabled = 0 AND id <> ? LIMIT 1");
    match one(tx, other.bind(Role::SystemAdmin as i64).bind(user)).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::LastAdministrator),
    }
}

async fn insert(tx: &impl Connection, organization: OrganizationId, new: &NewUserRow, now: Timestamp) -> Result<User> {
    let insert = Sql::new(
        "INSERT INTO users (id, organization_id, username, email, role, first_name, last_name, company, tos_hash, \
         language, verified, password_hash, search, created_at, updated_at) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(new.id)
    .bind(organization)
    .bind(new.username.as_str())
    .bind(new.email.as_str())
    .bind(new.role as i64)
    .bind(new.first_name.as_str())
    .bind(new.last_name.as_str())
    .bind(new.company.as_str())
    .bind(new.tos_hash.clone())
    .bind(new.language.clone())
    .bind(new.verified)
    .bind(new.password_hash.clone())
    .bind(searched([&*new.username, &new.email, &new.first_name, &new.last_name, &new.company]))
    .bind(now)
    .bind(now);
    run(tx, insert).await?;
    let mut taken = Vec::new();
    if !claim(tx, new.id, &new.username).await? {
        taken.push("username");
    }
    if folded(&new.username) != folded(&new.email) && !claim(tx, new.id, &new.email).await? {
        taken.push("email");
    }
    if !taken.is_empty() {
        return Err(StoreError::Taken { fields: taken });
    }
    letters::put(tx, new.welcome.as_slice(), now).await?;
    read(tx, &[new.id]).await?.pop().ok_or(StoreError::Gone("user"))
}

/// Claims a login name; returns false if it is taken. The second of two transactions that claim one name waits and
/// loses.
async fn claim(tx: &impl Connection, user: UserId, name: &str) -> Result<bool> {
    let insert = Sql::new("INSERT INTO login_names (name, user_id) VALUES (?, ?) ON CONFLICT DO NOTHING")
        .bind(folded(name))
        .bind(user);
    Ok(run(tx, insert).await? > 0)
}

pub(crate) async fn read(connection: &impl Connection, ids: &[UserId]) -> Result<Vec<User>> {
    read_by_id(connection, SELECT_USERS, ids, user).await
}

/// Reads the role of a row, stored as its rank.
pub(crate) fn role(row: &Row) -> Result<Role> {
    role_at(row, "role")
}

/// Reads the role in a column that may be null.
pub(crate) fn role_if(row: &Row, column: &str) -> Result<Option<Role>> {
    row.number_if(column)?.map(|_| role_at(row, column)).transpose()
}

/// Reads the role in a column.
pub(crate) fn role_at(row: &Row, column: &str) -> Result<Role> {
    row.named(column, |place| Role::ALL.get(usize::try_from(place).ok()?).copied())
}

fn user(row: &Row) -> Result<User> {
    Ok(User {
        id: row.id("id")?,
        username: row.text("username")?,
        email: row.text("email")?,
        role: role(row)?,
        organization: row.id("organization_id")?,
        lineage: row.lineage("lineage")?,
        organization_name: row.text("organization")?,
        tos_hash: row.text_if("tos_hash")?,
        first_name: row.text("first_name")?,
        last_name: row.text("last_name")?,
        company: row.text("company")?,
        job_title: row.text_if("job_title")?,
        language: row.text_if("language")?,
        preferences: row.json_if("preferences")?,
        disabled: row.truth("disabled")?,
        verified: row.truth("verified")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        last_active: row.time_if("last_active")?,
    })
}
