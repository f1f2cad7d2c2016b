//! Tests of damage and failures while a database is open, and of checkpoints before a loss.

use super::*;
use crate::keeper::keeper;
use crate::log::{Log, eight};
use crate::note::{Claim, CopiedPart, Note, NoteContent};
use crate::paths::DatabasePaths;

/// Returns a database whose log is not checkpointed, with changes of most of its pages in several transactions.
fn with_a_long_log() -> (TestDatabase, Raw) {
    let place = TestDatabase::new();
    let raw = place.open();
    raw.run("PRAGMA wal_autocheckpoint = 0").unwrap();
    fill(&raw);
    raw.run("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for round in 0..6 {
        raw.run(&format!("UPDATE t SET body = randomblob(length(body) + 1), name = name || '-{round}'")).unwrap();
    }
    (place, raw)
}

fn frames(place: &TestDatabase) -> usize {
    fs::metadata(place.beside("-wal")).unwrap().len() as usize / FRAME_BYTES
}

/// Returns the offset of a byte in the page of a frame; frames count from 1.
fn within(frame: usize) -> usize {
    place_of(frame - 1) + FRAME_HEADER_BYTES + 50
}

fn is_whole(raw: &Raw) {
    assert_eq!(raw.run("PRAGMA integrity_check").unwrap(), ["ok"]);
}

/// Returns the first frame whose page no later one has.
fn a_needed_frame(place: &TestDatabase) -> usize {
    let log = fs::read(place.beside("-wal")).unwrap();
    let page = |frame: usize| log[place_of(frame - 1)..][..4].to_vec();
    let last = frames(place);
    (1..=last).find(|frame| !(frame + 1..=last).any(|later| page(later) == page(*frame))).unwrap()
}

#[test]
fn needed_damaged_frame_met_by_a_checkpoint_ends_all_writing() {
    let (place, raw) = with_a_long_log();
    let truth = all(&raw).unwrap();
    let frame = a_needed_frame(&place);
    place.flip("-wal", within(frame));
    // A checkpoint looks at all of it first. From then on nothing is acknowledged that would be lost.
    assert!(raw.run("PRAGMA wal_checkpoint(PASSIVE)").is_err());
    for _ in 0..3 {
        assert!(raw.run("UPDATE t SET name = 'late' WHERE k = 3").is_err());
    }
    drop(raw);
    // All transactions still exist: once the right byte is back, they are found.
    assert!(place.lost().contains("-wal is damaged"), "{}", place.lost());
    place.flip("-wal", within(frame));
    assert_eq!(all(&place.open()).unwrap(), truth);
}

#[test]
fn needed_damaged_frame_met_by_a_reader_ends_all_writing() {
    let (place, raw) = with_a_long_log();
    place.flip("-wal", within(a_needed_frame(&place)));
    let reader = Raw::open_through(&place.file, Some(C_NAME)).unwrap();
    assert!(all(&reader).is_err());
    assert!(raw.run("UPDATE t SET name = 'late' WHERE k = 3").is_err());
    assert!(raw.run("UPDATE t SET name = 'late' WHERE k = 3").is_err());
}

