//! Lists, reads and marks the notifications of users.

use isobar_model::access::{self, Action, Caller};
use isobar_model::error::{Error, Result};
use isobar_model::ids::NotificationId;
use isobar_model::notification::{Audience, Notice, Notification, NotificationKind};
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_store::registry::NotificationMark;

use crate::Hub;

impl Hub {
    /// Notifies every user.
    ///
    /// Needs `SystemNotificationEmit`. The notice is durable when this returns; e-mails follow.
    pub async fn system_notification_emit(&self, caller: &Caller, message: String) -> Result<()> {
        self.0.identity.allow(caller, Action::SystemNotificationEmit).await?;
        let (id, kind) = (NotificationId(self.0.env.new_id().0), NotificationKind::System);
        // Never earlier than the notice before, whatever the clock says.
        let at = id.minted_at();
        self.0
            .delivery
            .notify(Notice { id, kind, to: Audience::Everybody, message, device: None, alarm: None, at })
            .await
    }

    /// Lists the caller's notifications, newest first.
    ///
    /// Each user lists its own. Waits for its turn among the lists.
    ///
    /// # Errors
    /// `Busy`: too many lists wait. `Invalid`: the texts of the page are too large together.
    pub async fn notification_list(
        &self,
        caller: &Caller,
        page: PageRequest,
        unread: bool,
    ) -> Result<Page<Notification>> {
        let (hub, permit) = (self.clone(), access::own(caller));
        let read = async move { Ok(hub.registry().notification_list(&permit, page, unread).await?) };
        self.0.listing_jobs.drive_for(caller, "notification_list", read).await
    }

    /// Fetches one of the caller's notifications; those of other users are reported as missing.
    ///
    /// Each user reads its own.
    ///
    /// # Errors
    /// `Missing`: the caller has no such notification.
    pub async fn notification_fetch(&self, caller: &Caller, id: NotificationId) -> Result<Notification> {
        let found = self.registry().notification_fetch(&access::own(caller), id).await?;
        found.ok_or(Error::Missing("notification"))
    }

    /// Marks one of the caller's notifications as read or unread.
    ///
    /// Each user marks its own. Durable when this returns.
    ///
    /// # Errors
    /// `Missing`: the caller has no such notification.
    pub async fn notification_update(&self, caller: &Caller, id: NotificationId, read: bool) -> Result<()> {
        let found = self.registry().notification_update(&access::own(caller), id, read).await?;
        if found { Ok(()) } else { Err(Error::Missing("notification")) }
    }

    /// Marks or deletes the caller's notifications within a time range. Notifications that arrive later are not
    /// affected, even if the range includes the future.
    ///
    /// Each user marks its own. Durable when this returns.
    pub async fn notifications_mark(&self, caller: &Caller, range: TimeRange, mark: NotificationMark) -> Result<()> {
        Ok(self.registry().notifications_mark(&access::own(caller), range, mark).await?)
    }
}
