//! Notifications to a service manager such as systemd: ready, alive, stopping (`sd_notify(3)`). Without one, nothing is
//! sent.

use std::time::Duration;

use isobar_hub::Shift;
use sd_notify::NotifyState;

/// Shortest interval of watchdog notifications.
const SIGN_OF_LIFE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Reports that calls are served at this URL.
pub fn report_ready(url: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(&format!("Serves {url}"))]);
}

/// Reports that the process is stopping.
pub fn report_stopping() {
    report(&[NotifyState::Stopping, NotifyState::Status("Finishes what is under way")]);
}

/// Returns the interval of watchdog notifications: half of the service manager's limit. `None` if it has none.
pub fn sign_of_life_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| (limit / 2).max(SIGN_OF_LIFE_INTERVAL_MIN))
}

/// Sends watchdog notifications at this interval. The task shares the threads that serve calls: if these hang, it
/// stops, and the service manager restarts the process. A store that does not answer has no effect, as a restart would
/// not help.
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
