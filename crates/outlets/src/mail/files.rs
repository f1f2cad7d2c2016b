//! E-mails as `.eml` files, for a house without a mail server.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::{MailError, Result};

/// Writes `<name>.eml` into the folder, so that after a crash it is there as a whole or not at all.
pub(super) async fn write(folder: &Path, name: &str, content: Vec<u8>) -> Result<()> {
    let (folder, name) = (folder.to_owned(), name.to_owned());
    let written = tokio::task::spawn_blocking(move || write_now(&folder, &name, &content)).await;
    written.map_err(MailError::not_now)?.map_err(MailError::not_now)
}

/// Links in e-mails are credentials: only the process's own user reads them.
fn write_now(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    if !folder.is_dir() {
        DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        // A letter is sent when its file is on the disk: so must be the folder that it lies in.
        folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
    }
    let (temporary, path) = (folder.join(format!("{name}.new")), folder.join(format!("{name}.eml")));
    let mut file = OpenOptions::new().mode(0o600).create(true).write(true).truncate(true).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, &path)?;
    File::open(folder)?.sync_all()
}
