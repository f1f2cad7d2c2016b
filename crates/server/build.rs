//! Notes the commit that the program is built from, for `GET /v2/about`.
//!
//! Whoever builds may name it (`BUILD_COMMIT`): packagers, and builds from a tarball. Else an optimised build of a checkout
//! looks it up. A development build does not, so that a commit alone has nothing built anew. What is unknown stays unknown.

use std::path::Path;
use std::process::Command;

/// The variable that names the commit.
const NAMED: &str = "BUILD_COMMIT";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={NAMED}");
    let commit = match std::env::var(NAMED).ok().filter(|named| !named.is_empty()) {
        Some(named) if is_commit(&named) => Some(named),
        Some(named) => return Err(format!("{NAMED} is {named:?}: a commit has 7 to 64 hexadecimal digits")),
        None if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") => of_checkout(),
        None => None,
    };
    if let Some(commit) = commit {
        println!("cargo::rustc-env=BUILT_COMMIT={commit}");
    }
    Ok(())
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The commit that is checked out here; none where this is no checkout, or lies in one of something else.
fn of_checkout() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.canonicalize().ok()?;
    let top = Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    // What changes with a commit, or when another one is checked out.
    let branch = git(&root, &["rev-parse", "--symbolic-full-name", "HEAD"])?;
    for file in ["HEAD", &branch, "packed-refs"] {
        let place = root.join(git(&root, &["rev-parse", "--git-path", file])?);
        if place.is_file() {
            println!("cargo::rerun-if-changed={}", place.display());
        }
    }
    git(&root, &["rev-parse", "--verify", "HEAD"]).filter(|commit| is_commit(commit))
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
