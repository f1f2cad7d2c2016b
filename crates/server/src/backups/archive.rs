//! Archives: a tar of the folder that `isobar backup DIR` makes, optionally encrypted by age.
//!
//! The mark comes first, so that a backup that this program cannot restore is refused before anything is written. A
//! digest of all files comes last: an archive without it is incomplete, and one that does not match was altered.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use isobar_model::quote::quote;
use sha2::{Digest as _, Sha256};
use tar::{Builder, Entries, EntryType, Header};

use super::hashing::hex;
use crate::Failure;
use crate::upkeep::backup::{MAIL, MARK, MARK_BYTES_MAX, Mark, REGISTRY, TELEMETRY};
use crate::upkeep::files;

/// Name of the last entry: a digest of those between it and the mark.
const DIGEST: &str = "DIGEST";
/// Largest digest entry that is read, in bytes.
const DIGEST_BYTES_MAX: u64 = 256;
/// Longest name of a member that is read, in bytes: the longest path of Linux.
const MEMBER_NAME_BYTES_MAX: u64 = 4096;
/// Largest head of a file encrypted by age that is read, in bytes: that of 300 recipients and more.
const AGE_HEAD_BYTES_MAX: usize = 65_536;

/// Writes the backup in a folder as an archive.
pub fn pack<W: Write>(folder: &Path, to: W) -> Result<W, Failure> {
    let mut builder = Builder::new(to);
    let mut digest = Sha256::new();
    append_text(&mut builder, MARK, &std::fs::read_to_string(folder.join(MARK))?)?;
    for part in [REGISTRY, TELEMETRY, MAIL] {
        append(&mut builder, &mut digest, folder, Path::new(part))?;
    }
    append_text(&mut builder, DIGEST, &hex(&digest.finalize()))?;
    Ok(builder.into_inner()?)
}

/// Appends a file, or a folder with its contents; nothing if it does not exist.
fn append(builder: &mut Builder<impl Write>, digest: &mut Sha256, root: &Path, name: &Path) -> Result<(), Failure> {
    let path = root.join(name);
    if path.is_dir() {
        let mut entries = std::fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        return entries.iter().try_for_each(|entry| append(builder, digest, root, &name.join(entry.file_name())));
    }
    if !path.exists() {
        return Ok(());
    }
    let file = files::open_file(&path)?;
    let size = file.metadata()?.len();
    begin_file(digest, name, size);
    let mut read = Summed { inner: file.take(size), digest, bytes: 0 };
    builder.append_data(&mut header(size), name, &mut read)?;
    match read.bytes == size {
        true => Ok(()),
        false => Err(format!("{} became shorter while it was read", path.display()).into()),
    }
}

fn append_text(builder: &mut Builder<impl Write>, name: &str, text: &str) -> io::Result<()> {
    builder.append_data(&mut header(text.len() as u64), name, text.as_bytes())
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(super::FILE_MODE);
    header.set_size(size);
    header
}

/// Adds a file's name and length to the digest, before its content.
fn begin_file(digest: &mut Sha256, name: &Path, size: u64) {
    let name = name.as_os_str().as_encoded_bytes();
    digest.update((name.len() as u64).to_be_bytes());
    digest.update(name);
    digest.update(size.to_be_bytes());
}

/// A reader that adds its bytes to a digest and counts them.
struct Summed<'a, R> {
    inner: R,
    digest: &'a mut Sha256,
    bytes: u64,
}

impl<R: Read> Read for Summed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.digest.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// An archive of which only the mark was read.
pub struct Unpacking<'a, R: Read> {
    entries: Entries<'a, R>,
    name: String,
}

impl<'a, R: Read> Unpacking<'a, R> {
    /// Reads the mark. `name` is the archive's name in errors.
    pub fn begin(archive: &'a mut tar::Archive<R>, name: &str) -> Result<(Mark, Self), Failure> {
        let name = name.to_owned();
        // Raw, because the crate reads the names of members into memory, however long they are.
        let mut entries = archive.entries()?.raw(true);
        let no_backup = |why: &str| Failure::from(format!("{name} is no backup: {why}"));
        let mut first = match entries.next() {
            Some(first) => first.map_err(|error| broken(&name, &error))?,
            None => return Err(no_backup("it is empty")),
        };
        if first.path_bytes().as_ref() != MARK.as_bytes() {
            return Err(no_backup(&format!("it does not begin with {MARK}")));
        }
        let mut text = String::new();
        first.by_ref().take(MARK_BYTES_MAX).read_to_string(&mut text).map_err(|error| broken(&name, &error))?;
        drop(first);
        let mark = Mark::parse(&text, &name)?;
        Ok((mark, Self { entries, name }))
    }

