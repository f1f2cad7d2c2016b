//! Builds the layer as a library of its own that a program can be started with. A cargo target would not do: the library
//! replaces `write` and its like, so it must never be linked into the tests themselves, and cargo builds no library for
//! those that only load it.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=layer");
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let library = PathBuf::from(variable("OUT_DIR")?).join("liblayer.so");
    println!("cargo::rustc-env=LAYER={}", library.display());
    if variable("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let status = Command::new(variable("RUSTC")?)
        .args(["--edition", "2024", "--crate-name", "layer", "--crate-type", "cdylib", "-C", "opt-level=2"])
        .args(["--target", &variable("TARGET")?, "layer/layer.rs", "-o"])
        .arg(&library)
        .status()?;
    if status.success() { Ok(()) } else { Err("the layer cannot be built".into()) }
}
