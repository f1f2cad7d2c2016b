//! Writes e-mails to people. A queued e-mail states its purpose and is rendered when it is sent, so that the secret of
//! a link is stored only as a digest.

use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::ids::UserId;
use isobar_model::notification::NotificationKind;
use isobar_model::secret::Secret;
use isobar_outlets::mail::{Mail, MailError};
use isobar_store::registry::{LetterKind, NewLetter, Purpose, QueuedDelivery};
use minijinja::{Environment, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};

use super::Delivery;
use super::mail_queue::Undelivered;

/// Lifetime of a verification link, in seconds: 7 days (contract: Authentication).
const VERIFY_SECONDS: i64 = 7 * 24 * 3600;
/// Lifetime of a reset link, in seconds: one hour (contract: Authentication).
const RESET_SECONDS: i64 = 3600;
/// Longest name in a subject, in characters.
const SUBJECT_NAME_MAX: usize = 80;

/// Text of the last e-mail of an hour, sent when a user has reached the limit.
const NO_MORE_NOTICES: &str = "There is more to tell you than is sent by e-mail within an hour. What else comes in this hour \
    stands in the application only, among your notifications.";

/// An e-mail to one person, called a letter in the registry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "letter", rename_all = "camelCase")]
pub(crate) enum Email {
    /// Asks a user to verify its e-mail address.
    Verification {
        /// The user whose address it is.
        user: UserId,
    },
    /// Lets a user set a new password.
    Reset {
        /// The user whose password it is.
        user: UserId,
    },
    /// Tells a user what happened to its account.
    AccountNotice {
        /// The text.
        message: String,
    },
    /// Tells a user the notice of a device's design.
    DeviceNotice {
        /// The device's name, if it is known.
        device: Option<String>,
        /// The text.
        message: String,
    },
    /// Tells a user a notice of the system.
    SystemNotice {
        /// The text.
        message: String,
    },
    /// Tells a user that further notices within the hour are shown in the application only.
    NoMoreNotices,
}

impl Email {
    /// Returns the e-mail for a notice; `device` is the name of the device concerned.
    pub(crate) fn of_notice(kind: NotificationKind, message: String, device: Option<String>) -> Self {
        match kind {
            NotificationKind::Device => Self::DeviceNotice { device, message },
            NotificationKind::System => Self::SystemNotice { message },
            NotificationKind::Account => Self::AccountNotice { message },
        }
    }
}

/// A queued e-mail.
#[derive(Serialize, Deserialize)]
struct QueuedEmail {
    to: String,
    #[serde(flatten)]
    email: Email,
}

/// Serializes a queued e-mail. Texts and identifiers always serialize.
fn waiting(to: &str, email: Email) -> String {
    serde_json::to_string(&QueuedEmail { to: to.to_owned(), email }).unwrap_or_default()
}

/// Holds the e-mail templates, compiled once.
pub(crate) struct Templates(Environment<'static>);

const TEMPLATES: &[(&str, &str)] = &[
    ("layout.html", include_str!("../../templates/layout.html")),
    ("layout.txt", include_str!("../../templates/layout.txt")),
    ("verification.html", include_str!("../../templates/verification.html")),
    ("verification.txt", include_str!("../../templates/verification.txt")),
    ("reset.html", include_str!("../../templates/reset.html")),
    ("reset.txt", include_str!("../../templates/reset.txt")),
    ("notice.html", include_str!("../../templates/notice.html")),
    ("notice.txt", include_str!("../../templates/notice.txt")),
];

impl Templates {
    pub(crate) fn new() -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        for (name, source) in TEMPLATES {
            environment.add_template(name, source).map_err(Error::internal)?;
        }
        Ok(Self(environment))
    }

    /// Renders an e-mail. Templates whose name ends in `.html` escape their values.
    fn write(&self, to: &str, subject: String, template: &str, told: minijinja::Value) -> Result<Mail> {
        let render = |form: &str| {
            let name = format!("{template}.{form}");
            let told = context! { subject => &subject, ..told.clone() };
            self.0.get_template(&name).and_then(|template| template.render(told)).map_err(Error::internal)
        };
        Ok(Mail { to: to.to_owned(), text: render("txt")?, html: render("html")?, subject })
    }
}

impl Delivery {
    /// Returns the letter that brings a user a link, to be stored in the transaction that causes it; then
    /// [`Delivery::wake_mail`] sends it. A letter with the same identifier is the same letter.
    pub(crate) fn link_letter(&self, id: String, user: UserId, to: &str, purpose: Purpose) -> NewLetter {
        let email = match purpose {
            Purpose::Verify => Email::Verification { user },
            Purpose::Reset => Email::Reset { user },
        };
        self.letter(id, user, waiting(to, email), LetterKind::Link)
    }

    /// Returns the letter that brings a user a notice, to be stored as [`Delivery::link_letter`] says.
    pub(crate) fn notice_letter(&self, id: String, user: UserId, to: &str, email: Email) -> NewLetter {
        let instead = waiting(to, Email::NoMoreNotices);
        self.letter(id, user, waiting(to, email), LetterKind::Notice { instead })
    }

