//! Embeds the commit that the program is built from, for `GET /v2/about`.
//!
//! The variable `BUILD_COMMIT` may name it, for packagers and builds from a tarball. Otherwise an optimised build looks
//! it up in the checkout. A development build does not, so that a commit alone causes no rebuild. An unknown commit is
//! left out.

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

/// Returns the commit that is checked out; `None` if this is not a checkout, or lies in one of something else.
fn of_checkout() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.canonicalize().ok()?;
    let top = Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    // These files change with a commit or a checkout.
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
