//! Rules of the code base: dependencies, imports within a crate, and documents that match the code.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod conformance;
mod documents;
mod imports;
mod limits;
mod names;
mod paths;
mod shared_limits;
mod supply;

use std::path::{Path, PathBuf};

/// Returns the checkout: tests run in the folder of their crate.
fn root() -> &'static Path {
    Path::new("../..")
}

/// Reads a file of the checkout.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the source files beneath a path, which may be a file, with their texts; without tests.
fn source_files(path: &Path) -> Vec<(PathBuf, String)> {
    if path.is_file() {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        return vec![(path.to_owned(), code)];
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &Path, names: &[&str]| path.file_name().is_some_and(|name| names.iter().any(|n| name == *n));
    entries
        .filter(|path| path.is_dir() || path.extension().is_some_and(|kind| kind == "rs"))
        .filter(|path| !named(path, &["tests", "tests.rs", "target"]))
        .flat_map(|path| source_files(&path))
        .collect()
}

/// Returns the names of the crates.
fn crates() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    folders.map(|name| name.into_string().unwrap()).collect()
}
