//! Storage of ACME: the account and the newest certificate of a server, in a folder that only the owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Name of the folder beneath the data folder.
const ACME_FOLDER: &str = "acme";
const ACCOUNT: &str = "account.json";
const CERTIFICATE: &str = "certificate.json";
/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An issued certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// The names that it was ordered for.
    pub domains: Vec<String>,
    /// The certificate and its chain, as PEM.
    pub certificate: String,
    /// The private key, as PEM.
    pub key: String,
}

/// The folder of one ACME server.
#[derive(Clone)]
pub struct Kept(PathBuf);

impl Kept {
    /// Returns the folder of a server, by its name and port.
    pub fn of(data: &Path, server: &str) -> Self {
        Self(data.join(ACME_FOLDER).join(server))
    }

    /// Reads the newest certificate; `None` if there never was one.
    pub fn certificate(&self) -> io::Result<Option<Issued>> {
        let Some(text) = read(&self.0.join(CERTIFICATE))? else { return Ok(None) };
        let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "it was written by something else");
        let value: Value = serde_json::from_str(&text)?;
        let of = |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(unreadable);
        let domains = value["domains"].as_array().ok_or_else(unreadable)?;
        let domains = domains.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Some(Issued { domains, certificate: of("certificate")?, key: of("key")? }))
    }

    /// Stores a certificate in place of the previous one.
    pub fn keep_certificate(&self, issued: &Issued) -> io::Result<()> {
        let Issued { domains, certificate, key } = issued;
        self.write(CERTIFICATE, &json!({"domains": domains, "certificate": certificate, "key": key}).to_string())
    }

    /// Reads the account's credentials; `None` if there is no account.
    pub fn account(&self) -> io::Result<Option<String>> {
        read(&self.0.join(ACCOUNT))
    }

    /// Stores the account's credentials.
    pub fn keep_account(&self, credentials: &str) -> io::Result<()> {
        self.write(ACCOUNT, credentials)
    }

    /// Removes an account that the server no longer knows.
    pub fn forget_account(&self) -> io::Result<()> {
        std::fs::remove_file(self.0.join(ACCOUNT))
    }

    /// Writes a file atomically: after a crash it has its old or its new content.
    fn write(&self, name: &str, content: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let (path, temporary) = (self.0.join(name), self.0.join(format!("{name}.new")));
        // A leftover of a crash may have another mode.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        File::open(&self.0)?.sync_all()
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn stored_files_are_readable_by_the_owner_alone() {
        let data = tempfile::tempdir().unwrap();
        let kept = Kept::of(data.path(), "acme.example.com:14000");
        assert_eq!((kept.certificate().unwrap(), kept.account().unwrap()), (None, None));
        let issued = Issued { domains: vec!["a.example.com".into()], certificate: "c".into(), key: "k".into() };
        for _ in 0..2 {
            kept.keep_certificate(&issued).unwrap();
            kept.keep_account("{}").unwrap();
        }
        assert_eq!(kept.certificate().unwrap(), Some(issued));
        assert_eq!(kept.account().unwrap().as_deref(), Some("{}"));
        for name in [ACCOUNT, CERTIFICATE] {
            assert_eq!(std::fs::metadata(kept.0.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        kept.forget_account().unwrap();
        assert_eq!(kept.account().unwrap(), None);
    }

    #[test]
    fn damaged_stored_certificate_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        let kept = Kept::of(data.path(), "acme.example.com");
        for content in ["", "{}", "[1]", "{\"domains\":[]", "{\"domains\":[],\"certificate\":1,\"key\":\"k\"}"] {
            kept.write(CERTIFICATE, content).unwrap();
            assert!(kept.certificate().is_err(), "{content}");
        }
    }
}
