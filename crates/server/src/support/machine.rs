//! Shows the machine in a support bundle: system, disks, and sizes of files. No contents of files.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use isobar_store::registry::companions;

use crate::config::{Place, Settings};
use crate::process::disk;

/// Most files that are listed. Of those beyond, the sum alone is shown.
const FILES_MAX: usize = 2_000;
/// Levels of folders that are listed.
const DEPTH_MAX: usize = 8;

/// Describes operating system, kernel, processors and memory.
pub fn system() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    let kernel = rustix::system::uname();
    let [system, release_of_kernel, machine] =
        [kernel.sysname(), kernel.release(), kernel.machine()].map(|text| text.to_string_lossy().into_owned());
    let processors = std::thread::available_parallelism().map_or(0, NonZeroUsize::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().take(3).collect::<Vec<_>>().join("\n");
    format!(
        "system: {}\nkernel: {system} {release_of_kernel} {machine}\nprocessors: {processors}\n{memory}\n",
        name.trim_matches('"')
    )
}

/// Describes the file systems of all folders that the settings name.
pub fn disks(settings: &Settings) -> String {
    let mut folders = vec![settings.data.clone()];
    folders.extend(settings.telemetry_folder().ok().map(Path::to_owned));
    folders.extend(settings.sqlite_file().and_then(|file| file.parent().map(Path::to_owned)));
    if let Some(Place::Folder(target)) = &settings.backup.target {
        folders.push(target.clone());
    }
    folders.sort();
    folders.dedup();
    let lines = folders.iter().map(|folder| match disk(folder) {
        Some((free, whole)) => format!("{}: {free} bytes free of {whole}\n", folder.display()),
        None => format!("{}: cannot be measured\n", folder.display()),
    });
    lines.collect()
}

/// Lists the files of the data folder and the stores with their sizes.
pub fn files(settings: &Settings) -> String {
    let mut listing = Listing::default();
    listing.folder(&settings.data, 0);
    if let Ok(telemetry) = settings.telemetry_folder()
        && !telemetry.starts_with(&settings.data)
    {
        listing.folder(telemetry, 0);
    }
    if let Some(file) = settings.sqlite_file()
        && !file.starts_with(&settings.data)
    {
        listing.path(&file, 0);
        companions(&file).for_each(|companion| listing.path(&companion, 0));
    }
    listing.text()
}

#[derive(Default)]
struct Listing {
    lines: String,
    files: usize,
    bytes: u64,
}

impl Listing {
    fn folder(&mut self, folder: &Path, depth: usize) {
        let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(error) => {
                let _ = writeln!(self.lines, "{}: {error}", folder.display());
                return;
            }
        };
        paths.sort();
        paths.iter().for_each(|path| self.path(path, depth));
    }

    /// Lists a file, or what is in a folder. Links are not followed.
    fn path(&mut self, path: &Path, depth: usize) {
        let Ok(metadata) = path.symlink_metadata() else { return };
        if metadata.is_dir() && depth < DEPTH_MAX {
            return self.folder(path, depth + 1);
        }
        self.files += 1;
        self.bytes = self.bytes.saturating_add(metadata.len());
        if self.files <= FILES_MAX {
            let kind = if metadata.is_file() { "" } else { " (no file)" };
            let name = path.to_string_lossy();
            let _ = writeln!(self.lines, "{:>14} {}{kind}", metadata.len(), name.escape_debug());
        }
    }

    fn text(mut self) -> String {
        if self.files > FILES_MAX {
            let _ = writeln!(self.lines, "and {} more", self.files - FILES_MAX);
        }
        let _ = writeln!(self.lines, "{} files of {} bytes", self.files, self.bytes);
        self.lines
    }
}
