//! Stores links of dashboards, only by digests of their secrets.

use isobar_model::access::CanWrite;
use isobar_model::board_link::BoardLink;
use isobar_model::ids::{BoardLinkId, DashboardId, OrganizationId};
use isobar_model::secret::Digest;

use super::boards::hold_own_board;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Row, Sql, all, one, run, thirty_two};

const LINK: &str =
    "SELECT id, dashboard_id, organization_id, user_id, name, created_at, expires_at, digest FROM dashboard_links";

impl Registry {
    /// Stores a new link of one of an organization's own dashboards; returns false if the dashboard has `most` links
    /// already. Links of the dashboard that have expired are removed.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization, the dashboard or the user who creates the link is gone.
    pub async fn board_link_create(
        &self,
        permit: &CanWrite<OrganizationId>,
        link: &BoardLink,
        digest: &Digest,
        most: u64,
    ) -> Result<bool> {
        let (tx, dialect) = (self.db.begin().await?, self.db.dialect);
        // The lock on the organization keeps two links from taking the same last place.
        hold_own_board(&tx, *permit.target(), link.board, dialect.hold_for_change()).await?;
        let maker = Sql::new("SELECT id FROM users WHERE id = ?").bind(link.maker).text(dialect.hold_in_place());
        one(&tx, maker).await?.ok_or(StoreError::Gone("user"))?;
        let ended = Sql::new("DELETE FROM dashboard_links WHERE dashboard_id = ? AND expires_at <= ?");
        run(&tx, ended.bind(link.board).bind(link.created_at)).await?;
        let count = Sql::new("SELECT count(*) AS links FROM dashboard_links WHERE dashboard_id = ?").bind(link.board);
        if one(&tx, count).await?.map_or(Ok(0), |row| row.count("links"))? >= most {
            return Ok(false);
        }
        let insert = Sql::new(
            "INSERT INTO dashboard_links (id, dashboard_id, organization_id, user_id, name, digest, created_at, \
             expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(link.id)
        .bind(link.board)
        .bind(*permit.target())
        .bind(link.maker)
        .bind(link.name.as_str())
        .bind(*digest)
        .bind(link.created_at)
        .bind(link.expires_at);
        run(&tx, insert).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Lists the links of one of an organization's own dashboards, oldest first, including expired ones.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the organization has no such dashboard of its own.
    pub async fn board_link_list(
        &self,
        permit: &CanWrite<OrganizationId>,
        board: DashboardId,
    ) -> Result<Vec<BoardLink>> {
        let tx = self.db.snapshot().await?;
        hold_own_board(&tx, *permit.target(), board, "").await?;
        let query = Sql::new(LINK).text(" WHERE dashboard_id = ? ORDER BY id").bind(board);
        all(&tx, query).await?.iter().map(link).collect()
    }

    /// Deletes a link of one of an organization's own dashboards; returns false if there is no such link.
    pub async fn board_link_delete(
        &self,
        permit: &CanWrite<OrganizationId>,
        board: DashboardId,
        id: BoardLinkId,
    ) -> Result<bool> {
        let delete = Sql::new("DELETE FROM dashboard_links WHERE id = ? AND dashboard_id = ? AND organization_id = ?");
        Ok(self.db.write.run(delete.bind(id).bind(board).bind(*permit.target())).await? > 0)
    }

    /// Fetches a link and the digest of its secret, even if it has expired. It needs no permit: the secret
    /// authenticates its bearer.
    pub async fn board_link_by_id(&self, id: BoardLinkId) -> Result<Option<(BoardLink, Digest)>> {
        let row = one(&self.db.read, Sql::new(LINK).text(" WHERE id = ?").bind(id)).await?;
        row.map(|row| Ok((link(&row)?, Digest(thirty_two("digest", row.bytes("digest")?)?)))).transpose()
    }
}

fn link(row: &Row) -> Result<BoardLink> {
    Ok(BoardLink {
        id: row.id("id")?,
        board: row.id("dashboard_id")?,
        organization: row.id("organization_id")?,
        maker: row.id("user_id")?,
        name: row.text("name")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
    })
}
