#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests: a broken promise ends them")]

//! Tests of the layer beneath SQLite: what it writes, detects and passes on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod checkpoints;
mod places;

use super::*;
use crate::checksum::PAGE_BYTES;
use crate::log::{FRAME_BYTES, FRAME_HEADER_BYTES, frame_offset};
use crate::raw::Raw;
use crate::vfs::C_NAME;

/// Rows of the tests' table.
const ROWS: usize = 100;

struct TestDatabase {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl TestDatabase {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { file: folder.path().join("odd 'name'.db"), _folder: folder }
    }

    fn beside(&self, end: &str) -> PathBuf {
        PathBuf::from(format!("{}{end}", self.file.display()))
    }

    /// Opens the database as a program does.
    fn open(&self) -> Raw {
        assert_eq!(prepare(&self.file, Open::ToUse).unwrap(), Some(VFS));
        opened(&self.file)
    }

    /// Copies the files that a process leaves that is killed now.
    fn as_killed(&self) -> Self {
        let killed = Self::new();
        for end in ["", "-wal", "-note"] {
            if self.beside(end).exists() {
                fs::copy(self.beside(end), killed.beside(end)).unwrap();
            }
        }
        killed
    }

    fn flip(&self, end: &str, at: usize) {
        let mut bytes = fs::read(self.beside(end)).unwrap();
        bytes[at] ^= 0x10;
        fs::write(self.beside(end), bytes).unwrap();
    }

    /// Returns a folder for copies.
    fn aside(&self) -> PathBuf {
        self._folder.path().join("aside")
    }

