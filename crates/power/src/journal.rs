//! Reads the journal of the layer.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

#[path = "../layer/kind.rs"]
mod kind;

pub use kind::Kind;

const HEAD_BYTES: usize = 21;

/// A record of the journal.
#[derive(Debug)]
pub struct Record {
    pub kind: Kind,
    pub a: u64,
    pub b: u64,
    pub bytes: Range<usize>,
}

/// Parses the records of a journal. Ignores an incomplete last one, which was cut off.
pub fn records(journal: &[u8]) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(head) = journal.get(at..at + HEAD_BYTES) {
        let number = |from: usize| head[from..from + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let length = head[17..].iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let bytes = at + HEAD_BYTES..at + HEAD_BYTES + length;
        if bytes.end > journal.len() {
            break;
        }
        at = bytes.end;
        records.push(Record { kind: kind(head[0])?, a: number(1), b: number(9), bytes });
    }
    Ok(records)
}

fn kind(number: u8) -> io::Result<Kind> {
    use Kind::{
        Created, Cut, FolderMade, FolderRemoved, FolderSynced, Known, Linked, Renamed, Strange, Synced, Unlinked,
        Written,
    };
    let all = [
        Known,
        Created,
        Written,
        Cut,
        Synced,
        FolderSynced,
        Renamed,
        Linked,
        Unlinked,
        FolderMade,
        FolderRemoved,
        Strange,
    ];
    all.into_iter().find(|kind| *kind as u8 == number).ok_or_else(|| io::Error::other("no journal of the layer"))
}

/// Returns the path of a record.
pub fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns both paths of a record that has two.
pub fn paths(bytes: &[u8]) -> io::Result<(&Path, &Path)> {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    match (parts.next(), parts.next()) {
        (Some(one), Some(other)) => Ok((path(one), path(other))),
        _ => Err(io::Error::other("a record lacks its second path")),
    }
}
