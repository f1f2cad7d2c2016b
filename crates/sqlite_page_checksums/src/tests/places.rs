//! Tests of the place of a database, and of files beside one that somebody has put there.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn database_behind_links_has_its_companions_beside_it() {
    let place = TestDatabase::new();
    let folder = place.file.parent().unwrap();
    let (real, link, first) = (folder.join("else/where.db"), folder.join("link.db"), folder.join("first.db"));
    fs::create_dir(folder.join("else")).unwrap();
    symlink("else/where.db", &link).unwrap();
    symlink(&link, &first).unwrap();
    // The folder is empty.
    assert_eq!(prepare(&first, Open::ToUse).unwrap(), Some(VFS));
    let raw = opened(&first);
    fill(&raw);
    raw.run("UPDATE t SET name = 'the last' WHERE k = 5").unwrap();
    for end in ["", "-wal", "-note"] {
        assert!(PathBuf::from(format!("{}{end}", real.display())).exists(), "{end}");
        let strays = [&link, &first].map(|link| PathBuf::from(format!("{}{end}", link.display())));
        assert!(end.is_empty() || !strays.iter().any(|stray| stray.exists()), "{end}");
    }
    assert!(companions(&first).eq(companions(&real)));
    // The files that a killed process leaves, reached by a link.
    let killed = TestDatabase::new();
    for end in ["", "-wal", "-note"] {
        fs::copy(format!("{}{end}", real.display()), killed.beside(end)).unwrap();
    }
    let length = fs::metadata(killed.beside("-wal")).unwrap().len() as usize;
    killed.flip("-wal", length - 9);
    let link = killed.file.parent().unwrap().join("link.db");
    symlink(&killed.file, &link).unwrap();
    assert!(matches!(prepare(&link, Open::ToUse), Err(PagesError::Lost(_))));
    assert_eq!(loss(&link).unwrap().unwrap().changes, "1");
    assert!(accept_loss(&link, &killed.aside()).unwrap().is_some());
    assert!(loss(&link).unwrap().is_none());
    prepare(&link, Open::ToUse).unwrap();
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let place = TestDatabase::new();
    let link = place.file.parent().unwrap().join("link.db");
    symlink(&link, &link).unwrap();
    assert!(matches!(prepare(&link, Open::ToUse), Err(PagesError::Io { .. })));
    assert!(loss(&link).is_err());
    assert_eq!(companions(&link).count(), 0);
}

#[test]
fn note_beside_a_manually_placed_copy_is_named() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let copy = place.beside("-copy");
    raw.run(&format!("VACUUM INTO '{}'", copy.display().to_string().replace('\'', "''"))).unwrap();
    raw.run("UPDATE t SET name = 'later' WHERE k = 7").unwrap();
    let killed = place.as_killed();
    fs::copy(&copy, &killed.file).unwrap();
    fs::remove_file(killed.beside("-wal")).unwrap();
    match prepare(&killed.file, Open::ToUse) {
        Err(PagesError::Lost(loss)) => assert_eq!(loss.companions()[2], killed.beside("-note").display().to_string()),
        other => panic!("{other:?}"),
    }
    fs::remove_file(killed.beside("-note")).unwrap();
    assert_eq!(all(&killed.open()).unwrap().len(), ROWS);
    let missing = place.as_killed();
    fs::remove_file(&missing.file).unwrap();
    fs::remove_file(missing.beside("-wal")).unwrap();
    match prepare(&missing.file, Open::ToUse) {
        Err(PagesError::Damaged(why)) => assert!(why.contains("-note"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn copy_without_checksums_drops_the_note_of_its_predecessor() {
    let place = TestDatabase::new();
    let raw = place.open();
    fill(&raw);
    let killed = place.as_killed();
    for end in ["", "-wal"] {
        fs::remove_file(killed.beside(end)).unwrap();
    }
    // A backup by hand of a version without checksums, beside a note that claims a log.
    let older = Raw::open(&killed.file).unwrap();
    fill(&older);
    let truth = all(&older).unwrap();
    drop(older);
    for start in ["the first, which gives it checksums", "the second"] {
        let raw = killed.open();
        assert_eq!(all(&raw).unwrap(), truth, "{start}");
    }
}