    fn lost(&self) -> String {
        match prepare(&self.file, Open::ToUse) {
            Err(PagesError::Lost(loss)) => loss.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn opened(file: &Path) -> Raw {
    let raw = Raw::open_through(file, Some(C_NAME)).unwrap();
    raw.run("PRAGMA busy_timeout = 60000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    raw
}

fn fill(raw: &Raw) {
    raw.run("CREATE TABLE t (k INTEGER PRIMARY KEY, name TEXT UNIQUE, body BLOB)").unwrap();
    raw.run(&format!(
        "WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < {ROWS} - 1)
         INSERT INTO t SELECT k, 'name ' || k, randomblob(k * 40) FROM n"
    ))
    .unwrap();
}

fn all(raw: &Raw) -> Result<Vec<String>, String> {
    raw.run("SELECT k || name || hex(body) FROM t ORDER BY k")
}

fn all_pages_fit(file: &Path) {
    let bytes = fs::read(file).unwrap();
    assert_eq!(bytes.len() % PAGE_BYTES, 0);
    for (number, page) in (1..).zip(bytes.chunks(PAGE_BYTES)) {
        assert!(page_fits(page), "page {number}");
    }
}

#[test]
fn every_page_has_a_checksum_and_plain_sqlite_reads_the_file() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let truth = all(&raw).unwrap();
    raw.run(&format!("VACUUM INTO '{}'", place.beside("-copy").display().to_string().replace('\'', "''"))).unwrap();
    drop(raw);
    assert!(!place.beside("-wal").exists());
    for file in [&place.file, &place.beside("-copy")] {
        all_pages_fit(file);
        let plain = Raw::open(file).unwrap();
        assert_eq!(all(&plain).unwrap(), truth);
        assert_eq!(plain.run("PRAGMA integrity_check").unwrap(), ["ok"]);
    }
}

#[test]
fn damaged_page_is_an_error_that_names_it() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    drop(raw);
    let pages = fs::metadata(&place.file).unwrap().len() as usize / PAGE_BYTES;
    for page in [1, 2, 3, pages / 2, pages] {
        let damaged = place.as_killed();
        // Every 211th byte of it, one after the other, among them those of the header.
        for at in (0..PAGE_BYTES).step_by(211) {
            damaged.flip("", (page - 1) * PAGE_BYTES + at);
            // A page that says neither whose it is nor what is refused before.
            if prepare(&damaged.file, Open::ToUse).is_ok() {
                let raw = Raw::open_through(&damaged.file, Some(C_NAME)).unwrap();
                let told = raw.run("PRAGMA integrity_check").and_then(|told| all(&raw).map(|_| told));
                assert!(told.as_ref().is_err_and(|told| told.contains("8202")), "page {page}, byte {at}: {told:?}");
                assert!(last_damage().unwrap().starts_with(&format!("page {page} of ")), "{:?}", last_damage());
            }
            damaged.flip("", (page - 1) * PAGE_BYTES + at);
        }
        assert!(!damage_of(&damaged.file).is_empty());
    }
}

#[test]
fn damaged_frame_is_found_on_read_and_not_checkpointed() {
    let place = TestDatabase::new();
    let raw = place.open();
    raw.run("PRAGMA wal_autocheckpoint = 0").unwrap();
    fill(&raw);
    let log = fs::metadata(place.beside("-wal")).unwrap().len() as usize;
    let frames = log / FRAME_BYTES;
    // One after the other, in the page or in the sums, while the log is in use.
    let mut found = 0;
    for at in (0..60).map(|round| round * 7 % frames).map(|frame| place_of(frame) + frame * 31 % FRAME_BYTES) {
        place.flip("-wal", at);
        let reader = Raw::open_through(&place.file, Some(C_NAME)).unwrap();
        let told = all(&reader);
        assert!(told.is_err() || told == all(&raw), "{at}");
        found += usize::from(told.is_err());
        place.flip("-wal", at);
    }
    assert!(found > 5 && !damage_of(&place.file).is_empty(), "{found}");
    let truth = all(&raw).unwrap();
    // The newest frame of some page: the file may not get it.
    place.flip("-wal", place_of(frames - 1) + FRAME_HEADER_BYTES + 50);
    assert!(raw.run("PRAGMA wal_checkpoint(TRUNCATE)").is_err());
    place.flip("-wal", place_of(frames - 1) + FRAME_HEADER_BYTES + 50);
    // No connection can write until the whole database is opened anew.
    assert!(raw.run("PRAGMA wal_checkpoint(TRUNCATE)").is_err());
    drop(raw);
    let raw = place.open();
    raw.run("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert_eq!(all(&raw).unwrap(), truth);
    all_pages_fit(&place.file);
}

fn place_of(frame: usize) -> usize {
    usize::try_from(frame_offset(frame as u32 + 1)).unwrap()
}

#[test]
fn damaged_byte_in_the_log_of_a_killed_process_is_reported() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    for row in 0..20 {
        raw.run(&format!("UPDATE t SET name = 'again {row}' WHERE k = {row}")).unwrap();
    }
    let truth = all(&raw).unwrap();
    let killed = place.as_killed();
    let log = fs::read(place.beside("-wal")).unwrap();
    let mut told = BTreeSet::new();
    for round in 0..150_usize {
        // The beginning and the end byte by byte, and what lies between.
        let at = match round {
            0..32 => round,
            32..62 => log.len() - 1 - (round - 32),
            _ => round * 7919 % log.len(),
        };
        let damaged = killed.as_killed();
        damaged.flip("-wal", at);
        match prepare(&damaged.file, Open::ToUse) {
            Err(PagesError::Lost(loss)) => {
                assert!(loss.log.ends_with("-wal"));
                told.insert(loss.changes);
            }
            Ok(_) => assert_eq!(all(&opened(&damaged.file)).unwrap(), truth, "byte {at}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(told.len() > 2, "{told:?}");
}

#[test]
fn loss_of_the_last_transaction_is_refused_until_accepted() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let before = all(&raw).unwrap();
    raw.run("UPDATE t SET name = 'the last' WHERE k = 5").unwrap();
    let killed = place.as_killed();
    let length = fs::metadata(killed.beside("-wal")).unwrap().len() as usize;
    killed.flip("-wal", length - 9);
    assert!(killed.lost().contains("up to 1 changes"), "{}", killed.lost());
    assert_eq!(accept_loss(&killed.file, &killed.aside()).unwrap().unwrap().changes, "1");
    assert!(accept_loss(&killed.file, &killed.aside()).unwrap().is_none());
    assert_eq!(all(&killed.open()).unwrap(), before);

    let gone = place.as_killed();
    fs::remove_file(gone.beside("-wal")).unwrap();
    assert!(gone.lost().contains("is missing"));
    // A transaction that a crash tears was not acknowledged.
    let torn = place.as_killed();
    let mut log = fs::read(torn.beside("-wal")).unwrap();
    log.extend(vec![7; FRAME_BYTES + 100]);
    fs::write(torn.beside("-wal"), log).unwrap();
    assert_eq!(all(&torn.open()).unwrap(), all(&raw).unwrap());
}

#[test]
fn older_note_claims_less_and_a_torn_one_nothing() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let older = fs::read(place.beside("-note")).unwrap();
    raw.run("UPDATE t SET name = 'later' WHERE k = 7").unwrap();
    let truth = all(&raw).unwrap();
    let killed = place.as_killed();
    fs::write(killed.beside("-note"), older).unwrap();
    assert_eq!(all(&killed.open()).unwrap(), truth);
    let without = place.as_killed();
    fs::remove_file(without.beside("-note")).unwrap();
    assert_eq!(all(&without.open()).unwrap(), truth);
    let damaged = place.as_killed();
    damaged.flip("-note", 13);
    assert_eq!(all(&damaged.open()).unwrap(), truth);
    assert_eq!(damage_of(&damaged.file), Vec::<String>::new());
    // The log begins anew many times; whenever the process ends, what it leaves is whole.
    raw.run("PRAGMA wal_autocheckpoint = 20").unwrap();
    for round in 0..40 {
        raw.run(&format!("UPDATE t SET body = randomblob({}) WHERE k = {round}", round * 400)).unwrap();
        assert_eq!(all(&place.as_killed().open()).unwrap(), all(&raw).unwrap());
    }
}

#[test]
fn transaction_larger_than_the_cache_is_read_and_committed() {
    let place = TestDatabase::new();
    let raw = place.open();
    raw.run("PRAGMA cache_size = 10; PRAGMA wal_autocheckpoint = 50").unwrap();
    fill(&raw);
    let mut truth = all(&raw).unwrap();
    for end in ["ROLLBACK", "COMMIT", "ROLLBACK", "COMMIT"] {
        // Pages are written into the log before the end, read from there, and written over.
        raw.run("BEGIN IMMEDIATE").unwrap();
        for round in 0..4 {
            raw.run(&format!("UPDATE t SET body = randomblob(length(body) + {round}), name = name || '-'")).unwrap();
            assert_eq!(all(&raw).unwrap().len(), ROWS);
            let back = if round % 2 == 0 { "ROLLBACK TO s;" } else { "" };
            raw.run(&format!("SAVEPOINT s; UPDATE t SET name = name || '-'; {back} RELEASE s")).unwrap();
        }
        raw.run(end).unwrap();
        assert_eq!(raw.run("PRAGMA integrity_check").unwrap(), ["ok"]);
        let now = all(&raw).unwrap();
        assert_eq!(now == truth, end == "ROLLBACK");
        truth.clone_from(&now);
        assert_eq!(all(&place.as_killed().open()).unwrap(), now);
    }
    assert!(last_damage().is_none(), "{:?}", last_damage());
    drop(raw);
    all_pages_fit(&place.file);
}

#[test]
fn file_without_checksums_is_converted_after_a_failed_try() {
    let place = TestDatabase::new();
    let raw = Raw::open(&place.file).unwrap();
    raw.run("PRAGMA journal_mode = WAL; PRAGMA user_version = 7").unwrap();
    fill(&raw);
    let truth = all(&raw).unwrap();
    // Its log was not folded: the process was killed.
    let killed = place.as_killed();
    assert_eq!(prepare(&killed.file, Open::AsItIs).unwrap(), None);
    // The file that an interrupted attempt leaves.
    fs::write(killed.beside("-new"), fs::read(&place.file).unwrap()).unwrap();
    fs::write(killed.beside("-new-journal"), [1; 100]).unwrap();
    let raw = killed.open();
    assert_eq!(all(&raw).unwrap(), truth);
    assert_eq!(raw.run("PRAGMA user_version").unwrap(), ["7"]);
    drop(raw);
    all_pages_fit(&killed.file);
    assert!(!killed.beside("-new").exists());
    // A damaged one does not get checksums that fit.
    let damaged = place.as_killed();
    drop(Raw::open(&damaged.file).unwrap().run("PRAGMA wal_checkpoint(TRUNCATE)").unwrap());
    let before = fs::metadata(&damaged.file).unwrap().len() as usize;
    for page in 1..before / PAGE_BYTES {
        for at in 0..16 {
            damaged.flip("", page * PAGE_BYTES + at);
        }
    }
    assert!(prepare(&damaged.file, Open::ToUse).is_err());
}

#[test]
fn first_page_torn_by_a_checkpoint_is_read_from_the_log() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let truth = all(&raw).unwrap();
    let torn = place.as_killed();
    let mut file = fs::read(&torn.file).unwrap();
    file[..PAGE_BYTES].fill(0x5a);
    fs::write(&torn.file, file).unwrap();
    assert_eq!(all(&torn.open()).unwrap(), truth);
}

#[test]
fn lost_database_is_not_replaced_by_an_empty_one() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let killed = place.as_killed();
    fs::remove_file(&killed.file).unwrap();
    assert!(matches!(prepare(&killed.file, Open::ToUse), Err(PagesError::Damaged(_))));
    fs::write(&killed.file, "").unwrap();
    assert!(matches!(prepare(&killed.file, Open::ToUse), Err(PagesError::Damaged(_))));
    fs::write(&killed.file, [3; 9000]).unwrap();
    fs::remove_file(killed.beside("-wal")).unwrap();
    assert!(matches!(prepare(&killed.file, Open::ToUse), Err(PagesError::Damaged(_))));
    // An orderly stop leaves no log, but a note.
    drop(raw);
    fs::remove_file(&place.file).unwrap();
    assert!(matches!(prepare(&place.file, Open::ToUse), Err(PagesError::Damaged(_))));
    fs::write(&place.file, "").unwrap();
    assert!(matches!(prepare(&place.file, Open::ToUse), Err(PagesError::Damaged(_))));
}

#[test]
fn database_prepared_by_many_threads_is_shared() {
    for _ in 0..5 {
        let place = TestDatabase::new();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let place = &place;
                scope.spawn(move || {
                    let raw = place.open();
                    raw.run("CREATE TABLE IF NOT EXISTS u (k)").unwrap();
                    for row in 0..10 {
                        raw.run(&format!("INSERT INTO u VALUES ({})", thread * 100 + row)).unwrap();
                    }
                });
            }
        });
        assert_eq!(place.open().run("SELECT count(*) FROM u").unwrap(), ["60"]);
        assert!(last_damage().is_none(), "{:?}", last_damage());
    }
}
