//! Runs code that takes long on threads at idle priority (`SCHED_IDLE`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::{Answer, CodeThread, Source, Uplink};

/// Name of the threads.
const THREAD: &str = "isobar-heavy";
/// Longest time that a call waits for idle processors: the device's next event waits with it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most threads at a time, including those whose call was given up and that have not ended yet.
const THREADS_MAX: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Calls the codec on a thread of its own. Returns `None` if it did not finish within [`PATIENCE`] or too many calls
/// wait: then call it like any other.
pub(super) fn call(source: &Arc<Source>, uplink: &Uplink<'_>, time: Duration, thread: CodeThread) -> Option<Answer> {
    let permit = ThreadPermit::take()?;
    let given_up = Arc::new(AtomicBool::new(false));
    let (tell, told) = sync_channel(1);
    let (source, until) = (Arc::clone(source), Arc::clone(&given_up));
    let (bytes, f_port, received_at) = (uplink.bytes.to_vec(), uplink.f_port, uplink.received_at);
    let work = move || {
        let _permit = permit;
        if !until.load(Ordering::Relaxed) {
            let uplink = Uplink { bytes: &bytes, f_port, received_at };
            let called = catch_unwind(AssertUnwindSafe(|| source.call(&uplink, time, thread, Some(until))));
            // The caller may have given up.
            let _ = tell.send(called);
        }
    };
    isobar_threads::start_with_what_is_left(THREAD, work).ok()?;
    let called = told.recv_timeout(PATIENCE).ok();
    given_up.store(true, Ordering::Relaxed);
    // A panic is propagated to the caller.
    called.map(|called| called.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// One of the threads, until it is dropped.
struct ThreadPermit;

impl ThreadPermit {
    fn take() -> Option<Self> {
        let one_more = |threads: usize| (threads < THREADS_MAX).then_some(threads + 1);
        THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok().then_some(Self)
    }
}

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}
