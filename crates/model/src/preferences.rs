//! Notification preferences of users (specification: User; contract: Resources).

use crate::check::{Input, Patch};
use crate::json::{Json, RawJson};
use crate::notification::NotificationKind;

/// Channels for notifications of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// The application.
    pub inapp: bool,
    /// The user's e-mail address.
    pub email: bool,
}

impl Default for Channels {
    /// Returns the channels of users without preferences (contract: Resources).
    fn default() -> Self {
        Self { inapp: true, email: false }
    }
}

/// A user's preferences: channels for each kind of notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `accountNotifications`.
    pub account: Channels,
    /// `systemNotification`.
    pub system: Channels,
    /// `deviceNotification`.
    pub device: Channels,
}

/// Name of the member that holds everything.
const NOTIFICATIONS: &str = "notifications";

/// Name of each kind's member, in the order of the JSON.
const MEMBERS: [(&str, NotificationKind); 3] = [
    ("accountNotifications", NotificationKind::Account),
    ("systemNotification", NotificationKind::System),
    ("deviceNotification", NotificationKind::Device),
];

impl Preferences {
    /// Reads stored preferences; missing ones take their defaults.
    pub fn of(kept: Option<&RawJson>) -> Self {
        let mut read = Self::default();
        let Some(kept) = kept else { return read };
        let tree = kept.tree();
        for (name, kind) in MEMBERS {
            let truth = |channel: &str| tree.at([NOTIFICATIONS, name, channel]).and_then(Json::as_bool);
            let into = read.channels_mut(kind);
            into.inapp = truth("inapp").unwrap_or(into.inapp);
            into.email = truth("email").unwrap_or(into.email);
        }
        read
    }

    /// Returns the JSON of the API, which is also stored.
    pub fn json(&self) -> RawJson {
        let members = MEMBERS.map(|(name, kind)| {
            let Channels { inapp, email } = self.channels(kind);
            format!(r#""{name}":{{"inapp":{inapp},"email":{email}}}"#)
        });
        RawJson::trusted(format!(r#"{{"{NOTIFICATIONS}":{{{}}}}}"#, members.join(",")).into())
    }

    /// Returns the channels of a kind, as they were set.
    pub fn channels(&self, kind: NotificationKind) -> Channels {
        match kind {
            NotificationKind::Account => self.account,
            NotificationKind::System => self.system,
            NotificationKind::Device => self.device,
        }
    }

    /// Returns true if notifications of that kind appear in the application. Those of the system always do (contract:
    /// Resources).
    pub fn in_app(&self, kind: NotificationKind) -> bool {
        kind == NotificationKind::System || self.channels(kind).inapp
    }

    fn channels_mut(&mut self, kind: NotificationKind) -> &mut Channels {
        match kind {
            NotificationKind::Account => &mut self.account,
            NotificationKind::System => &mut self.system,
            NotificationKind::Device => &mut self.device,
        }
    }
}

/// A change of preferences; members that are left out keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreferencesInput(Vec<(NotificationKind, Option<bool>, Option<bool>)>);

impl PreferencesInput {
    /// Reads and checks the members of `preferences`: `input.nested("preferences", PreferencesInput::read)`.
    pub fn read(input: &mut Input<'_>) -> Self {
        let read = input.nested(NOTIFICATIONS, |notifications| {
            let mut changes = Vec::new();
            for (name, kind) in MEMBERS {
                let channels = |input: &mut Input<'_>| (kind, input.boolean("inapp"), input.boolean("email"));
                match notifications.nested(name, channels) {
                    Patch::Set(change) => changes.push(change),
                    Patch::Clear => notifications.fault(name, "must not be null"),
                    Patch::Keep => {}
                }
            }
            Self(changes)
        });
        match read {
            Patch::Set(changes) => changes,
            Patch::Clear => {
                input.fault(NOTIFICATIONS, "must not be null");
                Self::default()
            }
            Patch::Keep => Self::default(),
        }
    }

    /// Returns the preferences after the change.
    pub fn over(&self, mut present: Preferences) -> Preferences {
        for (kind, inapp, email) in &self.0 {
            let channels = present.channels_mut(*kind);
            channels.inapp = inapp.unwrap_or(channels.inapp);
            channels.email = email.unwrap_or(channels.email);
        }
        present
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::json::parse;

    fn read(text: &str) -> Result<PreferencesInput, Vec<String>> {
        let tree = parse(text).unwrap();
        let mut input = Input::body(&tree).unwrap();
        let read = PreferencesInput::read(&mut input);
        input.unless_any(read).map_err(|error| match error {
            Error::Invalid(faults) => faults.into_iter().map(|fault| fault.field).collect(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn default_channel_is_the_application_alone() {
        let none = Preferences::of(None);
        assert_eq!(none, Preferences::default());
        let text = r#"{"notifications":{"accountNotifications":{"inapp":true,"email":false},"systemNotification":{"inapp":true,"email":false},"deviceNotification":{"inapp":true,"email":false}}}"#;
        assert_eq!(none.json().text(), text);
        assert_eq!(Preferences::of(Some(&RawJson::trusted("{\"notifications\":[1]}".into()))), none);
    }

    #[test]
    fn preferences_change_keeps_omitted_members() {
        let change = read(r#"{"notifications": {"deviceNotification": {"email": true}, "other": 1}}"#).unwrap();
        let after = change.over(Preferences::default());
        assert_eq!(after.device, Channels { inapp: true, email: true });
        assert_eq!((after.account, after.system), (Channels::default(), Channels::default()));
        assert_eq!(Preferences::of(Some(&after.json())), after);
        let change = read(r#"{"notifications": {"systemNotification": {"inapp": false}}}"#).unwrap();
        let after = change.over(after);
        assert_eq!((after.system.inapp, after.device.email), (false, true));
        assert!(after.in_app(NotificationKind::System), "the system's word always appears");
        assert_eq!(read("{}").unwrap().over(after), after);
    }

    // Holds: user.preferences
    #[test]
    fn invalid_preferences_name_every_fault() {
        let text = r#"{"notifications": {"accountNotifications": {"inapp": "yes", "email": 1},
            "systemNotification": null, "deviceNotification": []}}"#;
        let faults = [
            "notifications.accountNotifications.inapp",
            "notifications.accountNotifications.email",
            "notifications.systemNotification",
            "notifications.deviceNotification",
        ];
        let mut found = read(text).unwrap_err();
        found.sort_unstable();
        let mut expected = faults.map(str::to_owned).to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(read(r#"{"notifications": null}"#).unwrap_err(), ["notifications"]);
        assert_eq!(read(r#"{"notifications": true}"#).unwrap_err(), ["notifications"]);
    }
}
