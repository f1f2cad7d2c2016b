//! E-mails as `.eml` files, for a house without a mail server.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{MailError, Result};

/// A folder of e-mails.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Writes `<name>.eml` so that after a crash it is there as a whole or not at all.
    pub(super) async fn write(&self, name: &str, content: Vec<u8>) -> Result<()> {
        let (folder, name) = (self.folder.clone(), name.to_owned());
        let written = tokio::task::spawn_blocking(move || write(&folder, &name, &content)).await;
        written.map_err(MailError::not_now)?.map_err(MailError::not_now)
    }
}

fn write(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    if !folder.is_dir() {
        private_folder().recursive(true).create(folder)?;
        // A letter is sent when its file is on the disk: so must be the folder that it lies in.
        folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
    }
    let (temporary, path) = (folder.join(format!("{name}.new")), folder.join(format!("{name}.eml")));
    let mut file = private_file().create(true).write(true).truncate(true).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, &path)?;
    File::open(folder)?.sync_all()
}

/// Links in e-mails are credentials: only the process's own user reads them.
#[cfg(unix)]
fn private_folder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(unix)]
fn private_file() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn private_folder() -> DirBuilder {
    DirBuilder::new()
}

#[cfg(not(unix))]
fn private_file() -> OpenOptions {
    OpenOptions::new()
}
