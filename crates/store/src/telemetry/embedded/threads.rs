//! How the store's threads are scheduled.

#![allow(unsafe_code, reason = "the system call has no safe interface")]

/// This thread works on what has gathered: on Linux it does not push aside the thread that woke it, which would only have
/// gathered more. Both still get their share of the processors.
pub fn let_others_finish() {
    #[cfg(target_os = "linux")]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is to a local that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
        if outcome != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "a thread of the store is scheduled like any other");
        }
    }
}
