//! Reports to the service manager that started the process, such as systemd: ready, alive, stopping (`sd_notify(3)`).
//! Without one, nothing is sent.

use std::time::Duration;

use isobar_hub::Shift;
use sd_notify::NotifyState;

/// Shortest time between two signs of life, whatever the service manager asks for.
const SIGN_OF_LIFE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Reports that calls are answered at this address.
pub fn report_ready(url: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(&format!("Serves {url}"))]);
}

/// Reports that the process finishes what is under way and ends.
pub fn report_stopping() {
    report(&[NotifyState::Stopping, NotifyState::Status("Finishes what is under way")]);
}

/// Returns how often the service manager wants a sign of life: twice within its time limit. None: it wants none.
pub fn sign_of_life_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| (limit / 2).max(SIGN_OF_LIFE_INTERVAL_MIN))
}

/// Reports a sign of life at this interval. It is a task like those that serve calls: when no thread runs these, it ceases,
/// and the service manager starts the process anew. A store that does not answer is no reason: a restart would not help.
pub async fn report_alive(interval: Duration, mut shift: Shift) {
    loop {
        report(&[NotifyState::Watchdog]);
        shift.well();
        if shift.pause(interval).await {
            return;
        }
    }
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot report to the service manager");
    }
}
