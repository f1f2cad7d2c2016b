//! Targets of backups: a folder, or a bucket of S3.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bucket::Bucket;
use crate::Failure;
use crate::config::{BackupSettings, Place};
use crate::upkeep::files;

/// Prefix of an incomplete file's name.
const PART: &str = ".part-";

/// A target for backups. Its calls block, so they must not be made on a thread that serves.
pub trait Target: Send {
    /// Begins a file of about `bytes`. It is not visible before it is finished.
    fn begin(&self, name: &str, bytes: u64) -> Result<Begun, Failure>;
    /// Opens a begun file for writing.
    fn write<'a>(&'a self, begun: &Begun) -> Result<Box<dyn Upload + 'a>, Failure>;
    /// Opens a file for reading.
    fn read<'a>(&'a self, name: &str) -> Result<Box<dyn Read + 'a>, Failure>;
    /// Writes a small file.
    fn put(&self, name: &str, text: &str) -> Result<(), Failure>;
    /// Removes a file; one that does not exist counts as removed.
    fn remove(&self, name: &str) -> Result<(), Failure>;
    /// Removes a begun file, finished or not.
    fn discard(&self, begun: &Begun) -> Result<(), Failure>;
}

/// A file that is being written to a target.
pub trait Upload: Write {
    /// Finishes the file: it is visible and durable afterwards.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// A file that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its name in the target.
    pub name: String,
    /// The bucket's id of the upload.
    pub upload: Option<String>,
    /// Bytes per part.
    pub piece: usize,
}

impl Begun {
    /// Converts it to its record.
    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "upload": self.upload})
    }

    /// Parses its record.
    pub fn from_json(noted: &Value) -> Option<Self> {
        let name = noted["name"].as_str()?.to_owned();
        Some(Self { name, upload: noted["upload"].as_str().map(str::to_owned), piece: 0 })
    }
}

/// Makes the target of a place in the settings.
pub fn target(place: &Place, settings: &BackupSettings) -> Result<Box<dyn Target>, Failure> {
    Ok(match place {
        Place::Folder(folder) => Box::new(Folder(folder.clone())),
        Place::Bucket { bucket, prefix } => Box::new(Bucket::open(bucket, prefix, &settings.access)?),
    })
}

/// A folder, which must exist: one made here would be on the wrong disk if the right one is not mounted.
struct Folder(PathBuf);

impl Folder {
    fn part(&self, name: &str) -> PathBuf {
        self.0.join(format!("{PART}{name}"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        format!("the folder {} for backups: {error}", self.0.display()).into()
    }
}

impl Target for Folder {
    fn begin(&self, name: &str, _bytes: u64) -> Result<Begun, Failure> {
        match self.0.is_dir() {
            true => Ok(Begun { name: name.to_owned(), upload: None, piece: 0 }),
            false => Err(format!(
                "the folder {} for backups is not there: mount what it lies on, or make it",
                self.0.display()
            )
            .into()),
        }
    }

    fn write<'a>(&'a self, begun: &Begun) -> Result<Box<dyn Upload + 'a>, Failure> {
        let part = self.part(&begun.name);
        let file = File::options().write(true).create_new(true).mode(super::FILE_MODE).open(&part);
        let file = file.map_err(|error| self.cannot(&error))?;
        Ok(Box::new(InFolder { folder: self, file, part, whole: self.0.join(&begun.name), unsynced: 0 }))
    }

    fn read<'a>(&'a self, name: &str) -> Result<Box<dyn Read + 'a>, Failure> {
        Ok(Box::new(files::open_file(&self.0.join(name))?))
    }

    fn put(&self, name: &str, text: &str) -> Result<(), Failure> {
        let begun = self.begin(name, 0)?;
        let mut upload = self.write(&begun)?;
        upload.write_all(text.as_bytes()).map_err(|error| self.cannot(&error))?;
        upload.finish()
    }

    fn remove(&self, name: &str) -> Result<(), Failure> {
        match remove(&self.0.join(name)).and_then(|()| self.sync()) {
            Err(error) => Err(self.cannot(&error)),
            Ok(()) => Ok(()),
        }
    }

    fn discard(&self, begun: &Begun) -> Result<(), Failure> {
        remove(&self.part(&begun.name)).map_err(|error| self.cannot(&error))?;
        self.remove(&begun.name)
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A file that is being written to a folder.
struct InFolder<'a> {
    folder: &'a Folder,
    file: File,
    part: PathBuf,
    whole: PathBuf,
    unsynced: usize,
}

impl Write for InFolder<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let written = self.file.write(piece).and_then(|count| {
            self.unsynced += count;
            if self.unsynced >= super::SYNC_BYTES {
                self.unsynced = 0;
                self.file.sync_data()?;
            }
            Ok(count)
        });
        written.map_err(|error| io::Error::new(error.kind(), self.folder.cannot(&error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for InFolder<'_> {
    fn finish(self: Box<Self>) -> Result<(), Failure> {
        let finished = self.file.sync_all().and_then(|()| fs::rename(&self.part, &self.whole));
        finished.and_then(|()| self.folder.sync()).map_err(|error| self.folder.cannot(&error))
    }
}
