//! Collects commits for the writer: their rows, one after the other in a few large buffers that circulate between
//! senders and the writer, so that no thread allocates what another one frees for each commit.

use std::ops::Range;

use isobar_model::ids::OrganizationId;
use isobar_quota::{SharedAmount, TenantAmounts, limits};
use isobar_traces::{GROUP_LINKS_MAX, SpanLink};
use uuid::Uuid;

use super::rows::{self, BatchRow, Rows};

/// Bytes of a buffer; a commit with more bytes gets a buffer of its own.
const ROWS_PIECE_BYTES: usize = 128 << 10;
/// Empty buffers that are kept for reuse.
const SPARE_PIECES_MAX: usize = 8;

/// Bytes of queued rows, which tenants share.
const WAITING_BYTES: SharedAmount = SharedAmount::of(limits::COMMIT_BYTES.of_all);
/// Bytes up to which no tenant can exceed its share.
pub const BYTES_FOR_ALL: usize = WAITING_BYTES.of_one();
/// Bytes beyond which every tenant is refused; up to them, each tenant with nothing queued may still send a commit.
const WAITING_BYTES_FULL: usize = 48 << 20;

/// Tenant of rows, or `None` for the system's own.
pub type Tenant = Option<OrganizationId>;

/// Rows of many commits.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Bytes of rows, by tenant.
    held: TenantAmounts,
    pieces: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    commits: Vec<CommitRows>,
    /// Spans of calls that are traced.
    traced: Vec<SpanLink>,
}

/// Rows of one commit.
#[derive(Clone, Debug)]
pub struct CommitRows {
    piece: usize,
    bytes: Range<usize>,
    /// True if a series is created: then the writer stores the counter.
    pub creates: bool,
}

impl Gathered {
    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.held.all()
    }

    /// Returns true if a tenant may queue more rows.
    pub fn has_room(&self, tenant: Tenant) -> bool {
        let own = self.held.of(organization(tenant));
        let has_part = own.of_site == 0 || WAITING_BYTES.allows(own, self.bytes());
        self.bytes() < WAITING_BYTES_FULL && has_part
    }

    /// Adds the rows of a tenant's commit.
    pub fn push(&mut self, rows: &Rows, tenant: Tenant) {
        let bytes = rows.bytes();
        self.held.change(organization(tenant), 0, bytes.len());
        let is_room = self.pieces.last().is_some_and(|piece| piece.capacity() - piece.len() >= bytes.len());
        if !is_room {
            let piece = self.spare.pop().filter(|piece| piece.capacity() >= bytes.len());
            self.pieces.push(piece.unwrap_or_else(|| Vec::with_capacity(bytes.len().max(ROWS_PIECE_BYTES))));
        }
        let piece = self.pieces.len() - 1;
        let into = &mut self.pieces[piece];
        let from = into.len();
        into.extend_from_slice(bytes);
        let bytes = from..into.len();
        self.commits.push(CommitRows { piece, bytes, creates: rows.creates });
        if let Some(caller) = isobar_traces::current()
            && self.traced.len() <= GROUP_LINKS_MAX
        {
            self.traced.push(caller);
        }
    }

    /// Takes the spans of calls that are traced.
    pub fn take_traced(&mut self) -> Vec<SpanLink> {
        std::mem::take(&mut self.traced)
    }

    /// Returns the commits, in the order of sending.
    pub fn commits(&self) -> &[CommitRows] {
        &self.commits
    }

    /// Returns the rows of a commit.
    pub fn rows(&self, commit: &CommitRows) -> impl Iterator<Item = BatchRow<'_>> {
        rows::read(&self.pieces[commit.piece][commit.bytes.clone()])
    }

    /// Removes all commits; keeps a few buffers for reuse.
    pub fn clear(&mut self) {
        self.held.clear();
        self.commits.clear();
        for mut piece in self.pieces.drain(..) {
            if piece.capacity() == ROWS_PIECE_BYTES && self.spare.len() < SPARE_PIECES_MAX {
                piece.clear();
                self.spare.push(piece);
            }
        }
    }
}

