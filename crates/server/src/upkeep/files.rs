//! Durable copies of files and folders. Sources are untrusted: anything but files and folders is refused by name, and
//! links are not followed.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::Failure;

/// Mode of backup folders: for their owner only, as they hold password hashes and the key that signs tokens.
const FOLDER_MODE: u32 = 0o700;

/// Creates a folder for its owner only, if it does not exist.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    Ok(made.map_err(|error| told(folder, &error))?)
}

/// Creates a folder; fails if it exists and is not empty.
pub fn make_empty(folder: &Path) -> Result<(), Failure> {
    make_folder(folder)?;
    let told = |error: io::Error| told(folder, &error);
    match fs::read_dir(folder).map_err(told)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("{} is not empty", folder.display()).into()),
    }
}

/// Removes everything in a folder; failures are logged.
pub fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, is_folder) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %path.display(), "cannot remove an unfinished copy");
        }
    }
}

/// An open file or folder to be copied.
enum Opened {
    File(File),
    Folder(File),
}

/// Opens a file or a folder within another one; `None` if it does not exist. Never blocks, and follows no link: the
/// opened object is checked, whatever has its name a moment later.
fn open(within: impl AsFd, name: impl Arg, path: &Path) -> Result<Option<Opened>, Failure> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let neither = || Failure::from(format!("{} is neither a file nor a folder: only those are copied", path.display()));
    let file = match openat(within, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        // A link; a socket.
        Err(Errno::LOOP | Errno::NXIO | Errno::OPNOTSUPP) => return Err(neither()),
        opened => File::from(opened.map_err(|error| told(path, &error))?),
    };
    let kind = file.metadata().map_err(|error| told(path, &error))?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(Some(Opened::File(file))),
        (_, true) => Ok(Some(Opened::Folder(file))),
        _ => Err(neither()),
    }
}

fn told(path: &Path, error: &dyn std::error::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Opens a regular file for reading.
pub fn open_file(path: &Path) -> Result<File, Failure> {
    match open(CWD, path, path)? {
        Some(Opened::File(file)) => Ok(file),
        Some(Opened::Folder(_)) => Err(format!("{} is a folder", path.display()).into()),
        None => Err(format!("{}: there is no such file", path.display()).into()),
    }
}

/// Refuses by name what is neither a file nor a folder: opening a pipe in a file's place would wait for ever. Links are
/// followed, but not into folders; nothing is fine.
pub fn require_plain(path: &Path) -> Result<(), Failure> {
    let is_link = path.is_symlink();
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| told(path, &error))?.file_type(),
    };
    if !kind.is_file() && !kind.is_dir() {
        return Err(format!("{} is neither a file nor a folder: restore a backup", path.display()).into());
    }
    if kind.is_dir() && !is_link {
        for entry in fs::read_dir(path).map_err(|error| told(path, &error))? {
            require_plain(&entry.map_err(|error| told(path, &error))?.path())?;
        }
    }
    Ok(())
}

/// Copies a file to a path that must not exist.
pub fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    copy_opened(open_file(from)?, to)
}

fn copy_opened(mut from: File, to: &Path) -> Result<(), Failure> {
    let copied = File::options().write(true).create_new(true).open(to).and_then(|mut to| io::copy(&mut from, &mut to));
    Ok(copied.map(drop).map_err(|error| told(to, &error))?)
}

/// Copies a folder with its contents; nothing if it does not exist. A file that disappears meanwhile is left out.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    match open(CWD, from, from)? {
        Some(Opened::Folder(folder)) => copy_entries(&folder, from, to),
        Some(Opened::File(_)) => Err(format!("{} is no folder", from.display()).into()),
        None => Ok(()),
    }
}

fn copy_entries(folder: &File, from: &Path, to: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(to).map_err(|error| told(to, &error))?;
    for entry in Dir::read_from(folder).map_err(|error| told(from, &error))? {
        let entry = entry.map_err(|error| told(from, &error))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let (path, target) = (from.join(name), to.join(name));
        match open(folder, name, &path)? {
            Some(Opened::File(file)) => copy_opened(file, &target)?,
            Some(Opened::Folder(folder)) => copy_entries(&folder, &path, &target)?,
            None => {}
        }
    }
    Ok(())
}

/// Returns the size of all files in a folder, in bytes.
pub fn size(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |bytes, entry| {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        Ok(bytes + if kind.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() })
    })
}

/// Syncs a folder, its contents and its own name; returns the bytes of its files.
pub fn sync_folder(folder: &Path) -> Result<u64, Failure> {
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        match open(CWD, &path, &path)? {
            Some(Opened::File(file)) => {
                file.sync_all().map_err(told)?;
                bytes += file.metadata().map_err(told)?.len();
            }
            Some(Opened::Folder(_)) => bytes += sync_folder(&path)?,
            None => {}
        }
    }
    sync_name(folder).map_err(told)?;
    Ok(bytes)
}

fn sync_name(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()?;
    folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
