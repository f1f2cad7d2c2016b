//! Tells what a run has done and found.

use std::collections::BTreeMap;

use serde_json::Value;

use super::checker::Violation;
use super::history::{Call, Did, History};

/// Most violations, and kinds of lines in logs, that are told.
const TOLD_MAX: usize = 30;
const LINES_MAX: usize = 40;

/// Returns a violation for each panic in the logs.
pub fn panics(logs: &[String]) -> Vec<Violation> {
    let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains("panicked"));
    lines.map(|line| Violation { rule: "panic", says: line.to_owned() }).collect()
}

/// Prints the counts of a run, what the nodes logged, and the violations.
pub fn print(history: &History, logs: &[String], violations: &[Violation]) {
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
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    history.faults.iter().for_each(|fault| *kinds.entry(fault.kind).or_default() += 1);
    let restarts = history.faults.iter().map(|fault| (fault.end - fault.begin) as f64 / 1e6);
    println!("faults: {kinds:?}, longest {:.2} s", restarts.fold(0.0, f64::max));
    println!("longest gap between successes of the platform: {:.2} s", longest_gap(history));
    print_logs(logs);
    println!("{} violations", violations.len());
    for violation in violations.iter().take(TOLD_MAX) {
        println!("VIOLATION {}: {}", violation.rule, violation.says);
    }
}

fn longest_gap(history: &History) -> f64 {
    let mut ends: Vec<u64> = history.calls.iter().filter(|call| call.is_done()).map(|call| call.end).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64 / 1e6
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
