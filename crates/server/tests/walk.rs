//! The walk of README.md, run as it stands there: every bash block between the markers, against a fresh server.
//! A line `# => text` in a block is what that block prints, in the order of the lines; `…` stands for anything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::process::{Command, Stdio};

use program_support::Serving;

const README: &str = include_str!("../../../README.md");
const BEGINS: &str = "<!-- walk -->";
const ENDS: &str = "<!-- end of walk -->";
/// Where the README's server is, and the password that it is started with.
const ADDRESS: &str = "127.0.0.1:8080";
const PASSWORD: &str = "keep-it-cold";
/// Printed between blocks, so that each one's output can be told from the next one's.
const NEXT: &str = "== the next block ==";

/// The bash blocks of the walk.
fn blocks() -> Vec<String> {
    let walk = README.split_once(BEGINS).unwrap().1.split_once(ENDS).unwrap().0;
    let blocks = walk.split("```bash\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").unwrap().0.to_owned()).collect()
}

/// Checks that what a block promises stands in its output, in this order.
fn check(block: &str, printed: &str) {
    let mut rest = printed;
    for promise in block.lines().filter_map(|line| line.strip_prefix("# => ")) {
        for part in promise.split('…') {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} of {promise:?} is not in: {rest}"));
            rest = &rest[at + part.len()..];
        }
    }
}

#[test]
fn the_walk_of_the_readme_works() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", PASSWORD)]);
    let blocks = blocks();
    assert!(blocks.len() >= 8 && README.contains(&format!("ISOBAR_ADMIN_PASSWORD={PASSWORD}")));
    let script = blocks.join(&format!("\necho; echo '{NEXT}'\n")).replace(ADDRESS, &serving.address);
    let mut bash = Command::new("bash");
    let output = bash.args(["-euo", "pipefail", "-c", &script]).stdin(Stdio::null()).output().unwrap();
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{told}");
    let printed: Vec<&str> = printed.split(NEXT).collect();
    assert_eq!(printed.len(), blocks.len());
    blocks.iter().zip(printed).for_each(|(block, printed)| check(block, printed));
}
