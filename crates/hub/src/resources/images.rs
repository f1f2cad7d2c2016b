//! Images of organizations, projects, users and devices.

use isobar_model::access::{Action, Caller, CanRead, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::secret::Digest;
use isobar_store::registry::{NewImage, Pictured, Png};

use crate::Hub;
use crate::error::Told as _;
use crate::resources::data::as_user;

const IMAGE: &str = "image";

/// What a caller can name that has an image.
pub trait HasImage: OwnsImage {
    /// What it is called.
    const NOUN: &'static str;
}

impl<T: OwnsImage> HasImage for T {
    const NOUN: &'static str = <T::Target as Pictured>::NOUN;
}

use private::OwnsImage;

mod private {
    use super::*;

    /// How the passes to an image are come by: those of its owner.
    pub trait OwnsImage: Copy + Send + Sync + 'static {
        type Target: Pictured + Clone + Send + Sync;
        fn change(self, hub: &Hub, caller: &Caller) -> impl Future<Output = Result<CanWrite<Self::Target>>> + Send;
        fn see(self, hub: &Hub, caller: &Caller) -> impl Future<Output = Result<CanRead<Self::Target>>> + Send;
    }
}

impl OwnsImage for OrganizationId {
    type Target = OrganizationId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<OrganizationId>> {
        hub.organization_write(caller, self, Action::OrganizationUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<OrganizationId>> {
        Ok(hub.organization_write(caller, self, Action::OrganizationRead).await?.reading())
    }
}

impl OwnsImage for ProjectId {
    type Target = ProjectId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<ProjectId>> {
        hub.project_write(caller, self, Action::ProjectUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<ProjectId>> {
        hub.project_read(caller, self).await
    }
}

impl OwnsImage for UserId {
    type Target = UserId;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<UserId>> {
        hub.user_write(caller, self, Action::UserUpdate).await
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<UserId>> {
        Ok(hub.user_write(caller, self, Action::UserRead).await?.reading())
    }
}

impl OwnsImage for DeviceId {
    type Target = DeviceRef;

    async fn change(self, hub: &Hub, caller: &Caller) -> Result<CanWrite<DeviceRef>> {
        Ok(hub.device_write(&as_user(caller), self, Action::DeviceUpdate).await?.0)
    }

    async fn see(self, hub: &Hub, caller: &Caller) -> Result<CanRead<DeviceRef>> {
        Ok(hub.device_read(&as_user(caller), self).await?.0)
    }
}

impl Hub {
    /// Whether the caller may change the image of something: 404 before 403.
    pub async fn allow_image<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<()> {
        owner.change(self, caller).await.map(|_| ())
    }

    /// Keeps an image as it was posted, and the picture in it as PNG.
    pub async fn image_set<T: HasImage>(&self, caller: &Caller, owner: T, posted: String) -> Result<()> {
        let pass = owner.change(self, caller).await?;
        let (posted, png) = self.0.pictures.read(caller, posted).await?;
        let image = NewImage { posted, png };
        self.0.registry.image_set(&pass, image, self.0.clock.now()).await.told()
    }

    /// The text that an image was posted as.
    pub async fn image_posted<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<String> {
        let pass = owner.see(self, caller).await?;
        self.0.registry.image_posted(&pass).await.told()?.ok_or(Error::Missing(IMAGE))
    }

    /// The digest of an image's picture.
    pub async fn image_digest<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<Digest> {
        let pass = owner.see(self, caller).await?;
        self.0.registry.image_digest(&pass).await.told()?.ok_or(Error::Missing(IMAGE))
    }

    /// An image's picture.
    pub async fn image_png<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<Png> {
        let pass = owner.see(self, caller).await?;
        self.0.registry.image_png(&pass).await.told()?.ok_or(Error::Missing(IMAGE))
    }

    /// Removes an image.
    pub async fn image_delete<T: HasImage>(&self, caller: &Caller, owner: T) -> Result<()> {
        // The thing comes before the role.
        self.image_digest(caller, owner).await?;
        let pass = owner.change(self, caller).await?;
        match self.0.registry.image_delete(&pass).await.told()? {
            true => Ok(()),
            false => Err(Error::Missing(IMAGE)),
        }
    }
}
