//! The data folder: used by one process at a time, and never by a program older than its contents.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

/// Layout version of the data folder. Raised when older programs can no longer read it.
pub const LAYOUT_VERSION: u32 = 2;
/// Lock file, locked by the process that uses the folder.
pub const LOCK_FILE: &str = "isobar.lock";
const VERSION_FILE: &str = "VERSION";

/// A locked data folder, unlocked when dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// The locked file; the operating system unlocks it when the process ends. `None` if a read-only file system has
    /// none.
    lock: Option<File>,
    /// Folders that were made for it, the deepest last; empty once it is to stay.
    made: Vec<PathBuf>,
}

impl Drop for DataFolder {
    /// Unlocks explicitly. Closing is not enough while a copy of the descriptor exists: in a program that is being
    /// started, or in a reader of `/proc/PID/fd` such as `lsof`.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock
            && let Err(error) = lock.unlock()
        {
            tracing::warn!(%error, "the data folder stays locked until the process ends");
        }
    }
}

/// The reason why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process uses it.
    #[error(
        "the data folder {folder} is in use by another isobar process{holder}; stop that one first, or choose another folder with --data"
    )]
    InUse {
        /// The folder.
        folder: String,
        /// ` (pid 123)`, if known.
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
        /// The layout in its VERSION file.
        found: u32,
    },
    /// The VERSION file is not a number.
    #[error("{0} does not hold a layout version: this is no data folder of isobar, or it is damaged")]
    NoVersion(String),
    /// An error of the file system.
    #[error("the data folder: {path}: {cause}")]
    Io {
        /// The file or folder.
        path: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

impl DataFolder {
    /// Locks the folder, and creates it if necessary. Files that this process writes from now on are for its own user
    /// only: the registry holds password hashes and the key that signs tokens.
    pub fn take(path: &Path) -> Result<Self, FolderError> {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |cause| FolderError::Io { path, cause }
        };
        let made = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let mut made: Vec<PathBuf> = made.map(Path::to_owned).collect();
        made.reverse();
        make_lasting(path).map_err(at(path))?;
        let lock_path = path.join(LOCK_FILE);
        let mut lock = unwaiting().write(true).create(true).truncate(false).open(&lock_path).map_err(at(&lock_path))?;
        try_lock(path, &mut lock)?;
        note_pid(&mut lock).map_err(at(&lock_path))?;
        check_version(path)?;
        Ok(Self { path: path.to_owned(), lock: Some(lock), made })
    }

    /// Locks the folder for a command that changes nothing in it, which may lie on a read-only file system.
    pub fn take_to_read(path: &Path) -> Result<Self, FolderError> {
        if !is_read_only(path) {
            return Self::take(path);
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = match unwaiting().open(&lock_path) {
            Ok(mut lock) => {
                // The file system may be writable for another process.
                try_lock(path, &mut lock)?;
                Some(lock)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(FolderError::Io { path: lock_path.display().to_string(), cause }),
        };
        check_version(path)?;
        Ok(Self { path: path.to_owned(), lock, made: Vec::new() })
    }

    /// Makes the folder stay, whatever comes: there is something in it.
    pub fn keep(&mut self) {
        self.made.clear();
    }

    /// Removes the folder again if it was made for a start that was refused, and nothing else is in it.
    pub fn remove_if_new(self) {
        if self.made.is_empty() {
            return;
        }
        let own = [VERSION_FILE, LOCK_FILE];
        let names = std::fs::read_dir(&self.path).map(|entries| {
            entries.map(|entry| entry.map_or_else(|_| OsString::new(), |entry| entry.file_name())).collect::<Vec<_>>()
        });
        if !names.is_ok_and(|names| names.iter().all(|name| own.iter().any(|own| name == own))) {
            return;
        }
        // What cannot be removed stays.
        for file in own {
            let _ = std::fs::remove_file(self.path.join(file));
        }
        for folder in self.made.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Returns true if a platform has used the folder.
    pub fn is_there(path: &Path) -> bool {
        path.join(VERSION_FILE).is_file()
    }

    /// Returns the layout version of the folder.
    pub fn layout(&self) -> Result<u32, FolderError> {
        Self::layout_of(&self.path)
    }

    /// Returns the layout version of a folder that any process may use.
    pub fn layout_of(folder: &Path) -> Result<u32, FolderError> {
        let path = folder.join(VERSION_FILE);
        let content = std::fs::read_to_string(&path)
            .map_err(|cause| FolderError::Io { path: path.display().to_string(), cause })?;
        content.trim().parse().map_err(|_| FolderError::NoVersion(path.display().to_string()))
    }

    /// Writes this program's layout version. Must be called before the stores are opened, which upgrades them.
    pub fn stamp(&self) -> Result<(), FolderError> {
        let path = self.path.join(VERSION_FILE);
        let content = format!("{LAYOUT_VERSION}\n");
        if std::fs::read_to_string(&path).is_ok_and(|found| found == content) {
            return Ok(());
        }
        write_whole(&path, &content).map_err(|cause| FolderError::Io { path: path.display().to_string(), cause })
    }
}

/// Returns how files of the folder are opened: for reading, without waiting if a pipe has their name.
fn unwaiting() -> OpenOptions {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

fn try_lock(folder: &Path, lock: &mut File) -> Result<(), FolderError> {
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = lock.read_to_string(&mut pid);
            let holder = pid.trim().parse::<u32>().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            Err(FolderError::InUse { folder: folder.display().to_string(), holder })
        }
        Err(TryLockError::Error(cause)) => {
            Err(FolderError::Io { path: folder.join(LOCK_FILE).display().to_string(), cause })
        }
    }
}

/// Returns true if a file or folder lies on a read-only file system.
pub fn is_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn note_pid(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", std::process::id())
}

fn check_version(folder: &Path) -> Result<(), FolderError> {
    let path = folder.join(VERSION_FILE);
    let mut content = String::new();
    match unwaiting().open(&path).and_then(|mut file| file.read_to_string(&mut content)) {
        Ok(_) => match content.trim().parse::<u32>() {
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

/// Creates a folder and its parents durably: synced contents are lost if the folder's own name was never synced.
pub fn make_lasting(folder: &Path) -> io::Result<()> {
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

/// Writes a file atomically: after a crash it is complete or absent.
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
    fn folder_is_locked_by_one_process() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new");
        let first = DataFolder::take(&path).unwrap();
        let refusal = DataFolder::take(&path).unwrap_err().to_string();
        assert!(refusal.contains(&format!("pid {}", std::process::id())), "{refusal}");
        drop(first);
        DataFolder::take(&path).unwrap();
    }

    #[test]
    fn folder_of_a_refused_start_is_removed_with_its_parents() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/data");
        let refused = DataFolder::take(&path).unwrap();
        refused.stamp().unwrap();
        refused.remove_if_new();
        assert!(!place.path().join("new").exists());
        let mut served = DataFolder::take(&path).unwrap();
        served.keep();
        served.remove_if_new();
        DataFolder::take(&path).unwrap().remove_if_new();
        assert!(path.exists());
        // Something else is in it.
        let used = DataFolder::take(&place.path().join("used")).unwrap();
        std::fs::write(place.path().join("used/registry.db"), "x").unwrap();
        used.remove_if_new();
        assert!(place.path().join("used").join(LOCK_FILE).exists());
    }

    #[test]
    fn copied_descriptor_does_not_keep_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let first = DataFolder::take(place.path()).unwrap();
        let copy = first.lock.as_ref().unwrap().try_clone().unwrap();
        drop(first);
        DataFolder::take(place.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn newer_folder_is_refused_with_a_reason() {
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
