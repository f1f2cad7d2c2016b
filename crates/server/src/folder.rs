//! The data folder: one process at a time, and never one that is older than what it holds.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

/// The layout of a data folder that this program writes. Raised when an older program could no longer read it.
pub const LAYOUT_VERSION: u32 = 2;
/// The file that is locked by the process that has the folder.
pub const LOCK_FILE: &str = "isobar.lock";
const VERSION_FILE: &str = "VERSION";

/// A data folder that is ours until it is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked; the operating system unlocks it when the process ends, however it ends.
    lock: File,
}

impl Drop for DataFolder {
    /// Unlocks it by word. Closing it is not enough while anybody still holds a copy: a program that is just being
    /// started, or whoever looks through `/proc/PID/fd` at that moment, as `lsof` does.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the data folder stays locked until the process ends");
        }
    }
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process has it.
    #[error(
        "the data folder {folder} is in use by another isobar process{holder}; stop that one first, or choose another folder with --data"
    )]
    InUse {
        /// The folder.
        folder: String,
        /// ` (pid 123)`, if it is known.
        holder: String,
    },
    /// A newer program wrote it.
    #[error(
        "the data folder {folder} was written by a newer isobar (layout {found}; this one knows {LAYOUT_VERSION}); \
         run that version, or restore a backup made by this one"
    )]
    Newer {
        /// The folder.
        folder: String,
        /// What its VERSION file says.
        found: u32,
    },
    /// The VERSION file is no number.
    #[error("{0} does not hold a layout version: this is no data folder of isobar, or it is damaged")]
    NoVersion(String),
    /// The file system refuses.
    #[error("the data folder: {path}: {cause}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
}

impl DataFolder {
    /// Takes the folder, and makes it if there is none. Whatever this process writes from here on is for its own user alone:
    /// the registry holds hashes of passwords and the key that signs tokens.
    pub fn take(path: &Path) -> Result<Self, FolderError> {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |cause| FolderError::Io { path, cause }
        };
        make_lasting(path).map_err(at(path))?;
        let lock_path = path.join(LOCK_FILE);
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = lock.read_to_string(&mut pid);
                let holder = pid.trim().parse::<u32>().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                return Err(FolderError::InUse { folder: path.display().to_string(), holder });
            }
            Err(TryLockError::Error(cause)) => return Err(at(&lock_path)(cause)),
        }
        note_pid(&mut lock).map_err(at(&lock_path))?;
        check_version(path)?;
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Whether a platform has run on the folder.
    pub fn is_there(path: &Path) -> bool {
        path.join(VERSION_FILE).is_file()
    }

    /// Returns the layout that the folder has.
    pub fn layout(&self) -> Result<u32, FolderError> {
        let path = self.path.join(VERSION_FILE);
        let content = std::fs::read_to_string(&path)
            .map_err(|cause| FolderError::Io { path: path.display().to_string(), cause })?;
        content.trim().parse().map_err(|_| FolderError::NoVersion(path.display().to_string()))
    }

    /// Notes that the folder now has the layout of this program. Called before the stores are opened, and so upgraded.
    pub fn stamp(&self) -> Result<(), FolderError> {
        let path = self.path.join(VERSION_FILE);
        let content = format!("{LAYOUT_VERSION}\n");
        if std::fs::read_to_string(&path).is_ok_and(|found| found == content) {
            return Ok(());
        }
        write_whole(&path, &content).map_err(|cause| FolderError::Io { path: path.display().to_string(), cause })
    }
}

fn note_pid(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", std::process::id())
}

fn check_version(folder: &Path) -> Result<(), FolderError> {
    let path = folder.join(VERSION_FILE);
    match std::fs::read_to_string(&path) {
        Ok(content) => match content.trim().parse::<u32>() {
            Ok(found) if found > LAYOUT_VERSION => {
                Err(FolderError::Newer { folder: folder.display().to_string(), found })
            }
            Ok(_) => Ok(()),
            Err(_) => Err(FolderError::NoVersion(path.display().to_string())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(FolderError::Io { path: path.display().to_string(), cause }),
    }
}

/// Makes a folder, and what it lies in, so that none of them is gone after a power cut: what is synced within a folder is
/// of no use if the folder's own name was never synced.
fn make_lasting(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    make_lasting(parent)?;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()
}

/// Writes a file so that after a crash it is there as a whole or not at all.
pub fn write_whole(path: &Path, content: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new");
        let first = DataFolder::take(&path).unwrap();
        let refusal = DataFolder::take(&path).unwrap_err().to_string();
        assert!(refusal.contains(&format!("pid {}", std::process::id())), "{refusal}");
        drop(first);
        DataFolder::take(&path).unwrap();
    }

    #[test]
    fn a_copy_of_the_lock_in_another_process_does_not_hold_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let first = DataFolder::take(place.path()).unwrap();
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        DataFolder::take(place.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn a_newer_folder_is_refused_and_says_why() {
        let place = tempfile::tempdir().unwrap();
        DataFolder::take(place.path()).unwrap().stamp().unwrap();
        DataFolder::take(place.path()).unwrap();
        std::fs::write(place.path().join(VERSION_FILE), "3\n").unwrap();
        let refusal = DataFolder::take(place.path()).unwrap_err();
        assert!(matches!(refusal, FolderError::Newer { found: 3, .. }), "{refusal}");
        std::fs::write(place.path().join(VERSION_FILE), "two").unwrap();
        assert!(matches!(DataFolder::take(place.path()), Err(FolderError::NoVersion(_))));
    }
}
