//! Notifies users of events on their own account (contract: Resources, accountNotification).

use std::net::IpAddr;

use isobar_model::error::Error;
use isobar_model::ids::{NotificationId, UserId};
use isobar_model::notification::NotificationKind;
use isobar_model::role::Role;

use super::Identity;
use super::rate_limit::counted;
use crate::delivery::notifications::{Audience, Notice};

/// Events on an account.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccountNotice {
    /// A sign-in from an address that the user had never signed in from.
    SignInFromNewAddress {
        /// The address.
        address: IpAddr,
    },
    /// A new password.
    PasswordChanged,
    /// A new role.
    RoleChanged {
        /// The new role.
        role: Role,
    },
}

impl AccountNotice {
    fn message(self) -> String {
        match self {
            Self::SignInFromNewAddress { address } => {
                format!(
                    "Your account was signed in to from a new address: {address}. If that was not you, set a new password."
                )
            }
            Self::PasswordChanged => {
                "The password of your account was changed. If you know nothing of it, ask for a new one.".to_owned()
            }
            Self::RoleChanged { role } => format!("The role of your account is now {}.", role.name()),
        }
    }
}

impl Identity {
    /// Notifies a user, in the application and by e-mail as it prefers. A notice that fails does not fail the call,
    /// because the event itself has happened.
    pub(crate) async fn account_notice(&self, user: UserId, what: AccountNotice) {
        let id = self.env.new_id();
        let notice = Notice {
            id: NotificationId(id.0),
            kind: NotificationKind::Account,
            to: Audience::User(user),
            message: what.message(),
            device: None,
            alarm: None,
            at: id.minted_at(),
        };
        if let Err(error) = self.delivery.notify(notice).await {
            tracing::warn!(%error, %user, ?what, "a user could not be told about its account");
        }
    }

    /// Records the site that a user has signed in from, and notifies it if the site is new. The first sign-in and other
    /// addresses of the same site cause no notice.
    pub(crate) async fn note_sign_in(&self, user: UserId, address: IpAddr) {
        let (address, site) = (address.to_canonical(), counted(address).to_string());
        match self.env.registry().sign_in_note(user, &site, self.env.now()).await.map_err(Error::from) {
            Ok(true) => self.account_notice(user, AccountNotice::SignInFromNewAddress { address }).await,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, %user, "where a user signed in from could not be noted"),
        }
    }
}
