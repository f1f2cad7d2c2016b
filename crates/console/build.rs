//! Makes the list of embedded files from what `make console` has built in `console/dist`.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut list = String::from("[\n");
    if env::var_os("CARGO_FEATURE_EMBED").is_some() {
        let crate_folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
        write_files(&crate_folder.join("../../console/dist"), &mut list)?;
    }
    list.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("files.rs"), list)?;
    Ok(())
}

/// Writes an expression for each file that `console/scripts/pack.mjs` has listed.
fn write_files(dist: &Path, list: &mut String) -> Result<(), Box<dyn Error>> {
    let listed = dist.join("files.tsv");
    println!("cargo::rerun-if-changed={}", listed.display());
    let lines = fs::read_to_string(&listed)
        .map_err(|error| format!("{}: {error}; build the console first: make console", listed.display()))?;
    for line in lines.lines() {
        let [path, content_type, hash] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{}: not a path, a type and a hash: {line}", listed.display()).into());
        };
        let plain = dist.join(path);
        println!("cargo::rerun-if-changed={}", plain.display());
        writeln!(
            list,
            "ConsoleFile {{ path: {:?}, content_type: {content_type:?}, hash: {hash:?}, plain: include_bytes!({plain:?}), brotli: {}, gzip: {} }},",
            format!("/{path}"),
            compressed(&plain, "br"),
            compressed(&plain, "gz"),
        )?;
    }
    Ok(())
}

/// Returns an expression for a compressed form of a file, which is `None` unless that is smaller.
fn compressed(plain: &Path, ending: &str) -> String {
    let mut name = plain.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    let path = PathBuf::from(name);
    if path.is_file() { format!("Some(include_bytes!({path:?}))") } else { "None".to_owned() }
}
