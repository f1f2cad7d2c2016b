//! What takes long and is done in slices: between two of them others have their turn (see [`crate::turns`]).

use super::{Cancel, Core, Embedded};
use crate::error::Result;
use crate::turns::{Slice, Turn};

/// Work that can be left and taken up again.
pub trait Sliced: Send + 'static {
    /// What it comes to.
    type Done: Send + 'static;

    /// Goes on until it is done, or until the slice is over: then none, and it is asked again.
    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self::Done>>;
}

/// How long a slice lasts, and whether the caller is there.
pub struct Watch<'a> {
    slice: Slice<'a>,
    cancel: &'a Cancel,
}

impl Watch<'_> {
    /// A row of so many bytes was worked on; whether there is time for the next. An error if the caller has gone: nobody
    /// hears it.
    pub fn goes_on(&mut self, bytes: usize) -> Result<bool> {
        if !self.slice.is_time_to_look(bytes) {
            return Ok(true);
        }
        self.cancel.check()?;
        Ok(self.slice.goes_on())
    }
}

impl Embedded {
    /// Does work in its turns. When the caller goes, the turn is over as soon as the thread has noticed it, not before: so
    /// there are never more threads at this than turns.
    pub(super) async fn in_slices<W: Sliced>(&self, mut turn: Turn, mut work: W) -> Result<W::Done> {
        loop {
            let slice = move |core: &Core, cancel: &Cancel| {
                cancel.check()?;
                let mut watch = Watch { slice: turn.slice(), cancel };
                let done = work.go_on(core, &mut watch)?;
                drop(watch);
                Ok((turn, work, done))
            };
            match self.reading(slice).await? {
                (_, _, Some(done)) => return Ok(done),
                (held, rest, None) => (turn, work) = (held.pass_on().await?, rest),
            }
        }
    }

    /// Does work within one turn.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        turn: Turn,
        work: impl FnOnce(&Core, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.reading(move |core, cancel| {
            let _turn = turn;
            cancel.check()?;
            work(core, cancel)
        })
        .await
    }
}
