//! The layer records what a program does to its files: synced data survives every outage, other data only sometimes.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use isobar_power::{Chance, Disk, Layer, Outage, StoppingClock, WrongClock};

const FOLDER: &str = "POWER_TEST_FOLDER";
const OUTAGES: u64 = 60;
const KILLED: i32 = 9;

/// Changes files in every way that the layer handles.
fn work(folder: &Path) {
    let mut kept = File::create(folder.join("kept.new")).unwrap();
    kept.write_all(&[b'a'; 10_000]).unwrap();
    kept.write_all_at(&[b'b'; 5_000], 2_000).unwrap();
    kept.set_len(9_000).unwrap();
    kept.sync_all().unwrap();
    fs::rename(folder.join("kept.new"), folder.join("kept")).unwrap();
    fs::create_dir(folder.join("inner")).unwrap();
    fs::hard_link(folder.join("kept"), folder.join("inner/alias")).unwrap();
    fs::remove_file(folder.join("old")).unwrap();
    File::open(folder.join("inner")).unwrap().sync_all().unwrap();
    File::open(folder).unwrap().sync_all().unwrap();
    // Nothing from here on is synced.
    kept.write_all_at(&[b'c'; 9_000], 0).unwrap();
    let mut appended = File::options().append(true).open(folder.join("grows")).unwrap();
    appended.write_all(&[b'd'; 2_000]).unwrap();
    fs::write(folder.join("late"), "late").unwrap();
}

#[test]
fn worker() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        work(Path::new(&folder));
    }
}

/// The thread whose clock stops, and the variable that names the program's notes.
const ASKING: &str = "asking-15-bytes";
const NOTES: &str = "POWER_TEST_NOTES";

#[test]
#[expect(clippy::disallowed_methods, reason = "the machine's clock is what stops")]
fn asker() {
    let Some(notes) = std::env::var_os(NOTES) else { return };
    let asks = |name: &str| std::thread::Builder::new().name(name.to_owned()).spawn(Instant::now).unwrap().join();
    assert!(asks(ASKING).is_ok() && asks("another").is_ok());
    StoppingClock::of_thread(ASKING, Path::new(&notes)).stop().unwrap();
    assert!(asks(ASKING).is_err() && asks("another").is_ok());
}

#[test]
fn stopped_clock_makes_one_thread_panic() {
    let notes = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "asker"]).env(NOTES, notes.path()).stdout(Stdio::null()).stderr(Stdio::null());
    StoppingClock::of_thread(ASKING, notes.path()).under(&mut command);
    assert!(command.status().unwrap().success());
    assert!(notes.path().join("stopped").exists(), "it was never asked");
}

/// The variable that names the file of a clock which the program itself sets.
const SHIFT: &str = "POWER_TEST_SHIFT";
const AHEAD_MILLIS: i64 = 3_600_250;

#[test]
#[expect(clippy::disallowed_methods, reason = "the machine's clock is what is wrong")]
fn late_and_early() {
    let Some(file) = std::env::var_os(SHIFT) else { return };
    let (right, begun) = (SystemTime::now(), Instant::now());
    let file = File::options().write(true).open(file).unwrap();
    let ahead = Duration::from_millis(AHEAD_MILLIS.unsigned_abs());
    file.write_all_at(&AHEAD_MILLIS.to_le_bytes(), 0).unwrap();
    assert!(SystemTime::now() >= right + ahead);
    file.write_all_at(&(-AHEAD_MILLIS).to_le_bytes(), 0).unwrap();
    assert!(SystemTime::now() <= right + begun.elapsed() - ahead + Duration::from_millis(500));
    assert!(begun.elapsed() < ahead);
    fs::write(Path::new(&std::env::var_os(NOTES).unwrap()).join("asked"), "").unwrap();
}

#[test]
fn wrong_clock_is_ahead_or_behind_and_measures_rightly() {
    let notes = tempfile::tempdir().unwrap();
    let path = notes.path().join("shift");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "late_and_early"]).env(SHIFT, &path).env(NOTES, notes.path()).stdout(Stdio::null());
    let clock = WrongClock::new(&path).unwrap();
    clock.set_ahead(0).unwrap();
    clock.under(&mut command);
    assert!(command.status().unwrap().success());
    assert!(notes.path().join("asked").exists(), "it was never asked");
}

struct Place {
    all: tempfile::TempDir,
    layer: Layer,
}

impl Place {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        for name in ["before", "disk"] {
            fs::create_dir(all.path().join(name)).unwrap();
            fs::write(all.path().join(name).join("old"), "old").unwrap();
            fs::write(all.path().join(name).join("grows"), "before ").unwrap();
        }
        let layer = Layer::new(&all.path().canonicalize().unwrap().join("disk"), all.path(), Duration::ZERO).unwrap();
        Self { all, layer }
    }

    /// Runs this test program's worker under the layer; returns the signal that ended it.
    fn run(&self) -> Option<i32> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker"]).env(FOLDER, self.all.path().join("disk")).stdout(Stdio::null());
        self.layer.under(&mut command);
        command.status().unwrap().signal()
    }

    fn disk(&self) -> Disk {
        let disk = self.layer.disk(&self.all.path().join("before")).unwrap();
        let missed = disk.differs_from(&self.all.path().join("disk"), |_| false).unwrap();
        assert!(missed.is_empty(), "{missed:?}");
        disk
    }
}

#[test]
fn synced_data_survives_every_outage() {
    let place = Place::new();
    assert_eq!(place.run(), None);
    let disk = place.disk();
    assert!(disk.unsynced() > 3, "{disk:?}");
    let (mut late, mut grown, mut overwritten) = (0, 0, 0);
    for seed in 0..OUTAGES {
        let (mut chance, after) = (Chance::new(seed), place.all.path().join(format!("after-{seed}")));
        disk.after(&Outage::by(&mut chance), &mut chance, &after, |_| false).unwrap();
        let kept = fs::read(after.join("kept")).unwrap();
        assert_eq!(kept.len(), 9_000);
        assert_eq!(fs::read(after.join("inner/alias")).unwrap().len(), 9_000);
        assert!(!after.join("old").exists() && !after.join("kept.new").exists());
        assert!(fs::read(after.join("grows")).unwrap().starts_with(b"before "));
        overwritten += u64::from(kept[0] == b'c');
        grown += u64::from(fs::metadata(after.join("grows")).unwrap().len() > 7);
        late += u64::from(after.join("late").exists());
    }
    for sometimes in [late, grown, overwritten] {
        assert!((1..OUTAGES).contains(&sometimes), "{late} {grown} {overwritten}");
    }
}

#[test]
fn power_cut_before_any_change_leaves_a_whole_journal() {
    for changes in 1..30 {
        let place = Place::new();
        place.layer.cut_after(changes).unwrap();
        let ended = place.run();
        place.disk();
        if ended.is_none() {
            assert!(changes > 10, "it did more than {changes} things");
            return;
        }
        assert_eq!(ended, Some(KILLED));
    }
    unreachable!("the fuse never held");
}

#[test]
fn disk_that_ignores_syncs_may_lose_everything() {
    let place = Place::new();
    assert_eq!(place.run(), None);
    let disk = place.disk();
    let mut chance = Chance::new(0);
    let lies = Outage { lies_about: Some(""), kept_percent: 0, ..Outage::by(&mut chance) };
    let lost = (0..OUTAGES).filter(|turn| {
        let after = place.all.path().join(format!("after-{turn}"));
        disk.after(&lies, &mut chance, &after, |_| false).unwrap();
        !after.join("kept").exists()
    });
    assert!(lost.count() > 0);
}