#[test]
fn superseded_damaged_frame_goes_with_the_next_checkpoint() {
    let (place, raw) = with_a_long_log();
    let truth = all(&raw).unwrap();
    place.flip("-wal", within(2));
    raw.run("UPDATE t SET name = 'later' WHERE k = 3").unwrap();
    raw.run("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    raw.run("UPDATE t SET name = 'latest' WHERE k = 3").unwrap();
    let now = all(&raw).unwrap();
    assert_eq!(now.len(), truth.len());
    assert_eq!(all(&place.as_killed().open()).unwrap(), now);
    assert!(!keeper(DatabasePaths::of(&place.file).unwrap().database()).unwrap().has_failed());
}

#[test]
fn checkpoint_that_would_stop_midway_does_not_begin() {
    let (place, raw) = with_a_long_log();
    let before = fs::read(&place.file).unwrap();
    let (needed, last) = (a_needed_frame(&place), frames(&place));
    place.flip("-wal", within(needed));
    assert!(raw.run("PRAGMA wal_checkpoint(PASSIVE)").is_err());
    assert!(fs::read(&place.file).unwrap() == before, "the database is half of what it was and half of what it is");
    assert!(needed < last);
    let killed = place.as_killed();
    assert!(killed.lost().contains("changes that were acknowledged are lost"), "{}", killed.lost());
    assert!(accept_loss(&killed.file, &killed.aside()).unwrap().is_some());
    let raw = killed.open();
    is_whole(&raw);
    assert_eq!(all(&raw).unwrap().len(), ROWS);
    // Everything as it was lies aside.
    for end in ["", "-wal", "-note"] {
        let name = killed.beside(end);
        let name = name.file_name().unwrap();
        let (kept, was) = (fs::read(killed.aside().join(name)).unwrap(), fs::read(place.beside(end)).unwrap());
        assert!(kept == was, "{end}");
    }
}

#[test]
fn checkpointed_log_is_not_applied_to_a_newer_database() {
    let (place, raw) = with_a_long_log();
    // As long as somebody reads from it, the log does not begin anew.
    let reader = Raw::open_through(&place.file, Some(C_NAME)).unwrap();
    reader.run("BEGIN; SELECT count(*) FROM t").unwrap();
    raw.run("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let (carried, then) = (frames(&place), all(&raw).unwrap());
    for damaged in [1, 2, carried / 2, carried] {
        let killed = place.as_killed();
        killed.flip("-wal", within(damaged));
        assert!(killed.lost().contains("nothing that was acknowledged is lost"), "{}", killed.lost());
        assert_eq!(accept_loss(&killed.file, &killed.aside()).unwrap().unwrap().changes, "0");
        let raw = killed.open();
        is_whole(&raw);
        assert_eq!(all(&raw).unwrap(), then, "frame {damaged}");
    }
    // More came behind what was carried over.
    for row in 0..3 {
        raw.run(&format!("UPDATE t SET name = 'late {row}', body = randomblob(9000) WHERE k = {row}")).unwrap();
    }
    let now = all(&raw).unwrap();
    for (damaged, changes) in [(2, "3"), (carried, "3"), (carried + 1, "3"), (frames(&place), "1")] {
        let killed = place.as_killed();
        killed.flip("-wal", within(damaged));
        assert_eq!(accept_loss(&killed.file, &killed.aside()).unwrap().unwrap().changes, changes, "frame {damaged}");
        let raw = killed.open();
        is_whole(&raw);
        let left = all(&raw).unwrap();
        assert!(if changes == "3" { left == then } else { left != then && left != now }, "frame {damaged}");
    }
    let gone = place.as_killed();
    fs::remove_file(gone.beside("-wal")).unwrap();
    assert!(accept_loss(&gone.file, &gone.aside()).unwrap().is_some());
    assert_eq!(all(&gone.open()).unwrap(), then);
}

/// Returns a database in which a checkpoint has written every other page when the process was killed.
fn killed_in_a_checkpoint(place: &TestDatabase, raw: &Raw) -> TestDatabase {
    let killed = place.as_killed();
    raw.run("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let (mut mixed, after) = (fs::read(&killed.file).unwrap(), fs::read(&place.file).unwrap());
    mixed.resize(after.len(), 0);
    for (number, (to, from)) in mixed.chunks_mut(PAGE_BYTES).zip(after.chunks(PAGE_BYTES)).enumerate() {
        if number % 2 == 1 {
            to.copy_from_slice(from);
        }
    }
    fs::write(&killed.file, mixed).unwrap();
    let note = Note::open(&killed.beside("-note")).unwrap();
    let NoteContent::Claim(claim) = note.read().unwrap() else { panic!("nothing is noted") };
    note.write(Claim { carried: CopiedPart { frames: claim.frames, is_whole: false }, ..claim }).unwrap();
    killed
}

#[test]
fn mixed_state_of_a_checkpoint_is_refused_for_good() {
    let (place, raw) = with_a_long_log();
    let truth = all(&raw).unwrap();
    let killed = killed_in_a_checkpoint(&place, &raw);
    // With its whole log it is sound.
    assert_eq!(all(&killed.as_killed().open()).unwrap(), truth);
    killed.flip("-wal", within(2));
    let before: Vec<_> = ["", "-wal", "-note"].map(|end| fs::read(killed.beside(end)).unwrap()).into();
    assert!(killed.lost().contains("of no one moment"), "{}", killed.lost());
    match accept_loss(&killed.file, &killed.aside()) {
        Err(PagesError::Damaged(why)) => assert!(why.contains("bring a backup back"), "{why}"),
        other => panic!("{other:?}"),
    }
    let after: Vec<_> = ["", "-wal", "-note"].map(|end| fs::read(killed.beside(end)).unwrap()).into();
    assert!(before == after, "nothing was to be changed");
    assert!(!killed.aside().join("trial").exists());
}

#[test]
fn unknown_checkpoint_is_resolved_by_the_sound_candidate() {
    let (place, raw) = with_a_long_log();
    let killed = place.as_killed();
    raw.run("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    // All frames were copied; the note is of a version without that information.
    fs::copy(&place.file, &killed.file).unwrap();
    let note = Note::open(&killed.beside("-note")).unwrap();
    let NoteContent::Claim(claim) = note.read().unwrap() else { panic!("nothing is noted") };
    note.write(Claim { carried: CopiedPart::unknown(claim.frames), ..claim }).unwrap();
    killed.flip("-wal", within(2));
    assert!(accept_loss(&killed.file, &killed.aside()).unwrap().is_some());
    let found = killed.open();
    is_whole(&found);
    assert_eq!(all(&found).unwrap(), all(&raw).unwrap());
}

#[test]
fn checkpoint_is_noted_before_and_after() {
    let (place, raw) = with_a_long_log();
    let read = || match Note::open(&place.beside("-note")).unwrap().read().unwrap() {
        NoteContent::Claim(claim) => claim,
        other => panic!("{other:?}"),
    };
    let before = frames(&place) as u32;
    assert_eq!((read().frames, read().carried), (before, CopiedPart::default()));
    // A reader holds a checkpoint up: what comes behind what it sees is not carried over.
    let reader = Raw::open_through(&place.file, Some(C_NAME)).unwrap();
    reader.run("BEGIN; SELECT count(*) FROM t").unwrap();
    raw.run("UPDATE t SET name = 'late' WHERE k = 1").unwrap();
    raw.run("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    let frames = read().frames;
    assert!(frames > before);
    assert_eq!(read().carried, CopiedPart { frames, is_whole: false });
    reader.run("ROLLBACK").unwrap();
    raw.run("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    assert_eq!((read().frames, read().carried), (frames, CopiedPart { frames, is_whole: true }));
    raw.run("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert_eq!((read().frames, read().carried), (0, CopiedPart::default()));
    raw.run("UPDATE t SET name = 'latest' WHERE k = 2").unwrap();
    assert_eq!(read().carried, CopiedPart::default());
    let log = Log::of(fs::File::open(place.beside("-wal")).unwrap()).unwrap().unwrap();
    assert_eq!(log.salts, eight(&fs::read(place.beside("-wal")).unwrap(), 16));
    assert_eq!(read().salts, log.salts);
}

#[test]
fn failed_sync_ends_all_writing_and_preserves_the_log() {
    let (place, raw) = with_a_long_log();
    let truth = all(&raw).unwrap();
    keeper(DatabasePaths::of(&place.file).unwrap().database()).unwrap().fail("a test says so");
    assert!(raw.run("UPDATE t SET name = 'late' WHERE k = 1").is_err());
    assert!(raw.run("PRAGMA wal_checkpoint(TRUNCATE)").is_err());
    assert_eq!(all(&raw).unwrap(), truth);
    drop(raw);
    assert!(frames(&place) > 0, "the next start makes good for it from the log");
    let raw = place.open();
    assert_eq!(all(&raw).unwrap(), truth);
    raw.run("UPDATE t SET name = 'later' WHERE k = 1").unwrap();
}
