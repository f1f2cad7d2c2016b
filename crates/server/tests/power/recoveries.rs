//! The power fails just after `isobar recover --yes`: what it went on without is kept all the same.

use std::fs;
use std::path::Path;

use isobar_power::{Chance, Names, Outage};

use crate::outages::Place;
use crate::program_support::Serving;
use crate::program_support::site::ENVIRONMENT;
use crate::{OUTAGES, SEED};

/// The file in this folder that ends so and holds most.
fn largest(folder: &Path, end: &str) -> std::path::PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let named = files.filter(|path| path.to_string_lossy().ends_with(end));
    named.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn what_is_gone_on_without_is_kept_before_anything_is_changed() {
    let place = Place::new();
    let mut chance = Chance::new(SEED);
    let data = place.data();
    Serving::on(&data, &ENVIRONMENT).kill();
    let logs = [largest(&data.join("telemetry"), ".log"), data.join("registry.db-wal")];
    logs.iter().for_each(|log| flip(log));
    // The socket is no file that could be copied.
    let _ = fs::remove_file(data.join("isobar.sock"));
    place.is_as_it_is();
    let done = place.about(&["recover", "--yes"]);
    assert!(done.status.success(), "{done:?}");
    for _ in 0..OUTAGES {
        let outage =
            Outage { names: Names::Any, kept_percent: 0, files_confirm_names: false, ..Outage::by(&mut chance) };
        let left = place.left_by(&outage, &mut chance);
        let aside = fs::read_dir(&left).unwrap().map(|entry| entry.unwrap().path());
        let aside: Vec<_> = aside.filter(|path| path.to_string_lossy().contains("/dropped-")).collect();
        assert_eq!(aside.len(), 1, "{outage:?}");
        for log in &logs {
            assert!(aside[0].join(log.file_name().unwrap()).is_file(), "{outage:?}");
        }
        assert!(aside[0].join("registry.db").is_file(), "{outage:?}");
    }
}
