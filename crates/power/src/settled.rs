//! How tests wait: for a state, never for a time.

use std::time::Duration;

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
#[expect(clippy::panic, reason = "for tests alone")]
pub async fn within_patience<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, coming).await {
        Ok(come) => come,
        Err(_) => panic!("never comes: {what}"),
    }
}