    /// Writes every file to the path that `place` returns, and compares the digest at the end.
    pub fn fill(self, place: impl Fn(&Path) -> Option<PathBuf>) -> Result<(), Failure> {
        let Self { entries, name } = self;
        let mut digest = Sha256::new();
        let mut long_name = None;
        for entry in entries {
            let mut entry = entry.map_err(|error| broken(&name, &error))?;
            if entry.header().entry_type() == EntryType::GNULongName {
                long_name = Some(read_long_name(&mut entry, &name)?);
                continue;
            }
            let short_name = || entry.path().map(std::borrow::Cow::into_owned).map_err(|error| broken(&name, &error));
            let path = long_name.take().map_or_else(short_name, Ok)?;
            if entry.header().entry_type() != EntryType::Regular {
                return Err(format!("{name}: {} is no file: only those are restored", named(&path)).into());
            }
            if path == Path::new(DIGEST) {
                let mut text = String::new();
                let read = entry.take(DIGEST_BYTES_MAX).read_to_string(&mut text);
                read.map_err(|error| broken(&name, &error))?;
                return match text.trim() == hex(&digest.finalize()) {
                    true => Ok(()),
                    false => {
                        Err(format!("{name} is damaged: its files do not fit to its digest; restore another").into())
                    }
                };
            }
            let to = place(&path).filter(|_| is_plain(&path));
            let to = to.ok_or_else(|| format!("{name}: {} belongs to no backup", named(&path)))?;
            begin_file(&mut digest, &path, entry.size());
            let mut read = Summed { inner: &mut entry, digest: &mut digest, bytes: 0 };
            write_file(&mut read, &to, &name)?;
        }
        Err(format!("{name} is a backup that was not finished: it ends before its digest; restore another").into())
    }
}

/// Reads the member that holds the name of the next one, which is longer than a header has room for.
fn read_long_name(entry: &mut impl Read, name: &str) -> Result<PathBuf, Failure> {
    let mut bytes = Vec::new();
    entry.take(MEMBER_NAME_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| broken(name, &error))?;
    if bytes.pop_if(|last| *last == 0).is_none() || bytes.contains(&0) {
        return Err(
            format!("{name} holds a file whose name is no path of {MEMBER_NAME_BYTES_MAX} bytes at most").into()
        );
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Quotes the name of a member, which may be as long as a head.
fn named(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// Returns true if a path has normal components only.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Writes a new file, with a sync after each piece.
fn write_file(from: &mut impl Read, to: &Path, name: &str) -> Result<(), Failure> {
    let cannot = |error: io::Error| format!("{}: {error}", to.display());
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let file = File::options().write(true).create_new(true).mode(super::FILE_MODE).open(to);
    let mut file = file.map_err(cannot)?;
    let (mut piece, mut unsynced) = (vec![0; 1 << 16], 0);
    loop {
        let count = from.read(&mut piece).map_err(|error| broken(name, &error))?;
        if count == 0 {
            return Ok(());
        }
        file.write_all(&piece[..count]).map_err(cannot)?;
        unsynced += count;
        if unsynced >= super::SYNC_BYTES {
            file.sync_data().map_err(cannot)?;
            unsynced = 0;
        }
    }
}

/// Describes an archive that cannot be read further.
fn broken(name: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("{name} is cut off: {error}; restore another backup").into(),
        _ => format!("{name} cannot be read: {}", quote(&error.to_string())).into(),
    }
}

/// Returns a writer that encrypts to these recipients.
pub fn encrypt<W: Write>(recipients: &[String], to: W) -> Result<age::stream::StreamWriter<W>, Failure> {
    let recipients = recipients.iter().map(|text| recipient(text)).collect::<Result<Vec<_>, _>>()?;
    let recipients = recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
    Ok(age::Encryptor::with_recipients(recipients)?.wrap_output(to)?)
}

/// Parses a recipient: the public half of a key.
pub fn recipient(text: &str) -> Result<age::x25519::Recipient, String> {
    // The text is not quoted: it may be the private half by mistake.
    text.parse().map_err(|_| "must be recipients of age, \"age1…\", as age-keygen prints public keys".to_owned())
}

/// First bytes of a file encrypted by age.
const AGE_MAGIC: &[u8] = b"age-encryption.org/";

/// Returns the archive in a stream, decrypted by the identities in a file if it is encrypted.
pub fn decrypt<'a>(from: impl Read + 'a, identity: Option<&Path>, name: &str) -> Result<Box<dyn Read + 'a>, Failure> {
    let mut from = BufReader::new(from);
    let mut head = Vec::new();
    from.by_ref().take(AGE_MAGIC.len() as u64).read_to_end(&mut head).map_err(|error| broken(name, &error))?;
    if head != AGE_MAGIC {
        return Ok(Box::new(io::Cursor::new(head).chain(from)));
    }
    let Some(file) = identity else {
        return Err(
            format!("{name} is encrypted: name the file of an identity that opens it with --identity FILE").into()
        );
    };
    let identities = age::IdentityFile::from_file(file.display().to_string()).and_then(|file| {
        file.into_identities().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    });
    let identities = identities.map_err(|error| format!("the identity file {}: {error}", file.display()))?;
    read_age_head(&mut from, &mut head, name)?;
    let opened = age::Decryptor::new_buffered(io::Cursor::new(head).chain(from))
        .and_then(|sealed| sealed.decrypt(identities.iter().map(|identity| &**identity as &dyn age::Identity)));
    match opened {
        Ok(opened) => Ok(Box::new(opened)),
        Err(age::DecryptError::NoMatchingKeys) => Err(format!(
            "{name} was encrypted to others: no identity in {} opens it; name the right one with --identity FILE",
            file.display()
        )
        .into()),
        Err(error) => Err(format!("{name} cannot be decrypted: {error}").into()),
    }
}

