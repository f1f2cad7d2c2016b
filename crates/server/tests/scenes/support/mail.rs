//! E-mails as they arrive: read from the folder of files, or by an SMTP server of the test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_power::{becomes, settled};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::RwLock;

use super::TestApp;

/// `isobar` with the password `p@ss`, as PLAIN says it (RFC 4616).
const RIGHT_LOGIN: &str = "AGlzb2JhcgBwQHNz";

/// An e-mail that arrived.
#[derive(Clone, Debug)]
pub struct Email {
    pub subject: String,
    /// Its plain text.
    pub text: String,
}

impl Email {
    /// Reads a message: headers, then a plain part in quoted-printable or as it is.
    pub fn read(message: &str) -> Self {
        let subject = message.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or_default().to_owned();
        let plain = message.split("Content-Type: text/plain").nth(1).unwrap_or_default();
        let (headers, body) = plain.split_once("\r\n\r\n").unwrap_or_default();
        let body = body.split("\r\n--").next().unwrap_or_default();
        let text = if headers.contains("quoted-printable") {
            body.replace("=\r\n", "").replace("=3D", "=")
        } else {
            body.to_owned()
        };
        Self { subject, text }
    }

    /// Returns the link in it.
    pub fn link(&self) -> &str {
        self.text.split_whitespace().find(|word| word.starts_with("http")).expect("there is a link")
    }

    /// Returns the path of the link beneath the server's public address.
    pub fn path(&self) -> String {
        let rest = self.link().split_once("://").unwrap().1;
        rest[rest.find('/').unwrap()..].to_owned()
    }

    /// Returns the token of a link that resets a password.
    pub fn token(&self) -> String {
        self.link().split_once("resetToken=").expect("it is a reset link").1.to_owned()
    }
}

impl TestApp {
    /// Waits for this many e-mails to an address, and returns them, oldest first.
    pub async fn emails_to(&self, address: &str, count: usize) -> Vec<Email> {
        settled(&format!("{count} e-mails to {address}"), async || {
            let found = self.emails_so_far(address);
            (found.len() >= count).then_some(found)
        })
        .await
    }

    /// Waits for this many e-mails to an address, and returns the last.
    pub async fn email_to(&self, address: &str, count: usize) -> Email {
        self.emails_to(address, count).await.pop().unwrap()
    }

    /// Follows the link that verifies somebody's address: the first e-mail to it.
    pub async fn verifies(&self, name: &str) {
        let first = self.emails_to(&format!("{name}@example.com"), 1).await.remove(0);
        self.get(&first.path()).await.is(302);
    }

    fn emails_so_far(&self, address: &str) -> Vec<Email> {
        let Ok(folder) = std::fs::read_dir(self.mail_folder()) else { return Vec::new() };
        let mut paths: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "eml"));
        // Their names are identifiers that grow.
        paths.sort();
        let to = format!("To: {address}\r\n");
        let texts = paths.into_iter().map(|path| std::fs::read_to_string(path).unwrap());
        texts.filter(|text| text.contains(&to)).map(|text| Email::read(&text)).collect()
    }
}

/// An SMTP server (RFC 5321) that takes e-mails from whoever logs in.
#[derive(Clone)]
pub struct SmtpServer {
    pub url: String,
    messages: Arc<Mutex<Vec<String>>>,
    /// Logins and recipients that were refused.
    pub refused: Arc<AtomicUsize>,
    /// Logins that are refused before the first is let in.
    refuses: Arc<AtomicUsize>,
    /// Held for writing: no message is taken.
    pub gate: Arc<RwLock<()>>,
}

impl SmtpServer {
    /// Starts one that refuses so many logins first, and always every recipient whose name begins with `bad`.
    pub async fn start(refuses: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("smtp://isobar:p%40ss@{}", listener.local_addr().unwrap()),
            messages: Arc::default(),
            refused: Arc::default(),
            refuses: Arc::new(AtomicUsize::new(refuses)),
            gate: Arc::default(),
        };
        let answering = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = answering.clone();
                // A client that hangs up ends its conversation, nothing else.
                tokio::spawn(async move { server.converse(stream).await.ok() });
            }
        });
        server
    }

    /// Waits until this many messages were accepted, and returns them.
    pub async fn messages(&self, count: usize) -> Vec<String> {
        self.wait(|server| server.messages.lock().len() >= count).await;
        self.messages.lock().clone()
    }

    /// Waits until so many logins or recipients were refused.
    pub async fn has_refused(&self, count: usize) {
        self.wait(|server| server.refused.load(Ordering::SeqCst) >= count).await;
    }

    async fn wait(&self, until: impl Fn(&Self) -> bool) {
        becomes("a call of the SMTP server", async || until(self)).await;
    }

    async fn converse(&self, stream: TcpStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        write.write_all(b"220 test ready\r\n").await?;
        let mut inside = false;
        while let Some(line) = lines.next_line().await? {
            let verb = line.split(' ').next().unwrap_or_default().to_uppercase();
            let answer = match verb.as_str() {
                "EHLO" => "250-test\r\n250 AUTH PLAIN",
                "AUTH" if self.lets_in(&line) => {
                    inside = true;
                    "235 welcome"
                }
                "AUTH" => self.refuse("535 authentication failed"),
                "MAIL" if !inside => self.refuse("530 authentication required"),
                "RCPT" if line.contains("<bad") => self.refuse("550 no such mailbox"),
                "DATA" => {
                    let _is_open = self.gate.read().await;
                    write.write_all(b"354 go on\r\n").await?;
                    let mut message = String::new();
                    while let Some(line) = lines.next_line().await? {
                        if line == "." {
                            break;
                        }
                        message.push_str(line.strip_prefix('.').unwrap_or(&line));
                        message.push_str("\r\n");
                    }
                    self.messages.lock().push(message);
                    "250 taken"
                }
                "QUIT" => "221 bye",
                _ => "250 fine",
            };
            write.write_all(format!("{answer}\r\n").as_bytes()).await?;
        }
        Ok(())
    }

    fn lets_in(&self, line: &str) -> bool {
        let refuse = self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        !refuse && line.ends_with(RIGHT_LOGIN)
    }

    fn refuse(&self, answer: &'static str) -> &'static str {
        self.refused.fetch_add(1, Ordering::SeqCst);
        answer
    }
}
