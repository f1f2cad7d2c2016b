//! The words of the journal, for the layer that writes it and for whoever reads it.

/// What a record of the journal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// File `a` is the one at this path.
    Known = 1,
    /// File `a` was made at this path.
    Created = 2,
    /// These bytes were written to file `a` at offset `b`.
    Written = 3,
    /// File `a` has length `b`.
    Cut = 4,
    /// What file `a` was before record `b` is on the disk.
    Synced = 5,
    /// The names in this folder as they were before record `b` are on the disk.
    FolderSynced = 6,
    /// A path, and the one it is called from here on.
    Renamed = 7,
    /// A path, and one by which the same file is found too.
    Linked = 8,
    /// The name is gone.
    Unlinked = 9,
    /// A folder was made.
    FolderMade = 10,
    /// A folder is gone.
    FolderRemoved = 11,
    /// Something that the journal cannot tell: whoever reads it gives up.
    Strange = 12,
}
