//! What the system is asked for.

#![allow(unsafe_code, reason = "the system calls have no safe interface")]

/// How a thread is scheduled that is not scheduled like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
}

/// This thread is scheduled so from here on, where the system knows how.
pub(crate) fn follow(policy: Policy) {
    #[cfg(target_os = "linux")]
    {
        let number = match policy {
            Policy::Batch => libc::SCHED_BATCH,
            Policy::Idle => libc::SCHED_IDLE,
        };
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is to a local that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::sched_setscheduler(0, number, &raw const parameters) };
        if outcome != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, ?policy, "a thread is scheduled like any other");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = policy;
}

/// This thread is so nice from here on. On Linux that is a thread's own; elsewhere it is the whole process's, and stays.
pub(crate) fn be_nice(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::debug!(%error, "a thread runs at full priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

/// How this thread is scheduled; none: like any other.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn of_this_thread() -> Option<Policy> {
    // SAFETY: the call takes a number and gives one.
    match unsafe { libc::sched_getscheduler(0) } {
        libc::SCHED_BATCH => Some(Policy::Batch),
        libc::SCHED_IDLE => Some(Policy::Idle),
        _ => None,
    }
}
