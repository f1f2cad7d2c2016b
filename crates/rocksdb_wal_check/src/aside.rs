//! The part of a log that is cut off is not deleted. The note and the manifest say that nothing of it was acknowledged,
//! but a power cut may have taken what they recorded last.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::{LogEnd, READ_BYTES, log_numbers, name};

/// Subfolder of the database with what was cut off. RocksDB ignores it.
pub const FOLDER: &str = "dropped";

/// Moves the part of the log behind its end into [`FOLDER`]: the rest of that log, and all later logs. Removes what an
/// earlier start has put there as soon as its logs are in tables, as those before `first_log` are: a start that is
/// interrupted itself is repeated, and deletes nothing.
pub fn put(folder: &Path, stop: &LogEnd, first_log: u64) -> io::Result<()> {
    let aside = folder.join(FOLDER);
    match fs::create_dir(&aside) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for old in fs::read_dir(&aside)? {
        let old = old?;
        if number(&old.file_name().to_string_lossy()).is_some_and(|number| number < first_log) {
            fs::remove_file(old.path())?;
        }
    }
    put_rest(folder, stop, &aside)?;
    for later in log_numbers(folder)?.range(stop.log + 1..) {
        fs::rename(folder.join(name(*later)), aside.join(name(*later)))?;
    }
    File::open(&aside)?.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Returns the number of the log that a file in [`FOLDER`] belongs to.
fn number(file: &str) -> Option<u64> {
    file.split_once(".log")?.0.parse().ok()
}

/// Copies the rest of the log into a file that is named after its offset.
fn put_rest(folder: &Path, stop: &LogEnd, aside: &Path) -> io::Result<()> {
    let name = name(stop.log);
    let mut log = match File::open(folder.join(&name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        log => log?,
    };
    log.seek(SeekFrom::Start(stop.offset))?;
    let mut rest: Option<File> = None;
    let mut piece = vec![0; READ_BYTES];
    loop {
        let length = log.read(&mut piece)?;
        let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { break };
        let to = match &mut rest {
            Some(rest) => rest,
            None => rest.insert(File::create(aside.join(format!("{name}-{}", stop.offset)))?),
        };
        to.write_all(read)?;
    }
    rest.map_or(Ok(()), |rest| rest.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(folder: &Path) -> Vec<(String, String)> {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file());
        let mut there: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap()))
            .collect();
        there.sort();
        there
    }

    fn files(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn dropped_log_remains_until_its_logs_are_in_tables() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, aside) = (folder.path(), folder.path().join(FOLDER));
        let stop = |log, offset| LogEnd { log, offset, why: "ends".into() };
        fs::write(folder.join("000006.log"), "before").unwrap();
        fs::write(folder.join("000007.log"), "0123456789").unwrap();
        fs::write(folder.join("000009.log"), "later").unwrap();
        let kept = files(&[("000007.log-4", "456789"), ("000009.log", "later")]);
        // An interrupted start is repeated.
        for _ in 0..2 {
            put(folder, &stop(7, 4), 6).unwrap();
            assert_eq!(there(&aside), kept);
            assert_eq!(there(folder), files(&[("000006.log", "before"), ("000007.log", "0123456789")]));
        }
        // A log that is missing as a whole, and no later one.
        put(folder, &stop(8, 0), 7).unwrap();
        assert_eq!(there(&aside), kept);
        fs::write(folder.join("000020.log"), "01234").unwrap();
        put(folder, &stop(20, 5), 12).unwrap();
        assert_eq!(there(&aside), []);
        put(folder, &stop(20, 1), 12).unwrap();
        assert_eq!(there(&aside), files(&[("000020.log-1", "1234")]));
    }
}
