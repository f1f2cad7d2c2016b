//! The walk of README.md and the drill of docs/backup.md, executed as written: every bash block between the markers,
//! against a fresh server.
//! A line `# => text` in a block is expected output, in the order of the lines; `…` stands for anything.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::process::{Command, Stdio};

use program_support::{Serving, isobar, serve};

const README: &str = include_str!("../../../README.md");
const BACKUP: &str = include_str!("../../../docs/backup.md");
/// The README's server address and its password.
const ADDRESS: &str = "127.0.0.1:8080";
const PASSWORD: &str = "keep-it-cold";
/// Separator of the blocks' outputs.
const NEXT: &str = "== the next block ==";

/// Returns the bash blocks of a part of a document.
fn blocks(document: &str, part: &str) -> Vec<String> {
    let walk = document.split_once(&format!("<!-- {part} -->")).unwrap().1;
    let walk = walk.split_once(&format!("<!-- end of {part} -->")).unwrap().0;
    let blocks = walk.split("```bash\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```").unwrap().0.to_owned()).collect()
}

/// Checks that the expected lines of a block occur in its output, in order.
fn check(block: &str, printed: &str) {
    let mut rest = printed;
    for promise in block.lines().filter_map(|line| line.strip_prefix("# => ")) {
        for part in promise.split('…') {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} of {promise:?} is not in: {rest}"));
            rest = &rest[at + part.len()..];
        }
    }
}

/// Runs the blocks after replacing texts, and checks the expected output of each.
fn run(bash: &mut Command, blocks: &[String], replaced: &[(&str, &str)]) {
    let script = blocks.join(&format!("\necho; echo '{NEXT}'\n"));
    let script = replaced.iter().fold(script, |script, (from, to)| script.replace(from, to));
    let output = bash.args(["-euo", "pipefail", "-c", &script]).stdin(Stdio::null()).output().unwrap();
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{told}");
    let printed: Vec<&str> = printed.split(NEXT).collect();
    assert_eq!(printed.len(), blocks.len());
    blocks.iter().zip(printed).for_each(|(block, printed)| check(block, printed));
}

// Holds: c12.one
#[test]
fn readme_walk_works() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", PASSWORD)]);
    let blocks = blocks(README, "walk");
    assert!(blocks.len() >= 8 && README.contains(&format!("ISOBAR_ADMIN_PASSWORD={PASSWORD}")));
    run(&mut Command::new("bash"), &blocks, &[(ADDRESS, &serving.address)]);
}

#[test]
fn restore_drill_of_the_documents_works() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| folder.path().join(name);
    std::fs::create_dir(of("backups")).unwrap();
    let settings = format!("data = {:?}\n[backup]\ntarget = {:?}\n", of("data"), of("backups"));
    std::fs::write(of("isobar.toml"), settings).unwrap();
    let mut serves = serve(&of("data"), &[("ISOBAR_ADMIN_PASSWORD", PASSWORD)]);
    serves.arg("--config").arg(of("isobar.toml"));
    let _serving = Serving::of(serves);
    let blocks = blocks(BACKUP, "drill");
    assert!(blocks.len() >= 4 && BACKUP.contains(PASSWORD));
    let program = isobar(&[]);
    let programs = std::path::Path::new(program.get_program()).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut bash = Command::new("bash");
    bash.current_dir(folder.path()).env("PATH", path);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ISOBAR_")) {
        bash.env_remove(name);
    }
    let backups = of("backups").display().to_string();
    run(&mut bash, &blocks, &[("127.0.0.1:8090", &free), ("/backups/", &format!("{backups}/"))]);
}
