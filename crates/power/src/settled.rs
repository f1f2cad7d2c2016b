//! Helpers with which tests wait: for a state, never for a time.

#![expect(clippy::disallowed_methods, reason = "the one place where tests wait by the machine's clock")]

use std::time::{Duration, Instant};

/// Longest wait for a state, long enough for a slow machine: reaching it is a failure, and says nothing else.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two polls.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Polls until there is a value, and returns it.
///
/// # Panics
/// It never comes: the panic names `what`.
pub async fn settled<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let comes = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    within_patience(what, comes).await
}

/// Polls until a condition holds.
///
/// # Panics
/// It never does: the panic names `what`.
pub async fn becomes(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    settled(what, async || is_so().await.then_some(())).await;
}

/// Awaits a future, for [`PATIENCE`] at most.
///
/// # Panics
/// It never comes: the panic names `what`.
pub async fn within_patience<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, coming).await {
        Ok(come) => come,
        Err(_) => never(what),
    }
}

/// Polls until there is a value, and returns it: for a test without a runtime.
///
/// # Panics
/// It never comes: the panic names `what`.
pub fn settled_blocking<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        if begun.elapsed() > PATIENCE {
            never(what);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Polls until a condition holds: for a test without a runtime.
///
/// # Panics
/// It never does: the panic names `what`.
pub fn becomes_blocking(what: &str, mut is_so: impl FnMut() -> bool) {
    settled_blocking(what, || is_so().then_some(()));
}

#[expect(clippy::panic, reason = "for tests alone")]
fn never(what: &str) -> ! {
    panic!("never comes: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "never comes: the bus")]
    async fn wait_that_fails_names_the_state() {
        becomes("the bus", async || false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn wait_returns_what_it_found() {
        let mut looks = 0;
        let third = settled("the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third.await, 3);
        let mut looks = 0..3;
        becomes_blocking("the end of looks", || looks.next().is_none());
    }
}
