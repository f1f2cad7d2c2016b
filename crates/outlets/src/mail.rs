//! E-mail: over SMTP if the operator has set a server, otherwise as files in the data folder (contract:
//! Authentication).

mod files;
mod smtp;

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use isobar_model::quote::{quote, with_causes};
use isobar_model::secret::Digest;
use isobar_model::time::Clock;
use lettre::message::{Mailbox, MultiPart};
use lettre::{Address, Message};

/// Longest identifier that is used as a file name unchanged, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// One e-mail to one recipient.
#[derive(Clone)]
pub struct Mail {
    /// The recipient's address.
    pub to: String,
    /// Its subject, one line.
    pub subject: String,
    /// Its text, for readers without HTML.
    pub text: String,
    /// Its text as HTML.
    pub html: String,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The text may hold a link that is a credential.
        f.debug_struct("Mail").field("to", &self.to).field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The reason why an e-mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// A setting of the operator is invalid.
    #[error("{0}")]
    Setting(String),
    /// The e-mail can never be sent: a retry cannot succeed.
    #[error("the e-mail cannot be sent: {0}")]
    Never(String),
    /// Sending failed this time: a retry may succeed.
    #[error("the e-mail was not sent: {0}")]
    NotNow(String),
}

impl MailError {
    /// Makes the error of a try. A server's answer is quoted.
    fn not_now(cause: impl std::error::Error + 'static) -> Self {
        Self::NotNow(quote(&with_causes(&cause)))
    }
}

/// The result of making a mailer or sending an e-mail.
pub type Result<T> = std::result::Result<T, MailError>;

/// Sends e-mails from one sender address.
#[derive(Debug)]
pub struct Mailer {
    from: Mailbox,
    clock: Clock,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Smtp(smtp::Transport),
    /// Writes e-mails as files into this folder.
    Files(PathBuf),
}

impl Mailer {
    /// Makes a mailer for the SMTP server that the URL names: `smtps://` for TLS from the start, `smtp://` for
    /// STARTTLS; `?tls=none`, `opportunistic` or `required` overrides that.
    pub fn smtp(url: &str, from: &str, clock: Clock) -> Result<Self> {
        Ok(Self { from: sender(from)?, clock, way: Way::Smtp(smtp::transport(url)?) })
    }

    /// Makes a mailer that writes each e-mail as a file into a folder, which is created with the first one.
    pub fn files(folder: &Path, from: &str, clock: Clock) -> Result<Self> {
        Ok(Self { from: sender(from)?, clock, way: Way::Files(folder.to_owned()) })
    }

    /// Returns true if e-mails reach their recipients, false if they only become files.
    pub fn reaches_people(&self) -> bool {
        matches!(self.way, Way::Smtp(_))
    }

    /// Sends an e-mail. `Ok` means that the server has accepted it, or that the file is durable. `id` identifies the
    /// e-mail: sent twice, it has the same `Message-ID`, or overwrites the same file.
    pub async fn send(&self, id: &str, mail: &Mail) -> Result<()> {
        let message = self.message(&name_of(id), mail)?;
        let by = match &self.way {
            Way::Smtp(transport) => smtp::send(transport, message).await.map(|()| "SMTP")?,
            Way::Files(folder) => files::write(folder, &name_of(id), message.formatted()).await.map(|()| "file")?,
        };
        tracing::info!(to = %mail.to, subject = %mail.subject, by, "e-mail sent");
        Ok(())
    }

    fn message(&self, name: &str, mail: &Mail) -> Result<Message> {
        let address: Address = mail.to.parse().map_err(|error| MailError::Never(format!("{}: {error}", mail.to)))?;
        let since = u64::try_from(self.clock.now().millis()).unwrap_or_default();
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, address))
            .subject(&mail.subject)
            .date(UNIX_EPOCH + Duration::from_millis(since))
            .message_id(Some(format!("<{name}@{}>", self.from.email.domain())))
            .multipart(MultiPart::alternative_plain_html(mail.text.clone(), mail.html.clone()))
            .map_err(|error| MailError::Never(error.to_string()))
    }
}

/// Parses a sender address: `NAME <ADDRESS>` or the address alone.
pub fn sender(text: &str) -> Result<Mailbox> {
    text.parse().map_err(|_| MailError::Setting("must hold an e-mail address".to_owned()))
}

/// Checks the URL of an SMTP server.
pub fn check_server(url: &str) -> Result<()> {
    smtp::builder(url).map(|_| ())
}

/// Makes an identifier safe for a header and a file name: anything but letters, digits, `-` and `_` makes it a digest.
fn name_of(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !id.is_empty() && id.len() <= NAME_BYTES_MAX && id.chars().all(plain) {
        return id.to_owned();
    }
    Digest::of(id.as_bytes()).0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use isobar_model::time::Timestamp;

    use super::*;

    fn mail(to: &str) -> Mail {
        Mail {
            to: to.to_owned(),
            subject: "Grüße".to_owned(),
            text: "Follow https://iot.example/?a=b".to_owned(),
            html: "<p>Follow</p>".to_owned(),
        }
    }

    fn clock() -> Clock {
        Clock::manual(Timestamp::from_millis(1_800_000_000_000))
    }

    // Holds: c3.mail
    #[tokio::test]
    async fn email_sent_twice_is_one_file() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("mail");
        let mailer = Mailer::files(&folder, "Isobar <isobar@localhost>", clock()).unwrap();
        for _ in 0..2 {
            mailer.send("first", &mail("ana@example.com")).await.unwrap();
        }
        mailer.send("../../second", &mail("ana@example.com")).await.unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(names[1], "first.eml");
        let text = std::fs::read_to_string(folder.join("first.eml")).unwrap();
        for line in ["To: ana@example.com", "Message-ID: <first@localhost>", "Date: Fri, 15 Jan 2027 08:00:00 +0000"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn invalid_address_is_never_sent() {
        let place = tempfile::tempdir().unwrap();
        let mailer = Mailer::files(place.path(), "isobar@localhost", clock()).unwrap();
        for to in ["", "nobody", "a@b\r\nBcc: eve@example.com", "a b@example.com"] {
            assert!(matches!(mailer.send("x", &mail(to)).await, Err(MailError::Never(_))), "{to:?}");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn subject_with_line_breaks_adds_no_header() {
        let place = tempfile::tempdir().unwrap();
        let mailer = Mailer::files(place.path(), "isobar@localhost", clock()).unwrap();
        let message = mailer.message("x", &Mail { subject: "a\r\nBcc: eve@example.com".to_owned(), ..mail("a@b.org") });
        if let Ok(message) = message {
            let text = String::from_utf8(message.formatted()).unwrap();
            assert!(!text.lines().any(|line| line.starts_with("Bcc")), "{text}");
        }
    }

    #[test]
    fn invalid_server_setting_is_refused() {
        for bad in ["http://mail.example", "smtp://", "smtp://mail.example?tls=perhaps", "mail.example"] {
            assert!(matches!(check_server(bad), Err(MailError::Setting(_))), "{bad}");
        }
        for good in ["smtp://localhost:25", "smtps://ana:p%40ss@mail.example:465", "smtp://mail.example?tls=none"] {
            check_server(good).unwrap();
        }
        assert!(sender("nobody").is_err());
    }
}
