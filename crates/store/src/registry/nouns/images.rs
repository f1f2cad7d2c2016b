//! Stores images of organizations, projects, users and devices: one each, removed with its owner.

use isobar_model::access::{CanRead, CanWrite};
use isobar_model::ids::{DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Sql, one};

/// Owner of an image.
pub trait Pictured {
    /// Column that names the owner.
    const COLUMN: &'static str;
    /// Noun for the owner in errors.
    const NOUN: &'static str;
    /// Returns the owner's identifier as text.
    fn id_text(&self) -> String;
}

impl Pictured for OrganizationId {
    const COLUMN: &'static str = "organization_id";
    const NOUN: &'static str = "organization";

    fn id_text(&self) -> String {
        self.to_string()
    }
}

impl Pictured for ProjectId {
    const COLUMN: &'static str = "project_id";
    const NOUN: &'static str = "project";

    fn id_text(&self) -> String {
        self.to_string()
    }
}

impl Pictured for UserId {
    const COLUMN: &'static str = "user_id";
    const NOUN: &'static str = "user";

    fn id_text(&self) -> String {
        self.to_string()
    }
}

impl Pictured for DeviceRef {
    const COLUMN: &'static str = "device_id";
    const NOUN: &'static str = "device";

    fn id_text(&self) -> String {
        self.id.to_string()
    }
}

/// Image to be stored.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Text of the upload.
    pub posted: String,
    /// Picture as PNG.
    pub png: Vec<u8>,
}

/// Picture as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Png {
    /// Bytes of the picture.
    pub bytes: Vec<u8>,
    /// Digest of the bytes.
    pub digest: Digest,
}

impl Registry {
    /// Stores an image in place of the previous one.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where its owner is gone.
    pub async fn image_set<T: Pictured>(&self, permit: &CanWrite<T>, image: NewImage, now: Timestamp) -> Result<()> {
        let upsert = format!(
            "INSERT INTO images ({owner}, posted, digest, png, updated_at) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT ({owner}) DO UPDATE SET posted = excluded.posted, png = excluded.png, \
             digest = excluded.digest, updated_at = excluded.updated_at",
            owner = T::COLUMN
        );
        let upsert = Sql::new(upsert)
            .bind(permit.target().id_text())
            .bind(image.posted)
            .bind(Digest::of(&image.png))
            .bind(image.png)
            .bind(now);
        self.db.write.run(upsert).await.map(|_| ()).map_err(|error| error.of(T::NOUN))
    }

    /// Returns the text that an image was uploaded as.
    pub async fn image_posted<T: Pictured>(&self, permit: &CanRead<T>) -> Result<Option<String>> {
        let row = one(&self.db.read, of("posted", permit.target())).await?;
        row.map(|row| row.text("posted")).transpose()
    }

    /// Returns the digest of an image's picture, which tells if it has changed.
    pub async fn image_digest<T: Pictured>(&self, permit: &CanRead<T>) -> Result<Option<Digest>> {
        match one(&self.db.read, of("digest", permit.target())).await? {
            Some(row) => row.digest_if("digest"),
            None => Ok(None),
        }
    }

    /// Returns an image's picture.
    pub async fn image_png<T: Pictured>(&self, permit: &CanRead<T>) -> Result<Option<Png>> {
        let Some(row) = one(&self.db.read, of("digest, png", permit.target())).await? else { return Ok(None) };
        let digest =
            row.digest_if("digest")?.ok_or_else(|| StoreError::Damaged("an image has no digest".to_owned()))?;
        Ok(Some(Png { bytes: row.bytes("png")?, digest }))
    }

    /// Removes an image. Returns false if there was none.
    pub async fn image_delete<T: Pictured>(&self, permit: &CanWrite<T>) -> Result<bool> {
        let delete = Sql::new(format!("DELETE FROM images WHERE {} = ?", T::COLUMN)).bind(permit.target().id_text());
        Ok(self.db.write.run(delete).await? > 0)
    }
}

/// Selects columns of an owner's image.
fn of<T: Pictured>(columns: &str, owner: &T) -> Sql {
    Sql::new(format!("SELECT {columns} FROM images WHERE {} = ?", T::COLUMN)).bind(owner.id_text())
}
