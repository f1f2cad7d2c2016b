//! Tells what a run has done and found.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::checker::Violation;
use super::history::{Call, Did, History, Micros};

/// Most violations, and kinds of lines in logs, that are told.
const TOLD_MAX: usize = 30;
const LINES_MAX: usize = 40;
/// Time before a fault, and after it, in which a gap may begin that is told as its own.
const BEFORE: Micros = 500_000;
const AFTER: Micros = 2_000_000;

/// Returns a violation for each panic in the logs.
pub fn panics(logs: &[String]) -> Vec<Violation> {
    let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains("panicked"));
    lines.map(|line| Violation { rule: "panic", says: line.to_owned() }).collect()
}

/// Prints the counts of a run, and what the nodes logged.
pub fn print(history: &History, logs: &[String]) {
    let count = |is_so: &dyn Fn(&Call) -> bool| history.calls.iter().filter(|call| is_so(call)).count();
    println!(
        "{} calls: {} refused, {} without an answer, {} answered 503; {} acknowledged posts, {} queued, {} takes ({} unknown), {} puts ({} unknown), {} gets",
        history.calls.len(),
        count(&|call| call.is_refused),
        count(&|call| call.status.is_none() && call.is_unknown()),
        count(&|call| call.status == Some(503)),
        count(&|call| matches!(call.did, Did::Post { id: Some(_), .. })),
        count(&|call| matches!(call.did, Did::Queue { id: Some(_), .. })),
        count(&|call| matches!(call.did, Did::Take { got: Some(Some(_)) })),
        count(&|call| matches!(call.did, Did::Take { got: None }) && call.is_unknown()),
        count(&|call| matches!(call.did, Did::Put { .. }) && call.is_done()),
        count(&|call| matches!(call.did, Did::Put { .. }) && call.is_unknown()),
        count(&|call| matches!(call.did, Did::Get { value: Some(_) })),
    );
    print_faults(history);
    println!("longest gap between acknowledged events: {:.1} s", seconds(history.longest_gap(0, Micros::MAX)));
    print_logs(logs);
}

/// Returns a line for each of the first violations.
pub fn told(violations: &[Violation]) -> String {
    let line = |violation: &Violation| format!("VIOLATION {}: {}", violation.rule, violation.says);
    let lines: Vec<String> = violations.iter().take(TOLD_MAX).map(line).collect();
    lines.join("\n")
}

/// Writes all calls and faults of a run into a file, for whoever looks for the cause of a violation.
pub fn write(history: &History, file: &Path) {
    let mut lines: Vec<(Micros, String)> = history.calls.iter().map(|call| (call.begin, format!("{call:?}"))).collect();
    lines.extend(history.faults.iter().map(|fault| (fault.begin, format!("{fault:?}"))));
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    std::fs::write(file, lines.join("\n")).unwrap();
}

/// Prints each fault with the longest gap of acknowledged events that begins with it, and the number of each kind.
fn print_faults(history: &History) {
    let mut kinds: BTreeMap<_, (usize, f64)> = BTreeMap::new();
    println!("  begin   lasts     gap  fault");
    for fault in &history.faults {
        let gap = seconds(history.longest_gap(fault.begin.saturating_sub(BEFORE), fault.end + AFTER));
        let (begin, lasts) = (seconds(fault.begin), seconds(fault.end - fault.begin));
        println!("{begin:7.1} {lasts:7.1} {gap:7.1}  {:?} {}", fault.kind, fault.target);
        let (count, longest) = kinds.entry(fault.kind).or_default();
        (*count, *longest) = (*count + 1, longest.max(gap));
    }
    println!("{} faults; of each kind the number and the longest gap of acknowledged events:", history.faults.len());
    kinds.iter().for_each(|(kind, (count, gap))| println!("{count:5} {gap:7.1} s  {kind:?}"));
}

const fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

/// Prints how often the nodes have logged what at which level, without times and numbers.
fn print_logs(logs: &[String]) {
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for line in logs.iter().flat_map(|log| log.lines()) {
        let told: Value = serde_json::from_str(line).unwrap_or_default();
        let kind = ["level", "message", "error", "route", "status"].map(|member| told[member].to_string()).concat();
        let kind = kind.replace(|c: char| c.is_ascii_digit(), "");
        kinds.entry(kind).or_insert((0, line)).0 += 1;
    }
    println!("the logs have {} kinds of lines", kinds.len());
    for (count, line) in kinds.values().take(LINES_MAX) {
        println!("{count:5} times: {line}");
    }
}
