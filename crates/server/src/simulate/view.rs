//! The live view: a few lines redrawn on a terminal, otherwise a line a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::style::TemplateError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use isobar_model::time::Clock;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::stats::{Stats, StatsSnapshot, millis};
use crate::output;

/// Interval of the rate.
const TICK: Duration = Duration::from_secs(1);
/// Time between two checks whether the run has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Most kinds of errors on the terminal; the summary lists all.
const ERROR_KINDS_SHOWN: usize = 8;

/// Properties of the run that the view shows.
pub struct Scene {
    /// The server and the profile.
    pub title: String,
    /// Duration after which it ends by itself.
    pub duration: Option<Duration>,
    /// True to print lines to standard error, as standard output is for JSON.
    pub is_json: bool,
}

/// The end of the run, for the thread of the view.
pub struct Stop {
    stop: watch::Receiver<bool>,
    clock: Clock,
    runtime: Handle,
}

impl Stop {
    /// Makes it; must be called in the run's runtime.
    pub fn new(stop: &watch::Receiver<bool>, clock: &Clock) -> Self {
        Self { stop: stop.clone(), clock: clock.clone(), runtime: Handle::current() }
    }

    /// Waits for the next check. Returns false if the run has ended.
    fn look(&mut self) -> bool {
        self.runtime.block_on(self.clock.timeout(LOOK_PAUSE, self.stop.wait_for(|stop| *stop))).is_err()
    }
}

/// Shows the run until it ends.
pub fn show(scene: &Scene, stats: &Arc<Stats>, stop: Stop) {
    if output::is_terminal() {
        if let Err(error) = show_live(scene, stats, stop) {
            output::note(&format!("simulate: the terminal cannot show the view: {error}"));
        }
    } else {
        show_lines(scene, stats, stop);
    }
}

/// Rate and counts of the last second.
struct Pulse {
    begun: Instant,
    ticked: Instant,
    rate: u64,
    last: StatsSnapshot,
}

impl Pulse {
    fn new(now: Instant) -> Self {
        Self { begun: now, ticked: now, rate: 0, last: StatsSnapshot::default() }
    }

    /// Measures once a second; returns true if it did.
    fn tick(&mut self, stats: &Stats, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.ticked);
        if since < TICK {
            return false;
        }
        let seen = stats.look();
        self.rate = ((seen.events - self.last.events) as f64 / since.as_secs_f64()).round() as u64;
        (self.ticked, self.last) = (now, seen);
        true
    }

    /// Returns the length of the run up to the last measurement, in seconds.
    fn seconds(&self) -> u64 {
        (self.ticked - self.begun).as_secs()
    }

    /// Returns the number of waits for rate limits in words, if there were any.
    fn spent(&self) -> Option<String> {
        let spent = self.last.spent;
        (spent > 0).then(|| format!("{spent} rate limits spent"))
    }
}

fn show_lines(scene: &Scene, stats: &Stats, mut stop: Stop) {
    let mut pulse = Pulse::new(stop.clock.instant());
    while stop.look() {
        if pulse.tick(stats, stop.clock.instant()) {
            let spent = pulse.spent().map(|spent| format!("  {spent}")).unwrap_or_default();
            let line = format!(
                "{:>5} s  {:>7} events/s  p50 {:>7} ms  p99 {:>7} ms  {} events  {} errors{spent}",
                pulse.seconds(),
                pulse.rate,
                millis(pulse.last.latency.p50),
                millis(pulse.last.latency.p99),
                pulse.last.events,
                pulse.last.error_count()
            );
            // A reader that is gone misses lines, and the run goes on.
            if scene.is_json { output::note(&line) } else { drop(output::print(&format!("{line}\n"))) }
        }
    }
}

fn show_live(scene: &Scene, stats: &Stats, mut stop: Stop) -> Result<(), TemplateError> {
    let seconds = scene.duration.map(|duration| duration.as_secs());
    let bar = ProgressBar::with_draw_target(seconds, ProgressDrawTarget::stdout()).with_style(style(seconds)?);
    let mut pulse = Pulse::new(stop.clock.instant());
    bar.set_message(lines(scene, &pulse));
    while stop.look() {
        if pulse.tick(stats, stop.clock.instant()) {
            bar.set_message(lines(scene, &pulse));
            bar.set_position(pulse.seconds());
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn style(seconds: Option<u64>) -> Result<ProgressStyle, TemplateError> {
    ProgressStyle::with_template(match seconds {
        Some(_) => "{msg}\n{bar:40} {pos} of {len} s   Ctrl+C: end",
        None => "{msg}\n{pos} s   Ctrl+C: end",
    })
}

fn lines(scene: &Scene, pulse: &Pulse) -> String {
    let StatsSnapshot { events, latency, errors, .. } = &pulse.last;
    let spent = pulse.spent().map(|spent| format!("   {spent}")).unwrap_or_default();
    let mut text = format!(
        "{}\n{} events/s   {events} events{spent}\nlatency, last second: p50 {} ms, p90 {} ms, p99 {} ms, max {} ms",
        scene.title,
        pulse.rate,
        millis(latency.p50),
        millis(latency.p90),
        millis(latency.p99),
        millis(latency.max),
    );
    if errors.is_empty() {
        text.push_str("\nno errors");
    }
    for (kind, count) in errors.iter().take(ERROR_KINDS_SHOWN) {
        text.push_str(&format!("\nerrors: {count} x {kind}"));
    }
    if errors.len() > ERROR_KINDS_SHOWN {
        text.push_str(&format!("\nand {} more kinds", errors.len() - ERROR_KINDS_SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_shows_rate_latency_and_errors() {
        let stats = Stats::new().unwrap();
        stats.event(Duration::from_millis(3));
        stats.error("status 429".to_owned());
        stats.spent();
        let begun = Clock::System.instant();
        let mut pulse = Pulse::new(begun);
        assert!(pulse.tick(&stats, begun + TICK) && !pulse.tick(&stats, begun + TICK));
        let scene = Scene { title: "3 smart-meter".to_owned(), duration: None, is_json: false };
        let shown = lines(&scene, &pulse);
        for part in ["3 smart-meter", "1 events/s", "p99 3 ms", "1 x status 429", "1 rate limits spent"] {
            assert!(shown.contains(part), "{part} is missing in\n{shown}");
        }
        for kind in 0..20 {
            stats.error(format!("kind {kind}"));
        }
        assert!(pulse.tick(&stats, begun + 2 * TICK) && lines(&scene, &pulse).ends_with("and 13 more kinds"));
    }

    #[test]
    fn style_is_valid_with_and_without_a_duration() {
        assert!(style(Some(60)).is_ok() && style(None).is_ok());
    }
}
