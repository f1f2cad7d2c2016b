//! Stores views of the device list: each user sees only the user's own.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::{UserId, ViewId};
use isobar_model::time::Timestamp;
use isobar_model::view::{View, ViewInput};

use super::users::hold_user;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

/// Name of a view in errors about a missing one.
const VIEW_WORD: &str = "view";
const VIEW_COLUMNS: &str = "SELECT id, name, organization_id, query, created_at, updated_at FROM user_views";

impl Registry {
    /// Lists the views of the permit's user, by name.
    pub async fn view_list(&self, permit: &CanRead<UserId>) -> Result<Vec<View>> {
        let query = Sql::new(VIEW_COLUMNS).text(" WHERE user_id = ? ORDER BY name").bind(*permit.target());
        all(&self.db.read, query).await?.iter().map(view).collect()
    }

    /// Fetches one of the user's views.
    pub async fn view_fetch(&self, permit: &CanRead<UserId>, id: ViewId) -> Result<Option<View>> {
        own(&self.db.read, *permit.target(), id).await
    }

    /// Creates a view of the user; returns `None` if the user has `most` already.
    ///
    /// # Errors
    /// [`StoreError::Taken`] where another of the user's views has the name; [`StoreError::Gone`] where the user or the
    /// organization is gone.
    pub async fn view_create(
        &self,
        permit: &CanWrite<UserId>,
        id: ViewId,
        input: ViewInput,
        most: usize,
        now: Timestamp,
    ) -> Result<Option<View>> {
        let (tx, user) = (self.db.begin().await?, *permit.target());
        let others = names(&tx, user).await?;
        if others.len() >= most {
            return Ok(None);
        }
        let made = input.into_view(id, now);
        is_free(&others, &made)?;
        let insert = Sql::new(
            "INSERT INTO user_views (id, user_id, name, organization_id, query, created_at, updated_at) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(made.id)
        .bind(user)
        .bind(made.name.as_str())
        .bind(made.organization)
        .bind(made.query.as_str())
        .bind(made.created_at)
        .bind(made.updated_at);
        run(&tx, insert).await.map_err(|error| error.of("organization"))?;
        tx.commit().await?;
        Ok(Some(made))
    }

    /// Changes one of the user's views. The last write wins.
    ///
    /// # Errors
    /// Fails like [`Registry::view_create`]; [`StoreError::Gone`] where the view is gone.
    pub async fn view_update(
        &self,
        permit: &CanWrite<UserId>,
        id: ViewId,
        input: ViewInput,
        now: Timestamp,
    ) -> Result<View> {
        let (tx, user) = (self.db.begin().await?, *permit.target());
        let others = names(&tx, user).await?;
        let present = own(&tx, user, id).await?.ok_or(StoreError::Gone(VIEW_WORD))?;
        let changed = input.over(present, now);
        is_free(&others, &changed)?;
        let update =
            Sql::new("UPDATE user_views SET name = ?, organization_id = ?, query = ?, updated_at = ? WHERE id = ?")
                .bind(changed.name.as_str())
                .bind(changed.organization)
                .bind(changed.query.as_str())
                .bind(changed.updated_at)
                .bind(id);
        run(&tx, update).await.map_err(|error| error.of("organization"))?;
        tx.commit().await?;
        Ok(changed)
    }

    /// Removes one of the user's views; returns false if there is no such view.
    pub async fn view_delete(&self, permit: &CanWrite<UserId>, id: ViewId) -> Result<bool> {
        let delete = Sql::new("DELETE FROM user_views WHERE id = ? AND user_id = ?").bind(id).bind(*permit.target());
        Ok(self.db.write.run(delete).await? > 0)
    }
}

/// Locks a user and returns the names of its views. The lock keeps two views from taking the same name or the same last
/// place.
async fn names(tx: &impl Connection, user: UserId) -> Result<Vec<(ViewId, String)>> {
    hold_user(tx, user).await?;
    let query = Sql::new("SELECT id, name FROM user_views WHERE user_id = ?").bind(user);
    all(tx, query).await?.iter().map(|row| Ok((row.id("id")?, row.text("name")?))).collect()
}

/// Refuses a view whose name another one has.
fn is_free(others: &[(ViewId, String)], view: &View) -> Result<()> {
    let is_taken = others.iter().any(|(id, name)| *id != view.id && *name == view.name);
    if is_taken { Err(StoreError::Taken { fields: vec!["name"] }) } else { Ok(()) }
}

async fn own(connection: &impl Connection, user: UserId, id: ViewId) -> Result<Option<View>> {
    let query = Sql::new(VIEW_COLUMNS).text(" WHERE id = ? AND user_id = ?").bind(id).bind(user);
    one(connection, query).await?.as_ref().map(view).transpose()
}

fn view(row: &Row) -> Result<View> {
    Ok(View {
        id: row.id("id")?,
        name: row.text("name")?,
        organization: row.id_if("organization_id")?,
        query: row.text("query")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
