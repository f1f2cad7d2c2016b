//! What an entry says of its device, as long as the entry has not been retired; and what that weighs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use isobar_design::DeviceView;
use parking_lot::Mutex;

/// About what an entry takes beside its name, metadata and settings, in bytes: itself, its places in the cache, its token.
pub(crate) const ENTRY_BYTES: usize = 768;

/// What the entries of one tenant weigh, and with them those of all, in bytes.
pub(crate) struct TenantWeight {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl TenantWeight {
    pub fn new(all: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { own: AtomicUsize::new(0), all: Arc::clone(all) })
    }

    /// What they weigh now.
    pub fn get(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn change(&self, before: usize, after: usize) {
        let more = after.wrapping_sub(before);
        self.own.fetch_add(more, Ordering::Relaxed);
        self.all.fetch_add(more, Ordering::Relaxed);
    }
}

/// What an entry says of its device. Once the entry is retired that is gone, however many still hold the entry; only a run
/// that is under way keeps it until its end.
pub(crate) struct HeldView {
    state: Mutex<ViewState>,
    /// Whether a run of the device goes by it. Set under the lock of `state`.
    in_run: AtomicBool,
    /// Whether the entry is the one of its device that runs go by.
    installed: AtomicBool,
}

struct ViewState {
    view: Option<Arc<DeviceView>>,
    /// Where it is counted, as long as the entry is installed; and what was counted.
    counted: Option<(Arc<TenantWeight>, usize)>,
}

/// A run goes by what the entry says, until this is dropped.
pub(crate) struct InRun<'a>(&'a HeldView);

impl ViewState {
    fn weight(&self) -> usize {
        let says = |view: &Arc<DeviceView>| view.name.len() + view.meta.bytes().len() + view.settings_bytes();
        ENTRY_BYTES + self.view.as_ref().map_or(0, says)
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

impl HeldView {
    pub fn new(view: DeviceView) -> Self {
        let state = Mutex::new(ViewState { view: Some(Arc::new(view)), counted: None });
        Self { state, in_run: AtomicBool::new(false), installed: AtomicBool::new(false) }
    }

    /// What the entry says; none: it was retired, and a newer one says it.
    pub fn get(&self) -> Option<Arc<DeviceView>> {
        self.state.lock().view.clone()
    }

    /// A run of the device begins; none: the entry was retired. While it lasts the entry does not have to make room. To be
    /// asked while the device is locked.
    pub fn begin_run(&self) -> Option<(Arc<DeviceView>, InRun<'_>)> {
        let state = self.state.lock();
        let view = Arc::clone(state.view.as_ref()?);
        self.in_run.store(true, Ordering::SeqCst);
        Some((view, InRun(self)))
    }

    /// Changes what the entry says, unless it was retired.
    pub fn change(&self, change: impl FnOnce(&mut DeviceView)) {
        let mut state = self.state.lock();
        if let Some(view) = &mut state.view {
            change(Arc::make_mut(view));
            state.count_again();
        }
    }

    /// The entry says this again, unless it was retired.
    pub fn restore(&self, before: Arc<DeviceView>) {
        let mut state = self.state.lock();
        if let Some(view) = &mut state.view {
            *view = before;
            state.count_again();
        }
    }

    /// What it weighs.
    pub fn weight(&self) -> usize {
        self.state.lock().weight()
    }

    /// Whether the entry is the installed one of its device.
    pub fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Acquire)
    }

    /// From here on runs go by it, and it counts among the entries of its tenant.
    pub fn install(&self, tenant: &Arc<TenantWeight>) {
        let mut state = self.state.lock();
        state.uncount();
        state.counted = Some((Arc::clone(tenant), 0));
        state.count_again();
        self.installed.store(true, Ordering::SeqCst);
    }

    /// No run goes by it any more, and it says nothing from here on, or from the end of the run that is under way.
    pub fn retire(&self) {
        // Before the look at the run, which looks at this after its end: one of the two lets go of the view.
        self.installed.store(false, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.uncount();
        if !self.in_run.load(Ordering::SeqCst) {
            state.view = None;
        }
    }

    /// The same, if no run goes by it just now. Whether that was so.
    pub fn retire_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        if self.in_run.load(Ordering::SeqCst) {
            return false;
        }
        self.installed.store(false, Ordering::SeqCst);
        state.uncount();
        state.view = None;
        true
    }
}

impl Drop for InRun<'_> {
    fn drop(&mut self) {
        let Self(held) = self;
        held.in_run.store(false, Ordering::SeqCst);
        if !held.installed.load(Ordering::SeqCst) {
            held.state.lock().view = None;
        }
    }
}
