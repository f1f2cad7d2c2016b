//! The records of the journal, shared by the layer that writes it and its reader.

/// The kind of a journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// File `a` existed before, at this path.
    Known = 1,
    /// File `a` was made at this path.
    Created = 2,
    /// These bytes were written to file `a` at offset `b`.
    Written = 3,
    /// File `a` has length `b`.
    Cut = 4,
    /// The contents of file `a` before record `b` are durable.
    Synced = 5,
    /// The names in this folder before record `b` are durable.
    FolderSynced = 6,
    /// A path was renamed to another.
    Renamed = 7,
    /// A hard link: a path, and a second one to the same file.
    Linked = 8,
    /// The name is gone.
    Unlinked = 9,
    /// A folder was made.
    FolderMade = 10,
    /// A folder is gone.
    FolderRemoved = 11,
    /// An operation that the journal cannot represent: readers fail.
    Strange = 12,
}
