//! How tests wait: for a state, never for a time.

#![expect(clippy::disallowed_methods, reason = "the one place where tests wait by the machine's clock")]

use std::time::{Duration, Instant};

/// How long a test waits for what must come, in seconds of a machine that may be slow: reaching it is a failure, and nothing else is
/// told by it.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until there is something, and returns it.
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

/// Looks until something is so.
///
/// # Panics
/// It never is: the panic names `what`.
pub async fn becomes(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    settled(what, async || is_so().await.then_some(())).await;
}

/// Waits for what must come.
///
/// # Panics
/// It never comes: the panic names `what`.
pub async fn within_patience<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, coming).await {
        Ok(come) => come,
        Err(_) => never(what),
    }
}

/// Looks until there is something, and returns it: for a test without a runtime.
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

/// Looks until something is so: for a test without a runtime.
///
/// # Panics
/// It never is: the panic names `what`.
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
    async fn what_never_comes_is_named() {
        becomes("the bus", async || false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_seen_is_returned() {
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
