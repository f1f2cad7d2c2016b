//! The files of the web console, embedded in the program. The console's sources are in `console/`; `make console`
//! builds it.

use isobar_http::ConsoleFile;

/// All files; none in a program that was built without the console.
pub const FILES: &[ConsoleFile] = &include!(concat!(env!("OUT_DIR"), "/files.rs"));
