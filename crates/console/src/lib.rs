//! The files of the web console, embedded in the program. What the console is made of is in `console/`; `make console` builds it.

/// A file of the console, as it is and compressed.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its path, which begins with a slash.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Names its content: another content has another hash.
    pub hash: &'static str,
    /// Its content.
    pub plain: &'static [u8],
    /// Its content with brotli, where that is smaller.
    pub brotli: Option<&'static [u8]>,
    /// Its content with gzip, where that is smaller.
    pub gzip: Option<&'static [u8]>,
}

impl File {
    /// Whether its path changes with its content, so that what was fetched once holds for ever.
    pub fn is_immutable(&self) -> bool {
        self.path.starts_with("/assets/")
    }
}

/// All files; none in a program that was built without the console.
pub const FILES: &[File] = &include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The page that every address of the console shows.
pub const PAGE: &str = "/index.html";
