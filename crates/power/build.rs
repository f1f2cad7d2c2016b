//! Builds the layer as a shared library that a program is started with. It is not a cargo target: it replaces `write`
//! and others, so it must never be linked into the tests, and cargo builds no library only to be loaded.

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
