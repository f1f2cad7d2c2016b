//! `[backup]`: when, where to, how many, for whom.

use std::fmt;
use std::path::PathBuf;

use super::layers::Layers;
use super::origin_of;
use crate::backups::archive;
use crate::backups::schedule::Schedule;

/// Most backups that are kept.
const BACKUPS_MAX: u32 = 10_000;
const SCHEME: &str = "s3://";

/// `[backup]`
#[derive(Clone, Debug, PartialEq)]
pub struct BackupSettings {
    /// When; none: only when asked for.
    pub schedule: Option<Schedule>,
    /// How many that count are kept.
    pub keep: usize,
    /// Where to.
    pub target: Option<Place>,
    /// Recipients of age; none: they are not encrypted.
    pub encrypt_to: Vec<String>,
    /// The file of the identity that opens them.
    pub identity: Option<PathBuf>,
    /// How a bucket is reached.
    pub access: Access,
}

/// Where backups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A bucket of S3, and what the names of its objects begin with.
    Bucket {
        /// Its name.
        bucket: String,
        /// Without a slash at either end.
        prefix: String,
    },
}

impl Place {
    /// Reads `s3://bucket/prefix`, or the path of a folder.
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

    /// Returns what holds the last part of its path, and that part: a backup's name. None: it has but one part.
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

/// How a bucket is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// The server; none: Amazon's.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// Who asks.
    pub key_id: Option<String>,
    /// What signs.
    pub secret_key: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the keys, nor the address, which may hold a password.
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

    /// Notes what does not go together.
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
