//! What an entry says, of a device or a project's design, as long as the entry has not been retired; and what that weighs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isobar_store::by_use::{Asked, TenantWeight};
use parking_lot::Mutex;

/// What entries say.
pub(crate) trait Weighed {
    /// About what an entry takes beside what it says, in bytes: itself, its places in the cache.
    const ENTRY_BYTES: usize;

    /// What it takes, in bytes.
    fn weight(&self) -> usize;
}

/// What an entry says. Once the entry is retired that is gone, however many still hold the entry; only a run that is under way
/// keeps it until its end.
pub(crate) struct Held<T> {
    state: Mutex<HeldState<T>>,
    /// Whether a run of the device goes by it. Set under the lock of `state`.
    in_run: AtomicBool,
    /// Whether the entry is the one of its device, or of its project, that runs go by.
    installed: AtomicBool,
    /// Whether somebody has asked for it since the cache last looked.
    used: AtomicBool,
    /// Where the entry stands among the installed ones of its tenant.
    place: AtomicU64,
}

struct HeldState<T> {
    says: Option<Arc<T>>,
    /// Where it is counted, as long as the entry is installed; and what was counted.
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

    /// What the entry says; none: it was retired, and a newer one says it.
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

    /// What it weighs.
    pub fn weight(&self) -> usize {
        self.state.lock().weight()
    }

    /// Whether the entry is the installed one.
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

    /// Whether what the tenant's entries weigh has to be noted anew.
    pub fn is_to_note(&self) -> bool {
        self.state.lock().counted.as_ref().is_some_and(|(tenant, _)| tenant.is_to_note())
    }

    /// Where the entry stands among those of its tenant; 0: it was never installed.
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
