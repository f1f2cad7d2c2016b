//! Checks the section of docs/limits.md about the limits that tenants share, and writes it anew from their table.

use isobar_quota::Limit;
use isobar_quota::limits::{BYTES, LIMITS};

use crate::limits::grouped;
use crate::{crates, read, root, source_files};

const PAGE: &str = "docs/limits.md";
/// File of the table of limits, in its crate.
const TABLE: &str = "limits.rs";
/// Writes the document instead of comparing it, if set.
const WRITE: &str = "ISOBAR_TEST_WRITE";
/// Head of the rows that are made from the table.
const HEAD: &str = "| limit | what it bounds | total and parts |\n|---|---|---|\n";

/// Formats an amount of a limit with its unit.
fn amount(limit: &Limit, number: usize) -> String {
    let number = number as u64;
    match limit.unit {
        BYTES => format!("{} MiB", grouped(number >> 20)),
        unit => format!("{} {unit}", grouped(number)),
    }
}

/// Returns the row of a limit.
fn row(limit: &Limit) -> String {
    let Limit { name, bounds, holder, of_all, of_one, of_site, at_once, at_once_of_tenant, slice, .. } = *limit;
    let is_queue = at_once != usize::MAX;
    let has = |bound: usize| bound != usize::MAX;
    let total = has(of_all).then(|| amount(limit, of_all) + if is_queue { " running or waiting" } else { ", shared" });
    let of_one = has(of_one).then(|| format!("{} of one {holder}", grouped_amount(limit, of_one)));
    let of_site = has(of_site).then(|| format!("{} of one site", grouped_amount(limit, of_site)));
    let at_once = is_queue.then(|| format!("{} at a time", grouped(at_once as u64)));
    let of_tenant = has(at_once_of_tenant).then(|| format!("{at_once_of_tenant} of them of one tenant"));
    let slice = (is_queue && slice.as_secs() == 0).then(|| format!("after {} ms to others", slice.as_millis()));
    let parts: Vec<String> = [total, of_one, of_site, at_once, of_tenant, slice].into_iter().flatten().collect();
    format!("| `{name}` | {bounds} | {} |\n", parts.join("; "))
}

/// Formats a part of a limit: bytes with their unit, other numbers without.
fn grouped_amount(limit: &Limit, number: usize) -> String {
    if limit.unit == BYTES { amount(limit, number) } else { grouped(number as u64) }
}

/// Writes a page anew: the rows of limits from their table.
fn written(page: &str) -> String {
    let (before, rest) = page.split_once(HEAD).unwrap();
    let after = rest.split_once("\n\n").unwrap().1;
    let rows: String = LIMITS.iter().map(|limit| row(limit)).collect();
    format!("{before}{HEAD}{rows}\n{after}")
}

#[test]
fn shared_limits_document_is_written_from_the_table() {
    let page = read(PAGE);
    let wanted = written(&page);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(root().join(PAGE), &wanted).unwrap();
        return;
    }
    let differing: Vec<&str> = wanted.lines().filter(|line| !page.lines().any(|other| other == *line)).collect();
    assert!(
        page == wanted,
        "{PAGE} is old; write it with `{WRITE}=1 make one T=shared_limits_document`: {differing:#?}"
    );
}

/// Returns the names of the constants of the table.
fn constants() -> Vec<String> {
    let text = read(&format!("crates/quota/src/{TABLE}"));
    let names = text.lines().filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(": Limit = Limit {"));
    names.filter(|name| *name != "UNLIMITED").map(str::to_owned).collect()
}

#[test]
fn limit_is_in_the_table_and_bounds_an_instance() {
    let constants = constants();
    assert_eq!(constants.len(), LIMITS.len(), "LIMITS lacks a constant of {TABLE}, or names one twice");
    let folders = crates().into_iter().filter(|name| name != "quota");
    let files = folders.flat_map(|name| source_files(&root().join("crates").join(name).join("src")));
    let sources: String = files.map(|(_, text)| text).collect();
    let is_used = |name: &&String| sources.contains(&format!("limits::{name}"));
    let unused: Vec<&String> = constants.iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "nothing is bounded by {unused:?}");
    for (constant, limit) in constants.iter().zip(LIMITS) {
        assert_eq!(constant.to_lowercase(), limit.name, "the names differ, or the order of LIMITS");
    }
}
