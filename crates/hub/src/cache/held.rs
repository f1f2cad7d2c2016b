//! The content of a cache entry (of a device or a project's design) until the entry is retired, and its weight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isobar_store::by_use::{Asked, TenantWeight};
use parking_lot::Mutex;

/// Content of entries.
pub(crate) trait Weighed {
    /// About what an entry takes beside what it says, in bytes: itself, its places in the cache.
    const ENTRY_BYTES: usize;

    /// Returns its bytes.
    fn weight(&self) -> usize;
}

/// The content of an entry. It is gone once the entry is retired, even if others still hold the entry; only a run that is
/// under way keeps it until its end.
pub(crate) struct Held<T> {
    state: Mutex<HeldState<T>>,
    /// True while a run of the device uses it. Set under the lock of `state`.
    in_run: AtomicBool,
    /// True if runs use this entry for its device or project.
    installed: AtomicBool,
    /// True if it was used since the cache last examined it.
    used: AtomicBool,
    /// Place of the entry in the order of its tenant.
    place: AtomicU64,
}

struct HeldState<T> {
    says: Option<Arc<T>>,
    /// The counter of its weight, as long as the entry is installed, and the counted weight.
    counted: Option<(Arc<TenantWeight>, usize)>,
}

/// A run goes by what the entry says, until this is dropped.
pub(crate) struct InRun<'a, T>(&'a Held<T>);

impl<T: Weighed> HeldState<T> {
    fn weight(&self) -> usize {
        T::ENTRY_BYTES + self.says.as_ref().map_or(0, |says| says.weight())
    }

    fn count_again(&mut self) {
        let weight = self.weight();
        if let Some((tenant, counted)) = &mut self.counted {
            tenant.change(std::mem::replace(counted, weight), weight);
        }
    }

    fn uncount(&mut self) {
        if let Some((tenant, counted)) = self.counted.take() {
            tenant.change(counted, 0);
        }
    }
}

impl<T: Weighed> Held<T> {
    pub fn new(says: T) -> Self {
        let state = Mutex::new(HeldState { says: Some(Arc::new(says)), counted: None });
        Self {
            state,
            in_run: AtomicBool::new(false),
            installed: AtomicBool::new(false),
            used: AtomicBool::new(false),
            place: AtomicU64::new(0),
        }
    }

    /// Returns the content, or `None` if the entry was retired and a newer one has it.
    pub fn get(&self) -> Option<Arc<T>> {
        self.state.lock().says.clone()
    }

    /// A run of the device begins; none: the entry was retired. While it lasts the entry does not have to make room. To be
    /// asked while the device is locked.
    pub fn begin_run(&self) -> Option<(Arc<T>, InRun<'_, T>)> {
        let state = self.state.lock();
        let says = Arc::clone(state.says.as_ref()?);
        self.in_run.store(true, Ordering::SeqCst);
        Some((says, InRun(self)))
    }

    /// Changes what the entry says, unless it was retired.
    pub fn change(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        let mut state = self.state.lock();
        if let Some(says) = &mut state.says {
            change(Arc::make_mut(says));
            state.count_again();
        }
    }

    /// The entry says this again, unless it was retired.
    pub fn restore(&self, before: Arc<T>) {
        let mut state = self.state.lock();
        if let Some(says) = &mut state.says {
            *says = before;
            state.count_again();
        }
    }

    /// Returns its weight.
    pub fn weight(&self) -> usize {
        self.state.lock().weight()
    }

    /// Returns true if the entry is the installed one.
    pub fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Acquire)
    }

    /// Somebody has asked for the entry: it is kept before others.
    pub fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Has the entry leave, unless it is spared because somebody has asked for it since this was last asked, or a run goes by
    /// it just now. Whether it has left.
    pub fn leaves(&self, asked: Asked) -> bool {
        let is_spared = self.used.swap(false, Ordering::Relaxed) && asked.spares_used;
        let leaves = !is_spared && self.retire_if_idle();
        if !leaves {
            self.place.store(asked.place, Ordering::Relaxed);
        }
        leaves
    }

    /// Returns true if the weight of the tenant's entries must be noted again.
    pub fn is_to_note(&self) -> bool {
        self.state.lock().counted.as_ref().is_some_and(|(tenant, _)| tenant.is_to_note())
    }

    /// Returns the place of the entry in the order of its tenant; 0 if it was never installed.
    pub fn place(&self) -> u64 {
        self.place.load(Ordering::Relaxed)
    }

    /// From here on runs go by it. It stands at this place among the entries of its tenant, whose weight grows.
    pub fn install(&self, tenant: &Arc<TenantWeight>, place: u64) {
        self.place.store(place, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.uncount();
        state.counted = Some((Arc::clone(tenant), 0));
        state.count_again();
        self.installed.store(true, Ordering::SeqCst);
    }

    /// No run goes by it any more, and it says nothing from here on, or from the end of the run that is under way.
    pub fn retire(&self) {
        // Before the look at the run, which looks at this after its end: one of the two lets go of what it says.
        self.installed.store(false, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.uncount();
        if !self.in_run.load(Ordering::SeqCst) {
            state.says = None;
        }
    }

    /// The same, if no run goes by it just now. Whether that was so.
    fn retire_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        if self.in_run.load(Ordering::SeqCst) {
            return false;
        }
        self.installed.store(false, Ordering::SeqCst);
        state.uncount();
        state.says = None;
        true
    }
}

impl<T> Drop for InRun<'_, T> {
    fn drop(&mut self) {
        let Self(held) = self;
        held.in_run.store(false, Ordering::SeqCst);
        if !held.installed.load(Ordering::SeqCst) {
            held.state.lock().says = None;
        }
    }
}
