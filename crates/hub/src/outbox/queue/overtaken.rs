//! Leaves work to the process that has taken it over.

use isobar_model::ids::DeviceKey;

use super::super::piece::{OutboxSize, Piece};
use super::OutboxQueue;

impl OutboxQueue {
    /// Removes a piece that another process has taken over, with its entries of the store.
    pub fn overtaken(&mut self, piece: &Piece) {
        self.leave_rows(piece);
        self.ends(piece);
    }

    /// Removes the work of a device of revisions up to this one, of which the store has none any more: another process has
    /// taken it over, and has written it. Later runs must neither see it nor write it again as part of theirs. Parked work
    /// stays. Returns true if there was any.
    pub fn forget_overtaken(&mut self, device: DeviceKey, revision: u64) -> bool {
        let Some(of) = self.devices.get_mut(&device).filter(|of| of.revision <= revision) else { return false };
        let (pieces, leaves_hand) = of.forget();
        for piece in &pieces {
            self.leave_rows(piece);
            self.sized(device, OutboxSize::default(), piece.size());
        }
        self.place(device);
        leaves_hand || !pieces.is_empty()
    }

    /// Returns true if entries of a device are to be removed from the store.
    pub fn has_needless(&self, device: DeviceKey) -> bool {
        self.needless.iter().any(|(of, _)| *of == device)
    }

    /// Leaves the entries of a piece in the store to the process that has taken them over.
    fn leave_rows(&mut self, piece: &Piece) {
        for row in piece.rows() {
            self.shared.remove(&row);
        }
        self.overtaken.insert(piece.device.key);
    }
}
