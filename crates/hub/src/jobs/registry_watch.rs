//! Whether the registry answers. Calls and workers that wait for it in vain hear that it is busy; why, and since when, the log
//! says here, once for all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_store::error::{Result, StoreError};

use super::Jobs;
use crate::supervisor::Shift;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A registry that takes longer does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Between two lines about a registry that is away.
const TOLD_EVERY: Duration = Duration::from_secs(60);

impl Jobs {
    /// Looks whether the registry answers, and logs when it no longer does, why, and when it does again.
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
        Err(StoreError::Unavailable(cause)) => {
            tracing::error!(error = %cause, seconds, "the registry cannot be reached");
        }
        Err(StoreError::Busy) => {
            tracing::warn!(seconds, "the registry does not answer in time: all its connections are in use");
        }
        Err(error) => tracing::error!(%error, seconds, "the registry does not work"),
    }
}

/// Since when the registry is silent, and when that was last told.
type Silence = Option<(Instant, Instant)>;

/// What is to be told after a look: that it has become silent, is so still, or answers again; and for how long it was.
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
    fn a_silence_is_told_when_it_begins_now_and_then_and_when_it_ends() {
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
