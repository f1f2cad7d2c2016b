//! Files and folders, copied so that they outlive a crash.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::Failure;

/// Only its owner looks into a backup: it holds hashes of passwords, and the key that signs tokens.
const FOLDER_MODE: u32 = 0o700;

/// Makes a folder, or finds it empty.
pub fn make_empty(folder: &Path) -> Result<(), Failure> {
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(told)?;
    match fs::read_dir(folder).map_err(told)?.next() {
        None => Ok(()),
        Some(_) => Err(format!("{} is not empty", folder.display()).into()),
    }
}

/// Removes everything in a folder; what cannot be removed is told in the log.
pub fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::warn!(%error, path = %path.display(), "what was begun cannot be removed");
        }
    }
}

/// Copies a folder with everything in it; nothing, if there is none. A file that goes away meanwhile is left out.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    let told = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| told(from, error))?,
    };
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(to).map_err(|error| told(to, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| told(from, error))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(|error| told(&path, error))?.is_dir() {
            copy_folder(&path, &target)?;
            continue;
        }
        match fs::copy(&path, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {}
            copied => drop(copied.map_err(|error| told(&path, error))?),
        }
    }
    Ok(())
}

/// Waits until a folder, everything in it and its own name are on the disk. The bytes of its files.
pub fn sync_folder(folder: &Path) -> Result<u64, Failure> {
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            bytes += sync_folder(&path)?;
        } else {
            let file = File::open(&path).map_err(told)?;
            file.sync_all().map_err(told)?;
            bytes += file.metadata().map_err(told)?.len();
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
