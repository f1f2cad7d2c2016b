//! Requests scheduling from the system.

#![allow(unsafe_code, reason = "the system calls have no safe interface")]

use std::ffi::CStr;
use std::time::Duration;

/// Scheduling policy of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `SCHED_OTHER`.
    Usual,
    /// `SCHED_BATCH`.
    Batch,
}

/// Sets the scheduling of this thread, if the system supports it. The slice is the time that it has a processor while
/// others wait for it too; `None` means the default. A thread with a shorter slice preempts one with a longer slice
/// when it is woken, since Linux 6.12; before, all are alike.
pub(crate) fn follow(policy: Policy, slice: Option<Duration>) {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::change(|attributes| {
        attributes.sched_policy = linux::number(policy);
        attributes.sched_runtime = linux::nanoseconds(slice);
    }) {
        tracing::debug!(%error, ?policy, ?slice, "a thread is scheduled like any other");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (policy, slice);
}

/// Sets the niceness and the time slice of this thread. On Linux both belong to a thread; elsewhere nothing is changed.
pub(crate) fn be_nice(niceness: i32, slice: Duration) {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::change(|attributes| {
        attributes.sched_nice = niceness;
        attributes.sched_runtime = linux::nanoseconds(Some(slice));
    }) {
        tracing::debug!(%error, "a thread runs at full priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (niceness, slice);
}

/// Sets how much longer this thread may sleep than it asks for. On Linux this belongs to a thread, 50 us by default;
/// elsewhere nothing is changed.
pub(crate) fn wake_within(slack: Duration) {
    #[cfg(target_os = "linux")]
    linux::set_timer_slack(slack);
    #[cfg(not(target_os = "linux"))]
    let _ = slack;
}

/// Returns the processor time that this thread has used, or `None` if the system does not report it.
pub(crate) fn processor_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return linux::processor_time();
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// Sets the name of this thread, as the system's tools show it.
pub(crate) fn call_this_thread(name: &CStr) {
    #[cfg(target_os = "linux")]
    linux::name_this_thread(name);
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

#[cfg(target_os = "linux")]
pub(crate) mod linux {
    use std::io;
    use std::mem::size_of;

    use super::{CStr, Duration, Policy};

    /// Changes the scheduling of this thread, in the named attributes only (sched_setattr(2)).
    pub fn change(change: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
        let mut attributes = of_this_thread()?;
        change(&mut attributes);
        // SAFETY: the pointer is to a local that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the scheduling of this thread (sched_getattr(2)).
    pub fn of_this_thread() -> io::Result<libc::sched_attr> {
        let size = size_of::<libc::sched_attr>() as u32;
        let mut attributes = libc::sched_attr {
            size,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the pointer is to a local of this size that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        if outcome == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets the name of this thread (prctl(2)), which cannot fail.
    pub fn name_this_thread(name: &CStr) {
        // SAFETY: the name ends with a zero, and nothing is kept of it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }

    /// Returns the processor time of this thread (clock_gettime(3)).
    pub fn processor_time() -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local of this type that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
        (outcome == 0).then(|| Duration::new(seconds, nanoseconds))
    }

    /// Sets the precision of this thread's sleeps (prctl(2)), which cannot fail.
    pub fn set_timer_slack(slack: Duration) {
        // SAFETY: nothing but numbers is passed.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds(Some(slack))) };
    }

    pub fn number(policy: Policy) -> u32 {
        let number = match policy {
            Policy::Usual => libc::SCHED_OTHER,
            Policy::Batch => libc::SCHED_BATCH,
        };
        number as u32
    }

    /// Converts a slice to nanoseconds; zero means the system's default.
    pub fn nanoseconds(slice: Option<Duration>) -> u64 {
        slice.and_then(|slice| u64::try_from(slice.as_nanos()).ok()).unwrap_or_default()
    }
}