/// Reads on to the end of the head, which is the line of its authentication code.
///
/// The crate parses a head anew with each line, and reads one without end for ever.
fn read_age_head(from: &mut impl BufRead, head: &mut Vec<u8>, name: &str) -> Result<(), Failure> {
    while head.len() < AGE_HEAD_BYTES_MAX {
        let (begin, left) = (head.len(), AGE_HEAD_BYTES_MAX - head.len());
        let count = from.take(left as u64).read_until(b'\n', head).map_err(|error| broken(name, &error))?;
        if count == 0 || head[begin..].starts_with(b"---") {
            return Ok(());
        }
    }
    Err(format!("{name} cannot be decrypted: its head is longer than {AGE_HEAD_BYTES_MAX} bytes").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK_TEXT: &str = r#"{"layout":1,"registry":"sqlite","at":"now"}"#;

    /// An endless source, which counts what was read of it.
    struct Endless<'a> {
        begin: io::Cursor<Vec<u8>>,
        again: &'a [u8],
        bytes: &'a std::cell::Cell<usize>,
    }

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut count = self.begin.read(buffer)?;
            if count == 0 {
                count = self.again.len().min(buffer.len());
                buffer[..count].copy_from_slice(&self.again[..count]);
            }
            self.bytes.set(self.bytes.get() + count);
            // Ends a test that fails.
            if self.bytes.get() > 8 << 20 { Err(io::Error::other("read too far")) } else { Ok(count) }
        }
    }

    fn identity_file() -> (tempfile::TempDir, PathBuf) {
        use age::secrecy::ExposeSecret as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identity");
        std::fs::write(&file, age::x25519::Identity::generate().to_string().expose_secret()).unwrap();
        (folder, file)
    }

    #[test]
    fn age_head_without_end_is_refused_after_64_kib() {
        let (_folder, identity) = identity_file();
        for again in ["-> X25519 a\n\n", "a", "-> a\n"] {
            let bytes = std::cell::Cell::new(0);
            let begin = io::Cursor::new(b"age-encryption.org/v1\n".to_vec());
            let again = again.repeat(1 << 12);
            let endless = Endless { begin, again: again.as_bytes(), bytes: &bytes };
            let error = decrypt(endless, Some(&identity), "the backup").err().unwrap().to_string();
            assert_eq!(error, "the backup cannot be decrypted: its head is longer than 65536 bytes");
            assert!(bytes.get() < 2 * AGE_HEAD_BYTES_MAX, "{} bytes were read", bytes.get());
        }
    }

    /// Makes a backup with one file of a mail folder.
    fn archive_with(name: &Path) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "hello").unwrap();
        std::fs::write(folder.path().join(MARK), MARK_TEXT).unwrap();
        pack(folder.path(), Vec::new()).unwrap()
    }

    fn unpack(archive: impl Read, to: &Path) -> Result<(), Failure> {
        let mut archive = tar::Archive::new(archive);
        Unpacking::begin(&mut archive, "the backup")?.1.fill(|path| Some(to.join(path)))
    }

    #[test]
    fn member_name_longer_than_a_header_is_restored() {
        let name = Path::new(MAIL).join("a".repeat(200)).join("b".repeat(200));
        let to = tempfile::tempdir().unwrap();
        unpack(archive_with(&name).as_slice(), to.path()).unwrap();
        assert_eq!(std::fs::read_to_string(to.path().join(name)).unwrap(), "hello");
    }

    #[test]
    fn member_name_without_end_is_refused_after_4_kib() {
        for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader] {
            let mut archive = Builder::new(Vec::new());
            append_text(&mut archive, MARK, MARK_TEXT).unwrap();
            let mut begin = archive.into_inner().unwrap();
            begin.truncate(begin.len() - 1024);
            let mut long = header(1 << 40);
            long.set_entry_type(kind);
            long.set_cksum();
            begin.extend_from_slice(long.as_bytes());
            let bytes = std::cell::Cell::new(0);
            let endless = Endless { begin: io::Cursor::new(begin), again: &[b'a'; 4096], bytes: &bytes };
            let to = tempfile::tempdir().unwrap();
            let error = unpack(endless, to.path()).err().unwrap().to_string();
            assert!(!error.contains("read too far"), "{error}");
            assert!(bytes.get() < 65_536, "{} bytes were read", bytes.get());
        }
    }
}