/// Returns the organization to charge; the system's own rows are charged to the nil organization.
fn organization(tenant: Tenant) -> OrganizationId {
    tenant.unwrap_or(OrganizationId(Uuid::nil()))
}

impl CommitRows {
    /// Returns the bytes of its rows.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::site::Site;
    use proptest::prelude::*;

    use super::super::keys::Family;
    use super::*;

    #[test]
    fn tenant_with_many_waiting_rows_is_refused_alone() {
        const COMMIT: usize = 256 << 10;
        let tenant = |number| Some(OrganizationId(Uuid::from_u128(number)));
        let mut large = Rows::default();
        large.put(Family::Values, b"key", &[&vec![0; COMMIT]]);
        let mut gathered = Gathered::default();
        let mut fill = |of: Tenant| {
            let mut count = 0;
            while count < 200 && gathered.has_room(of) {
                gathered.push(&large, of);
                count += 1;
            }
            (count, gathered.bytes())
        };
        assert!(BYTES_FOR_ALL < fill(tenant(1)).1 + COMMIT);
        for number in 2..6 {
            let (count, bytes) = fill(tenant(number));
            assert!(count > 0 && bytes < limits::COMMIT_BYTES.of_all + 2 * COMMIT, "{count} commits, {bytes} bytes");
        }
        // Later tenants may have a commit too, until the full bound is reached.
        let last = (6..1_000).take_while(|number| fill(tenant(*number)).0 > 0).count();
        assert!(
            last > 8 && gathered.bytes() < WAITING_BYTES_FULL + COMMIT + 64,
            "{last} tenants, {} bytes",
            gathered.bytes()
        );
        gathered.clear();
        assert!(gathered.bytes() == 0 && gathered.has_room(tenant(1)));
    }

    #[test]
    fn tenants_of_one_site_share_one_part_of_waiting_rows() {
        let tenant = |number: u128| Some(Site::of_tag(7).founds(Uuid::from_u128(number << 32)));
        let mut large = Rows::default();
        large.put(Family::Values, b"key", &[&vec![0; 1 << 20]]);
        let mut gathered = Gathered::default();
        let mut comes = |number: u128| {
            let has_room = gathered.has_room(tenant(number));
            gathered.push(&large, tenant(number));
            has_room
        };
        let crowd = (1..100).take_while(|number| comes(*number)).count();
        assert!(crowd << 20 <= limits::COMMIT_BYTES.of_all, "{crowd}");
        assert!(gathered.has_room(Some(OrganizationId(Uuid::from_u128(1)))));
    }

    proptest! {
        #[test]
        fn gathered_commits_keep_their_rows(
            turns in prop::collection::vec(prop::collection::vec((0..3_usize, 0..2_u32), 0..40), 1..4)
        ) {
            let mut gathered = Gathered::default();
            for turn in turns {
                for (index, (size, outbox)) in turn.iter().enumerate() {
                    let mut rows = Rows::default();
                    let value = vec![index as u8; [0, 30_000, 2 * ROWS_PIECE_BYTES][*size]];
                    rows.put(Family::Values, &index.to_be_bytes(), &[&value]);
                    (0..*outbox).for_each(|number| rows.outbox(7, number.into(), b"work"));
                    gathered.push(&rows, None);
                }
                prop_assert_eq!(gathered.commits().len(), turn.len());
                for (index, (commit, (size, outbox))) in gathered.commits().iter().zip(&turn).enumerate() {
                    let rows: Vec<_> = gathered.rows(commit).collect();
                    prop_assert_eq!(rows.len(), 1 + *outbox as usize);
                    prop_assert_eq!(rows[0].key, index.to_be_bytes());
                    prop_assert_eq!(rows[0].value.len(), [0, 30_000, 2 * ROWS_PIECE_BYTES][*size]);
                    prop_assert!(rows[0].value.iter().all(|byte| *byte == index as u8));
                }
                gathered.clear();
                prop_assert!(gathered.commits().is_empty() && gathered.spare.len() <= SPARE_PIECES_MAX);
            }
        }
    }
}
