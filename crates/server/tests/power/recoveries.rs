//! Power cuts just after `isobar recover --yes`: the discarded data is kept aside durably.

use std::fs;
use std::path::Path;

use isobar_power::{Chance, Names, Outage};
use serde_json::json;

use crate::outages::Place;
use crate::program_support::site::{Api, ENVIRONMENT, everything};
use crate::program_support::{Serving, text};
use crate::{OUTAGES, SEED};

/// Returns the largest file in this folder with this suffix.
fn largest(folder: &Path, end: &str) -> std::path::PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let named = files.filter(|path| path.to_string_lossy().ends_with(end));
    named.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

fn flip(file: &Path, in_use: impl Fn(&[u8]) -> usize) {
    let mut bytes = fs::read(file).unwrap();
    let middle = in_use(&bytes) / 2;
    bytes[middle] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// Returns the valid length of SQLite's log: frames with the salts of its header. Older frames may follow
/// (https://www.sqlite.org/fileformat2.html, "WAL File Format").
fn in_use(log: &[u8]) -> usize {
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let frames = log[32..].chunks_exact(24 + page);
    32 + frames.take_while(|frame| frame[8..16] == log[16..24]).count() * (24 + page)
}

#[tokio::test]
async fn discarded_data_is_kept_before_anything_is_changed() {
    let place = Place::new();
    let mut chance = Chance::new(SEED);
    let data = place.data();
    let serving = Serving::on(&data, &ENVIRONMENT);
    let api = Api::of(&serving).await;
    let device = api.found(&everything(), 1).await.remove(0);
    for n in 0..20 {
        api.post(&device, "reading", &json!({"n": n})).await.created();
    }
    serving.kill();
    let logs = [largest(&data.join("telemetry"), ".log"), data.join("registry.db-wal")];
    flip(&logs[0], <[u8]>::len);
    flip(&logs[1], in_use);
    // The socket cannot be copied.
    let _ = fs::remove_file(data.join("isobar.sock"));
    place.is_as_it_is();
    let done = place.about(&["recover", "--yes"]);
    let told = text(&done.stdout);
    assert!(done.status.success() && told.contains("Telemetry: ") && told.contains("Registry: "), "{done:?}");
    for _ in 0..OUTAGES {
        let outage =
            Outage { names: Names::Any, kept_percent: 0, files_confirm_names: false, ..Outage::by(&mut chance) };
        let left = place.left_by(&outage, &mut chance);
        let aside = fs::read_dir(&left).unwrap().map(|entry| entry.unwrap().path());
        let aside: Vec<_> = aside.filter(|path| path.to_string_lossy().contains("/dropped-")).collect();
        assert_eq!(aside.len(), 1, "{outage:?}");
        for log in &logs {
            assert!(aside[0].join(log.file_name().unwrap()).is_file(), "{log:?}, {outage:?}");
        }
        assert!(aside[0].join("registry.db").is_file(), "{outage:?}");
    }
}