    fn letter(&self, id: String, user: UserId, body: String, kind: LetterKind) -> NewLetter {
        NewLetter { user, id, body, kind, bounds: self.env.config().letters }
    }

    /// Renders an e-mail that is due, and hands it to the mailer.
    pub(super) async fn send_email(&self, delivery: &QueuedDelivery) -> std::result::Result<(), Undelivered> {
        let waiting: QueuedEmail = serde_json::from_str(&delivery.body)
            .map_err(|error| Undelivered::Never(format!("an e-mail cannot be read: {error}")))?;
        let mail = self.written(waiting).await.map_err(|error| match error {
            Error::Missing(what) => Undelivered::Never(format!("{what} is gone")),
            other => Undelivered::NotNow(other.to_string()),
        })?;
        self.mailer.send(&delivery.id, &mail).await.map_err(|error| match error {
            MailError::Never(_) => Undelivered::Never(error.to_string()),
            MailError::NotNow(why) | MailError::Setting(why) => Undelivered::NotNow(why),
        })
    }

    async fn written(&self, QueuedEmail { to, email }: QueuedEmail) -> Result<Mail> {
        let (templates, site) = (&self.templates, self.env.config().public_url.as_str());
        let notice =
            |subject: String, message: String| templates.write(&to, subject, "notice", context! { site, message });
        match email {
            Email::Verification { user } => {
                let nonce = self.new_nonce(user, Purpose::Verify, VERIFY_SECONDS).await?;
                let link = format!("{site}/v2/auth/verify/{}", nonce.reveal());
                templates.write(&to, "Verify your e-mail address".to_owned(), "verification", context! { site, link })
            }
            Email::Reset { user } => {
                let nonce = self.new_nonce(user, Purpose::Reset, RESET_SECONDS).await?;
                let link = format!("{site}/?resetToken={}", nonce.reveal());
                templates.write(&to, "Set a new password".to_owned(), "reset", context! { site, link })
            }
            Email::AccountNotice { message } => notice("About your account".to_owned(), message),
            Email::DeviceNotice { device: Some(device), message } => {
                notice(format!("Message from {}", in_one_line(&device)), message)
            }
            Email::DeviceNotice { device: None, message } => notice("Message from a device".to_owned(), message),
            Email::SystemNotice { message } => notice("Message from the system".to_owned(), message),
            Email::NoMoreNotices => notice("No more e-mails for now".to_owned(), NO_MORE_NOTICES.to_owned()),
        }
    }

    /// Makes a nonce for a link that is about to be sent; an earlier one for the same purpose ends.
    async fn new_nonce(&self, user: UserId, purpose: Purpose, seconds: i64) -> Result<Secret> {
        let nonce = Secret::new(self.env.chance());
        let permit = access::system(user, "an e-mail to the user carries a link");
        let expires_at = self.env.now().plus_seconds(seconds);
        self.env.registry().nonce_put(&permit, purpose, &nonce.digest(), expires_at).await?;
        Ok(nonce)
    }
}

/// Returns a name that fits into a subject: shortened, without control characters.
fn in_one_line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SUBJECT_NAME_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_text_is_escaped_in_html() {
        let templates = Templates::new().unwrap();
        let told = context! { site => "https://iot.example", message => "<script>alert(1)</script> & more" };
        let mail = templates.write("ana@example.com", "A <b>".to_owned(), "notice", told).unwrap();
        assert!(mail.html.contains("&lt;script&gt;") && !mail.html.contains("<script"), "{}", mail.html);
        assert!(mail.html.contains("A &lt;b&gt;"), "{}", mail.html);
        assert!(mail.text.contains("<script>alert(1)</script> & more"), "{}", mail.text);
    }

    #[test]
    fn every_email_has_text_and_html() {
        let templates = Templates::new().unwrap();
        for template in ["verification", "reset"] {
            let told = context! { site => "https://iot.example", link => "https://iot.example/?a=b" };
            let mail = templates.write("ana@example.com", "Subject".to_owned(), template, told).unwrap();
            assert!(mail.text.contains("https://iot.example/?a=b"), "{}", mail.text);
            assert!(mail.html.contains(r#"href="https:&#x2f;&#x2f;iot.example&#x2f;?a=b""#), "{}", mail.html);
        }
        assert!(
            templates.write("x", "y".to_owned(), "reset", context! { site => "z" }).is_err(),
            "nothing is left out"
        );
    }

    #[test]
    fn queued_email_has_no_secret() {
        let email = Email::Reset { user: UserId(uuid::Uuid::nil()) };
        let waiting = QueuedEmail { to: "ana@example.com".to_owned(), email: email.clone() };
        let text = serde_json::to_string(&waiting).unwrap();
        let read: QueuedEmail = serde_json::from_str(&text).unwrap();
        assert_eq!((read.to.as_str(), read.email), ("ana@example.com", email));
        assert_eq!(text.matches(':').count(), 3, "{text}");
    }
}
