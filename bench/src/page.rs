//! docs/performance.md: each section's figures stand between two markers, and are replaced as a whole.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use isobar_model::time::Clock;

use crate::{Failure, Options};

/// The page, or none when nothing is to be written.
pub struct Page {
    path: Option<PathBuf>,
    command: String,
    machine: String,
}

impl Page {
    /// The page of this checkout.
    pub fn open(options: &Options) -> Self {
        let path = Path::new("docs/performance.md");
        let writes = !options.quick && !options.no_write && path.exists();
        Self { path: writes.then(|| path.to_owned()), command: command(), machine: machine() }
    }

    /// Prints a section's figures, and puts them between its markers.
    pub fn put(&self, section: &str, figures: &str) -> Result<(), Failure> {
        let today = Clock::System.now().to_string();
        let day = today.get(..10).unwrap_or(&today);
        let mut text = String::new();
        writeln!(text, "{}", figures.trim_end())?;
        writeln!(text, "\nMeasured on {day} with `{}`; {}.", self.command, self.machine)?;
        println!("\n## {section}\n\n{text}");
        let Some(path) = &self.path else { return Ok(()) };
        let page = std::fs::read_to_string(path)?;
        let page =
            between(&page, section, &text).ok_or_else(|| format!("{} has no markers for {section}", path.display()))?;
        Ok(std::fs::write(path, page)?)
    }
}

fn between(page: &str, section: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- figures: {section} -->"), format!("<!-- end of figures: {section} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

/// What reproduces the figures: this program's arguments, but for those that the Makefile gives.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip_while(|argument| argument != "--isobar").skip(2).collect();
    match arguments.is_empty() {
        true => "make bench".to_owned(),
        false => format!("make bench ARGS=\"{}\"", arguments.join(" ")),
    }
}

/// Processors, their name, memory, and the kernel.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split(':').nth(1));
    let memory = read("/proc/meminfo");
    let kib =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(|rest| rest.split_whitespace().next());
    let gib = kib.and_then(|kib| kib.parse::<f64>().ok()).map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let kernel = Command::new("uname")
        .arg("-r")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    format!(
        "{processors} processors ({}), {gib:.0} GiB of memory, Linux {}, client and server on the same machine",
        name.unwrap_or("of unknown name").trim(),
        kernel.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_replace_the_text_between_the_markers() {
        let page = "a\n<!-- figures: flat -->\nold\n<!-- end of figures: flat -->\nb\n";
        let new = between(page, "flat", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- figures: flat -->\nnew\n<!-- end of figures: flat -->\nb\n");
        assert_eq!(between(&new, "flat", "new\n").as_deref(), Some(new.as_str()));
        assert_eq!(between(page, "road", "new"), None);
    }
}
