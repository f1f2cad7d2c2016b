//! `[backup]`: schedule, target, number and encryption.

use std::fmt;
use std::path::PathBuf;

use super::layers::Layers;
use super::origin_of;
use crate::backups::archive;
use crate::backups::schedule::Schedule;

/// Largest number of backups to keep.
const BACKUPS_MAX: u32 = 10_000;
const SCHEME: &str = "s3://";

/// `[backup]`
#[derive(Clone, Debug, PartialEq)]
pub struct BackupSettings {
    /// The schedule; `None` for backups on request only.
    pub schedule: Option<Schedule>,
    /// Number of good backups to keep.
    pub keep: usize,
    /// The target.
    pub target: Option<Place>,
    /// Recipients of age; without any, backups are not encrypted.
    pub encrypt_to: Vec<String>,
    /// File of the identity that decrypts them.
    pub identity: Option<PathBuf>,
    /// Access to the bucket.
    pub access: Access,
}

/// A place of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A bucket of S3 with a prefix of its objects' names.
    Bucket {
        /// Its name.
        bucket: String,
        /// Has no slash at either end.
        prefix: String,
    },
}

impl Place {
    /// Parses `s3://bucket/prefix`, or the path of a folder.
    pub fn read(text: &str) -> Result<Self, String> {
        let Some(address) = text.strip_prefix(SCHEME) else {
            return match text.split_once("://") {
                Some(_) => Err(format!("must be a folder or s3://BUCKET/PREFIX, not {text:?}")),
                None => Ok(Self::Folder(PathBuf::from(text))),
            };
        };
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let is_plain = |text: &str| text.chars().all(|sign| sign.is_ascii_alphanumeric() || "-._".contains(sign));
        let is_part = |part: &str| is_plain(part) && !matches!(part, "" | "." | "..");
        let prefix = prefix.trim_end_matches('/');
        let parts_are_plain = prefix.is_empty() || prefix.split('/').all(is_part);
        if !is_part(bucket) || !parts_are_plain {
            return Err(format!(
                "must be s3://BUCKET/PREFIX of letters, digits, \"-\", \".\", \"_\" (and \"/\" within the prefix), not {text:?}"
            ));
        }
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Splits off the last part of the path, a backup's name; `None` if there is only one part.
    pub fn split(&self) -> Option<(Self, String)> {
        match self {
            Self::Folder(path) => {
                let name = path.file_name()?.to_str()?.to_owned();
                Some((Self::Folder(path.parent()?.to_owned()), name))
            }
            Self::Bucket { bucket, prefix } => {
                let (prefix, name) = prefix.rsplit_once('/').unwrap_or(("", prefix));
                let place = Self::Bucket { bucket: bucket.clone(), prefix: prefix.to_owned() };
                (!name.is_empty()).then(|| (place, name.to_owned()))
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "{SCHEME}{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "{SCHEME}{bucket}/{prefix}"),
        }
    }
}

/// Access to a bucket.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// The server; `None` for Amazon's.
    pub endpoint: Option<String>,
    /// The region in signatures.
    pub region: String,
    /// The access key's id.
    pub key_id: Option<String>,
    /// The secret key.
    pub secret_key: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the keys, and without the URL, which may hold a password.
        f.debug_struct("Access").field("region", &self.region).finish_non_exhaustive()
    }
}

impl BackupSettings {
    pub(super) fn read(layers: &mut Layers) -> Self {
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let schedule = layers.parsed("backup.schedule", |text| match text {
            "" => Ok(None),
            fields => Schedule::read(fields).map(Some),
        });
        let target = layers.parsed("backup.target", |text| match text {
            "" => Ok(None),
            place => Place::read(place).map(Some),
        });
        let endpoint = layers.parsed("backup.s3_endpoint", |text| match origin_of(text) {
            _ if text.is_empty() => Ok(None),
            Some(origin) if origin == text.trim_end_matches('/') => Ok(Some(origin.to_owned())),
            _ => Err("must be an address like https://s3.example.com".to_owned()),
        });
        let settings = Self {
            schedule: schedule.flatten(),
            keep: layers.number("backup.keep", 1, BACKUPS_MAX) as usize,
            target: target.flatten(),
            encrypt_to: layers.list("backup.encrypt_to", |text| archive::recipient(text).map(drop)),
            identity: optional(&layers.text("backup.identity")).map(PathBuf::from),
            access: Access {
                endpoint: endpoint.flatten(),
                region: layers.text("backup.s3_region"),
                key_id: optional(&layers.text("backup.s3_access_key_id")),
                secret_key: optional(&layers.text("backup.s3_secret_access_key")),
            },
        };
        settings.find_faults(layers);
        settings
    }

    /// Reports settings that contradict each other.
    fn find_faults(&self, layers: &mut Layers) {
        if self.schedule.is_some() && self.target.is_none() {
            layers.fault_of("backup.target", "is required beside backup.schedule");
        }
        let is_bucket = matches!(self.target, Some(Place::Bucket { .. }));
        for (name, value) in
            [("backup.s3_access_key_id", &self.access.key_id), ("backup.s3_secret_access_key", &self.access.secret_key)]
        {
            let has_other = self.access.key_id.is_some() || self.access.secret_key.is_some();
            if value.is_none() && (is_bucket || has_other) {
                layers.fault_of(name, "is required for a bucket of S3");
            }
        }
    }
}
