//! Commits that wait for the writer: their rows, one after the other in a few large pieces of memory that go round between
//! those who send and the writer, so that nothing is set aside by one thread and freed by another for each commit.

use std::ops::Range;

use super::rows::{self, BatchRow, Rows};

/// Bytes of a piece; rows of one commit that are more get a piece of their own.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that are kept when they are empty.
const SPARE_PIECES_MAX: usize = 8;

/// Rows of many commits.
#[derive(Debug, Default)]
pub struct Gathered {
    pieces: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    commits: Vec<CommitRows>,
}

/// The rows of one commit.
#[derive(Clone, Debug)]
pub struct CommitRows {
    piece: usize,
    bytes: Range<usize>,
    /// Whether a series is created: the writer keeps the counter.
    pub creates: bool,
}

impl Gathered {
    /// Takes in the rows of a commit.
    pub fn push(&mut self, rows: &Rows) {
        let bytes = rows.bytes();
        let is_room = self.pieces.last().is_some_and(|piece| piece.capacity() - piece.len() >= bytes.len());
        if !is_room {
            let piece = self.spare.pop().filter(|piece| piece.capacity() >= bytes.len());
            self.pieces.push(piece.unwrap_or_else(|| Vec::with_capacity(bytes.len().max(PIECE_BYTES))));
        }
        let piece = self.pieces.len() - 1;
        let into = &mut self.pieces[piece];
        let from = into.len();
        into.extend_from_slice(bytes);
        let bytes = from..into.len();
        self.commits.push(CommitRows { piece, bytes, creates: rows.creates });
    }

    /// The commits, in the order they came.
    pub fn commits(&self) -> &[CommitRows] {
        &self.commits
    }

    /// The rows of a commit.
    pub fn rows(&self, commit: &CommitRows) -> impl Iterator<Item = BatchRow<'_>> {
        rows::read(&self.pieces[commit.piece][commit.bytes.clone()])
    }

    /// Empties it; a few pieces are kept for later.
    pub fn clear(&mut self) {
        self.commits.clear();
        for mut piece in self.pieces.drain(..) {
            if piece.capacity() == PIECE_BYTES && self.spare.len() < SPARE_PIECES_MAX {
                piece.clear();
                self.spare.push(piece);
            }
        }
    }
}

impl CommitRows {
    /// Bytes of its rows.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::Family;
    use super::*;

    proptest! {
        #[test]
        fn every_commit_comes_out_as_it_went_in(
            turns in prop::collection::vec(prop::collection::vec((0..3_usize, 0..2_u32), 0..40), 1..4)
        ) {
            let mut gathered = Gathered::default();
            for turn in turns {
                for (index, (size, outbox)) in turn.iter().enumerate() {
                    let mut rows = Rows::default();
                    let value = vec![index as u8; [0, 30_000, 2 * PIECE_BYTES][*size]];
                    rows.put(Family::Values, &index.to_be_bytes(), &[&value]);
                    (0..*outbox).for_each(|number| rows.outbox(7, number.into(), b"work"));
                    gathered.push(&rows);
                }
                prop_assert_eq!(gathered.commits().len(), turn.len());
                for (index, (commit, (size, outbox))) in gathered.commits().iter().zip(&turn).enumerate() {
                    let rows: Vec<_> = gathered.rows(commit).collect();
                    prop_assert_eq!(rows.len(), 1 + *outbox as usize);
                    prop_assert_eq!(rows[0].key, index.to_be_bytes());
                    prop_assert_eq!(rows[0].value.len(), [0, 30_000, 2 * PIECE_BYTES][*size]);
                    prop_assert!(rows[0].value.iter().all(|byte| *byte == index as u8));
                }
                gathered.clear();
                prop_assert!(gathered.commits().is_empty() && gathered.spare.len() <= SPARE_PIECES_MAX);
            }
        }
    }
}
