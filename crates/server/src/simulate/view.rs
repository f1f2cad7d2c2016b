//! What a person sees meanwhile: a live view on a terminal, a line a second elsewhere.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use tokio::sync::watch;

use super::stats::{Stats, StatsSnapshot, millis};

/// How often the rate is measured.
const TICK: Duration = Duration::from_secs(1);
/// How long one look for a key takes.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Seconds of rate that are kept for the sparkline.
const RATES_MAX: usize = 600;

/// What the view needs to know of the run.
pub struct Scene {
    /// Where the events go, and which.
    pub title: String,
    /// Ends by itself after this long.
    pub duration: Option<Duration>,
    /// Lines go to standard error, as standard output is for JSON.
    pub is_json: bool,
}

/// Shows the run until it ends or someone ends it.
pub fn show(scene: &Scene, stats: &Arc<Stats>, stop: &watch::Sender<bool>) {
    if std::io::stdout().is_terminal() {
        if let Err(error) = show_live(scene, stats, stop) {
            eprintln!("simulate: the terminal cannot show the view: {error}");
        }
    } else {
        show_lines(scene, stats, stop);
    }
}

/// The rates so far.
struct Pulse {
    begun: Instant,
    ticked: Instant,
    events: u64,
    rates: VecDeque<u64>,
    last: StatsSnapshot,
}

impl Pulse {
    fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, ticked: now, events: 0, rates: VecDeque::new(), last: StatsSnapshot::default() }
    }

    /// Measures, once a second. Whether it did.
    fn tick(&mut self, stats: &Stats) -> bool {
        let since = self.ticked.elapsed();
        if since < TICK {
            return false;
        }
        self.last = stats.look();
        let rate = (self.last.events - self.events) as f64 / since.as_secs_f64();
        (self.ticked, self.events) = (Instant::now(), self.last.events);
        self.rates.push_back(rate.round() as u64);
        if self.rates.len() > RATES_MAX {
            self.rates.pop_front();
        }
        true
    }

    /// How often devices had to wait for their rate limit, if any had to.
    fn spent(&self) -> Option<String> {
        let spent = self.last.spent;
        (spent > 0).then(|| format!("{spent} rate limits spent"))
    }

    fn rate(&self) -> u64 {
        self.rates.back().copied().unwrap_or_default()
    }
}

fn show_lines(scene: &Scene, stats: &Stats, stop: &watch::Sender<bool>) {
    let mut pulse = Pulse::new();
    while !*stop.borrow() {
        std::thread::sleep(KEY_WAIT);
        if pulse.tick(stats) {
            let spent = pulse.spent().map(|spent| format!("  {spent}")).unwrap_or_default();
            let line = format!(
                "{:>5} s  {:>7} events/s  p50 {:>7} ms  p99 {:>7} ms  {} events  {} errors{spent}",
                pulse.begun.elapsed().as_secs(),
                pulse.rate(),
                millis(pulse.last.latency.p50),
                millis(pulse.last.latency.p99),
                pulse.last.events,
                pulse.last.error_count()
            );
            if scene.is_json { eprintln!("{line}") } else { println!("{line}") }
        }
    }
}

fn show_live(scene: &Scene, stats: &Stats, stop: &watch::Sender<bool>) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = (|| {
        let mut pulse = Pulse::new();
        while !*stop.borrow() {
            pulse.tick(stats);
            terminal.draw(|frame| draw(frame, scene, &pulse))?;
            if crossterm::event::poll(KEY_WAIT)? && is_quit(&crossterm::event::read()?) {
                stop.send_replace(true);
            }
        }
        Ok(())
    })();
    ratatui::restore();
    outcome
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn draw(frame: &mut Frame<'_>, scene: &Scene, pulse: &Pulse) {
    let rows = [Constraint::Length(3), Constraint::Min(5), Constraint::Length(8), Constraint::Length(1)];
    let [head, graph, foot, help] = Layout::vertical(rows).areas(frame.area());
    let [latency, errors] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(foot);
    let elapsed = pulse.begun.elapsed().as_secs();
    let of = scene.duration.map(|duration| format!(" of {} s", duration.as_secs())).unwrap_or_default();
    let numbers = Line::from(vec![
        format!("{} events/s", pulse.rate()).bold().fg(Color::Green),
        format!("   {} events   {elapsed} s{of}", pulse.last.events).into(),
        pulse.spent().map(|spent| format!("   {spent}").fg(Color::Yellow)).unwrap_or_default(),
    ]);
    let block = Block::bordered().title(format!(" {} ", scene.title));
    frame.render_widget(Paragraph::new(numbers).block(block), head);
    draw_rates(frame, graph, pulse);
    draw_latency(frame, latency, pulse);
    draw_errors(frame, errors, pulse);
    frame.render_widget(Paragraph::new("q: end").dim(), help);
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, pulse: &Pulse) {
    let room = usize::from(area.width.saturating_sub(2));
    let shown: Vec<u64> = pulse.rates.iter().skip(pulse.rates.len().saturating_sub(room)).copied().collect();
    let top = shown.iter().max().copied().unwrap_or_default();
    let title = format!(" events/s, one bar a second, highest {top} ");
    let line =
        Sparkline::default().data(&shown).style(Style::new().fg(Color::Green)).block(Block::bordered().title(title));
    frame.render_widget(line, area);
}

fn draw_latency(frame: &mut Frame<'_>, area: Rect, pulse: &Pulse) {
    let latency = &pulse.last.latency;
    let named = [("p50", latency.p50), ("p90", latency.p90), ("p99", latency.p99), ("max", latency.max)];
    let rows = named.map(|(name, value)| Row::new([name.to_owned(), format!("{} ms", millis(value))]));
    let table = Table::new(rows, [Constraint::Length(6), Constraint::Min(10)]);
    frame.render_widget(table.block(Block::bordered().title(" latency, last second ")), area);
}

fn draw_errors(frame: &mut Frame<'_>, area: Rect, pulse: &Pulse) {
    let rows: Vec<Row<'_>> = match pulse.last.errors.is_empty() {
        true => vec![Row::new(["none".to_owned(), String::new()])],
        false => {
            pulse.last.errors.iter().map(|(kind, count)| Row::new([kind.clone(), count.to_string()]).red()).collect()
        }
    };
    let table = Table::new(rows, [Constraint::Min(18), Constraint::Length(10)]);
    frame.render_widget(table.block(Block::bordered().title(" errors ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn the_view_shows_rate_latency_and_errors() {
        let stats = Stats::new().unwrap();
        stats.event(Duration::from_millis(3));
        stats.error("status 429".to_owned());
        stats.spent();
        let mut pulse = Pulse::new();
        pulse.ticked -= TICK;
        assert!(pulse.tick(&stats) && !pulse.tick(&stats));
        let scene = Scene { title: "3 smart-meter".to_owned(), duration: None, is_json: false };
        let mut terminal = Terminal::new(TestBackend::new(70, 20)).unwrap();
        terminal.draw(|frame| draw(frame, &scene, &pulse)).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["3 smart-meter", "1 events/s", "p99", "3 ms", "status 429", "1 rate limits spent", "q: end"] {
            assert!(screen.contains(part), "{part} is missing in\n{screen}");
        }
    }
}
