//! The content of a cache entry (of a device or a project's design) until the entry is retired, and its weight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use isobar_quota::LruPlace;
use parking_lot::Mutex;

/// Content of entries.
pub(crate) trait Weighed {
    /// Approximate bytes of an entry in addition to its content: itself, and its places in the caches.
    const ENTRY_BYTES: usize;

    /// Returns the bytes of the content.
    fn weight(&self) -> usize;
}

/// The content of an entry. It is dropped when the entry is retired, even if others still refer to the entry; only a
/// current run keeps it until its end.
pub(crate) struct Held<T> {
    content: Mutex<Option<Arc<T>>>,
    /// True while a run of the device uses the content. Set under its lock.
    in_run: AtomicBool,
    /// The entry's place in the cache, once it was installed.
    place: OnceLock<Arc<LruPlace>>,
}

/// A run that uses the content of an entry until this is dropped.
pub(crate) struct InRun<'a, T>(&'a Held<T>);

impl<T: Weighed> Held<T> {
    pub fn new(content: T) -> Self {
        let content = Mutex::new(Some(Arc::new(content)));
        Self { content, in_run: AtomicBool::new(false), place: OnceLock::new() }
    }

    /// Returns the content, or `None` if the entry was retired and a newer one has it.
    pub fn get(&self) -> Option<Arc<T>> {
        self.content.lock().clone()
    }

    /// Begins a run, which keeps the entry from eviction, or returns `None` if the entry was retired. The caller holds
    /// the device's lock.
    pub fn begin_run(&self) -> Option<(Arc<T>, InRun<'_, T>)> {
        let content = self.content.lock();
        let found = content.clone().filter(|_| !self.has_left())?;
        self.in_run.store(true, Ordering::SeqCst);
        Some((found, InRun(self)))
    }

    /// Changes the content, unless the entry was retired.
    pub fn change(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        if let Some(content) = &mut *self.content.lock() {
            change(Arc::make_mut(content));
            self.weigh(content);
        }
    }

    /// Restores former content, unless the entry was retired.
    pub fn restore(&self, before: Arc<T>) {
        if let Some(content) = &mut *self.content.lock() {
            *content = before;
            self.weigh(content);
        }
    }

    /// Returns the weight of the entry.
    pub fn weight(&self) -> usize {
        T::ENTRY_BYTES + self.content.lock().as_ref().map_or(0, |content| content.weight())
    }

    fn weigh(&self, content: &T) {
        if let Some(place) = self.place.get() {
            place.set_weight(T::ENTRY_BYTES + content.weight());
        }
    }

    /// Stores the place of the entry in its cache. From now on runs use the entry.
    pub fn install(&self, place: &Arc<LruPlace>) {
        // An entry is installed once. If it comes again, it stays retired.
        let _ = self.place.set(Arc::clone(place));
    }

    /// Retires the entry, unless a run uses it; returns true if it did. [`Held::retire`] drops the content afterwards.
    pub fn leave(&self) -> bool {
        let _content = self.content.lock();
        let is_idle = !self.in_run.load(Ordering::SeqCst);
        if is_idle {
            self.mark_left();
        }
        is_idle
    }

    /// Retires the entry: no new run uses it, and its content is dropped, now or at the end of the current run.
    pub fn retire(&self) {
        // Before the look at the run, which looks at this after its end: one of the two drops the content.
        self.mark_left();
        let mut content = self.content.lock();
        if !self.in_run.load(Ordering::SeqCst) {
            *content = None;
        }
    }
}

impl<T> Held<T> {
    /// Returns true if the entry is the installed one.
    pub fn is_installed(&self) -> bool {
        self.place.get().is_some_and(|place| place.is_cached())
    }

    fn has_left(&self) -> bool {
        self.place.get().is_some_and(|place| !place.is_cached())
    }

    fn mark_left(&self) {
        if let Some(place) = self.place.get() {
            place.leave();
        }
    }

    /// Notes a use of the entry, which delays its eviction.
    pub fn note_use(&self) {
        if let Some(place) = self.place.get() {
            place.note_use();
        }
    }

    /// Returns the entry's place in the cache, or `None` if it was never installed.
    pub fn place(&self) -> Option<&LruPlace> {
        self.place.get().map(|place| &**place)
    }
}

impl<T> Drop for InRun<'_, T> {
    fn drop(&mut self) {
        let Self(held) = self;
        held.in_run.store(false, Ordering::SeqCst);
        if !held.is_installed() {
            *held.content.lock() = None;
        }
    }
}
