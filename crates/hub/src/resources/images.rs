//! Stores and reads images of organizations, projects, users and devices.

use isobar_model::access::{Action, Caller, CanRead, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::secret::Digest;
use isobar_store::registry::{NewImage, Pictured, Png};

use crate::Hub;

const IMAGE: &str = "image";

/// An identifier of a resource with an image.
pub trait HasImage: OwnsImage {
    /// The name of the resource.
    const NOUN: &'static str;
}

impl<T: OwnsImage> HasImage for T {
    const NOUN: &'static str = <T::Target as Pictured>::NOUN;
}

use private::OwnsImage;

mod private {
    use super::*;

    /// Obtains the permits for an image, which are those of its owner.
    pub trait OwnsImage: Copy + Send + Sync + 'static {
        type Target: Pictured + Clone + Send + Sync;
        fn change(self, hub: &Hub, caller: &Caller) -> impl Future<Output = Result<CanWrite<Self::Target>>> + Send;
        fn see(self, hub: &Hub, caller: &Caller) -> impl Future<Output = Result<CanRead<Self::Target>>> + Send;
    }
}

impl OwnsImage for OrganizationId {
    type Target = OrganizationId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<OrganizationId>> {
        hub.0.identity.organization_write(caller, self, Action::OrganizationUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<OrganizationId>> {
        Ok(hub.0.identity.organization_write(caller, self, Action::OrganizationRead).await?.reading())
    }
}

impl OwnsImage for ProjectId {
    type Target = ProjectId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<ProjectId>> {
        hub.0.identity.project_write(caller, self, Action::ProjectUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<ProjectId>> {
        hub.0.identity.project_read(caller, self).await
    }
}

impl OwnsImage for UserId {
    type Target = UserId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<UserId>> {
        hub.0.identity.user_write(caller, self, Action::UserUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<UserId>> {
        Ok(hub.0.identity.user_write(caller, self, Action::UserRead).await?.reading())
    }
}

impl OwnsImage for DeviceId {
    type Target = DeviceRef;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<DeviceRef>> {
        Ok(hub.0.identity.user_device_write(caller, self, Action::DeviceUpdate).await?.0)
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<DeviceRef>> {
        Ok(hub.0.identity.user_device_read(caller, self).await?.0)
    }
}

impl Hub {
    /// Checks that the caller may change the image of a resource.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_image<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<()> {
        owner.change(self, caller).await.map(|_| ())
    }

    /// Stores an image as it was posted, and its picture as PNG.
    ///
    /// Needs the permit to update the owner. Durable when this returns. The image is decoded on a thread that may
    /// block, in a slot of its tenant.
    ///
    /// # Errors
    /// `Invalid`: it is not an image of a supported kind. `Busy`: too many images wait to be decoded.
    pub async fn image_set<T: HasImage>(&self, caller: &Caller, owner: T, posted: String) -> Result<()> {
        let permit = owner.change(self, caller).await?;
        let (posted, png) = self.0.pictures.read(caller, posted).await?;
        let image = NewImage { posted, png };
        Ok(self.registry().image_set(&permit, image, self.now()).await?)
    }

    /// Returns the text that an image was posted as.
    ///
    /// Needs the permit to read the owner.
    ///
    /// # Errors
    /// `Missing`: there is none.
    pub async fn image_posted<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<String> {
        let permit = owner.see(self, caller).await?;
        self.registry().image_posted(&permit).await?.ok_or(Error::Missing(IMAGE))
    }

    /// Returns the digest of an image's picture.
    ///
    /// Needs the permit to read the owner.
    ///
    /// # Errors
    /// `Missing`: there is none.
    pub async fn image_digest<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<Digest> {
        let permit = owner.see(self, caller).await?;
        self.registry().image_digest(&permit).await?.ok_or(Error::Missing(IMAGE))
    }

    /// Returns an image's picture.
    ///
    /// Needs the permit to read the owner.
    ///
    /// # Errors
    /// `Missing`: there is none.
    pub async fn image_png<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<Png> {
        let permit = owner.see(self, caller).await?;
        self.registry().image_png(&permit).await?.ok_or(Error::Missing(IMAGE))
    }

    /// Removes an image.
    ///
    /// Needs the permit to update the owner. Durable when this returns.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn image_delete<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<()> {
        // Existence is checked before the role.
        self.image_digest(caller, owner).await?;
        let permit = owner.change(self, caller).await?;
        match self.registry().image_delete(&permit).await? {
            true => Ok(()),
            false => Err(Error::Missing(IMAGE)),
        }
    }
}
