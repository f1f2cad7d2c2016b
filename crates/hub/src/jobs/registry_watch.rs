//! Checks if the registry answers. Calls and workers that wait for it in vain fail as busy; the cause and the duration
//! are logged here, once for all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_store::error::{Result, StoreError};

use super::Jobs;
use crate::supervisor::Shift;

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time in which a working registry answers a check.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Interval between two log lines about a registry that does not answer.
const TOLD_EVERY: Duration = Duration::from_secs(60);

impl Jobs {
    /// Checks if the registry answers, and logs with the cause when it stops answering, and when it answers again.
    pub(crate) async fn run_registry_watch(self: Arc<Self>, mut shift: Shift) {
        let mut silence = None;
        loop {
            self.env.reaches("registry_watch");
            let answer = tokio::select! {
                answer = self.env.registry().answers(ANSWERS_WITHIN) => answer,
                () = shift.end() => return,
            };
            if let Some(silent_for) = news(&mut silence, answer.is_ok(), self.env.clock().instant()) {
                tell(answer, silent_for);
            }
            shift.well();
            if shift.pause(LOOK_EVERY).await {
                return;
            }
        }
    }
}

fn tell(answer: Result<()>, silent_for: Duration) {
    let seconds = silent_for.as_secs();
    match answer {
        Ok(()) => tracing::info!(seconds, "the registry answers again"),
        Err(error @ StoreError::Unavailable(_)) => {
            tracing::error!(%error, seconds, "the registry cannot be reached");
        }
        Err(StoreError::Busy) => {
            tracing::warn!(seconds, "the registry does not answer in time: all its connections are in use");
        }
        Err(error) => tracing::error!(%error, seconds, "the registry does not work"),
    }
}

/// The time since which the registry is silent, and the time of the last log line about it.
type Silence = Option<(Instant, Instant)>;

/// Returns the duration of a silence to be logged after a check: when it begins, from time to time during it, and at
/// its end.
fn news(silence: &mut Silence, answers: bool, now: Instant) -> Option<Duration> {
    if answers {
        return silence.take().map(|(since, _)| now - since);
    }
    match silence {
        None => *silence = Some((now, now)),
        Some((_, told)) if now - *told < TOLD_EVERY => return None,
        Some((_, told)) => *told = now,
    }
    silence.map(|(since, _)| now - since)
}

#[cfg(test)]
mod tests {
    use isobar_model::time::Clock;

    use super::*;

    #[test]
    fn silence_is_logged_at_begin_in_between_and_at_end() {
        let begin = Clock::System.instant();
        let mut silence = None;
        let mut told = Vec::new();
        for second in (0..200).step_by(5) {
            let answers = !(20..170).contains(&second);
            if let Some(silent_for) = news(&mut silence, answers, begin + Duration::from_secs(second)) {
                told.push((second, answers, silent_for.as_secs()));
            }
        }
        assert_eq!(told, [(20, false, 0), (80, false, 60), (140, false, 120), (170, true, 150)]);
    }
}
