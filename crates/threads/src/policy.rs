//! What the system is asked for.

#![allow(unsafe_code, reason = "the system calls have no safe interface")]

use std::ffi::CStr;
use std::time::Duration;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `SCHED_OTHER`.
    Usual,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
}

/// This thread is scheduled so from here on, where the system knows how. The slice is how long it has a processor at a time
/// when others wait for it too; none: as long as any other. A thread with a shorter one takes the processor from one with a
/// longer one as soon as it is woken, since Linux 6.12; before, all are alike.
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

/// This thread is so nice from here on, and has such slices. On Linux that is a thread's own; elsewhere nothing is changed.
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

/// How much longer this thread may sleep than it asks for. On Linux that is a thread's own, 50 us if nothing is said; elsewhere
/// nothing is changed.
pub(crate) fn wake_within(slack: Duration) {
    #[cfg(target_os = "linux")]
    linux::set_timer_slack(slack);
    #[cfg(not(target_os = "linux"))]
    let _ = slack;
}

/// How long this thread has had a processor; none where the system does not tell.
pub(crate) fn processor_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return linux::processor_time();
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// What this thread is called from here on, where the system's tools tell of it.
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

    /// Changes how this thread is scheduled, and nothing that is not named (sched_setattr(2)).
    pub fn change(change: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
        let mut attributes = of_this_thread()?;
        change(&mut attributes);
        // SAFETY: the pointer is to a local that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How this thread is scheduled (sched_getattr(2)).
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

    /// Names it (prctl(2)), which cannot fail.
    pub fn name_this_thread(name: &CStr) {
        // SAFETY: the name ends with a zero, and nothing is kept of it.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }

    /// How long it has had a processor (clock_gettime(3)).
    pub fn processor_time() -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local of this type that outlives the call, and nothing is kept of it.
        let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
        (outcome == 0).then(|| Duration::new(seconds, nanoseconds))
    }

    /// Its sleeps end so exactly (prctl(2)), which cannot fail.
    pub fn set_timer_slack(slack: Duration) {
        // SAFETY: nothing but numbers is passed.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds(Some(slack))) };
    }

    pub fn number(policy: Policy) -> u32 {
        let number = match policy {
            Policy::Usual => libc::SCHED_OTHER,
            Policy::Batch => libc::SCHED_BATCH,
            Policy::Idle => libc::SCHED_IDLE,
        };
        number as u32
    }

    /// Zero: the system's own.
    pub fn nanoseconds(slice: Option<Duration>) -> u64 {
        slice.and_then(|slice| u64::try_from(slice.as_nanos()).ok()).unwrap_or_default()
    }
}
