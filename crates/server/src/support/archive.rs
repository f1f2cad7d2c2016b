//! The archive of a support bundle: a compressed tar in a new file for its owner only.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use isobar_model::time::Timestamp;
use tar::{Builder, EntryType, Header};

/// Mode of the file, and of those in it.
const BUNDLE_MODE: u32 = 0o600;

/// Packs texts with their names into an archive with one folder.
pub fn pack(folder: &str, at: Timestamp, parts: &[(&str, String)]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in parts {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(BUNDLE_MODE);
        header.set_size(text.len() as u64);
        header.set_mtime(u64::try_from(at.seconds()).unwrap_or_default());
        builder.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
    }
    builder.into_inner()?.finish()
}

/// Returns an error if there is anything at the path.
pub fn must_be_new(path: &Path) -> Result<(), String> {
    match path.symlink_metadata() {
        Ok(_) => Err(format!("{} is there already, and is not overwritten", path.display())),
        Err(_) => Ok(()),
    }
}

/// Writes a new file. If that fails, nothing is left of it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    must_be_new(path)?;
    let cannot = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let mut file = File::options().write(true).create_new(true).mode(BUNDLE_MODE).open(path).map_err(cannot)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        cannot(error)
    })
}
