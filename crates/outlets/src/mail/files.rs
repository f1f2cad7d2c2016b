//! E-mails as `.eml` files, for installations without a mail server.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::{MailError, Result};

/// Writes `<name>.eml` into the folder atomically: after a crash the file is complete or absent.
pub(super) async fn write(folder: &Path, name: &str, content: Vec<u8>) -> Result<()> {
    let (folder, name) = (folder.to_owned(), name.to_owned());
    let written = tokio::task::spawn_blocking(move || write_now(&folder, &name, &content)).await;
    written.map_err(MailError::not_now)?.map_err(MailError::not_now)
}

/// Writes the file. Links in e-mails are credentials, so only the process's own user may read it.
fn write_now(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    if !folder.is_dir() {
        DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        // The file is durable only if the entry of its folder is.
        folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
    }
    let (temporary, path) = (folder.join(format!("{name}.new")), folder.join(format!("{name}.eml")));
    let mut file = OpenOptions::new().mode(0o600).create(true).write(true).truncate(true).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, &path)?;
    File::open(folder)?.sync_all()
}
