//! Files and folders, copied so that they outlive a crash. Whoever made what is copied may have left anything in it: what is
//! neither a file nor a folder is refused by its name, and no link is followed.

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

/// Only its owner looks into a backup: it holds hashes of passwords, and the key that signs tokens.
const FOLDER_MODE: u32 = 0o700;

/// Makes a folder that only its owner looks into, if there is none.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
    Ok(made.map_err(|error| told(folder, &error))?)
}

/// Makes a folder, or finds it empty.
pub fn make_empty(folder: &Path) -> Result<(), Failure> {
    make_folder(folder)?;
    let told = |error: io::Error| told(folder, &error);
    match fs::read_dir(folder).map_err(told)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("{} is not empty", folder.display()).into()),
    }
}

/// Removes everything in a folder; what cannot be removed is told in the log.
pub fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, is_folder) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %path.display(), "what was begun cannot be removed");
        }
    }
}

/// A file or a folder that is open to be copied.
enum Opened {
    File(File),
    Folder(File),
}

/// Opens a file or a folder that lies in another one; none if nothing is there. Nothing is waited for, and no link is
/// followed: what was opened is looked at, whatever has its name a moment later.
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

/// Opens a file to be read that must be one.
pub fn open_file(path: &Path) -> Result<File, Failure> {
    match open(CWD, path, path)? {
        Some(Opened::File(file)) => Ok(file),
        Some(Opened::Folder(_)) => Err(format!("{} is a folder", path.display()).into()),
        None => Err(format!("{}: there is no such file", path.display()).into()),
    }
}

/// Copies a file to where there is none.
pub fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    copy_opened(open_file(from)?, to)
}

fn copy_opened(mut from: File, to: &Path) -> Result<(), Failure> {
    let copied = File::options().write(true).create_new(true).open(to).and_then(|mut to| io::copy(&mut from, &mut to));
    Ok(copied.map(drop).map_err(|error| told(to, &error))?)
}

/// Copies a folder with everything in it; nothing, if there is none. A file that goes away meanwhile is left out.
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

/// Returns the bytes of all files in a folder.
pub fn size(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |bytes, entry| {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        Ok(bytes + if kind.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() })
    })
}

/// Waits until a folder, everything in it and its own name are on the disk. The bytes of its files.
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
