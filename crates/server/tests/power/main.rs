//! Power cuts under load, repeatedly: what was acknowledged is there afterwards, exactly once, in telemetry and in the
//! registry. The program runs on a layer that records syncs; the disk after a cut holds a random part of everything
//! else (`isobar-power`).
//!
//! `POWER_CUTS=200` makes a long run, `POWER_SEED` a different one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod outages;
mod people;
#[path = "../program_support/mod.rs"]
mod program_support;
mod recoveries;
mod registry;
mod telemetry;
mod work;

use std::panic::resume_unwind;

use isobar_power::{Chance, Names, Outage};
use outages::{Moment, Place};
use tokio::task::JoinError;
use work::Told;

const SEED: u64 = 0x15_0b_a4;
/// Cuts of a normal run.
const CUTS: u64 = 6;
/// Disks that are tried for one run.
const OUTAGES: usize = 16;
/// Most acknowledgements before a cut.
const HEARD: u64 = 250;
/// Cuts after which a new folder is used, so that first starts are cut too, and lists stay short.
const CUTS_OF_A_FOLDER: u64 = 20;

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

// Holds: c13.bulk, c13.batchDurable
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_data_survives_power_cuts() {
    let (cuts, seed) = (given("POWER_CUTS", CUTS), given("POWER_SEED", SEED));
    let mut told = Told::default();
    for first in (0..cuts).step_by(CUTS_OF_A_FOLDER as usize) {
        let mut chance = Chance::new(seed.wrapping_add(first));
        let mut place = Place::new();
        let mut serving = place.started(&mut chance, first > 0 || cuts > CUTS).await;
        let mut site = work::Site::found(&serving).await;
        for cut in first..cuts.min(first + CUTS_OF_A_FOLDER) {
            let moment = Moment::by(&mut chance, cut);
            let outage = Outage::by(&mut chance);
            let heard = 1 + chance.below(HEARD);
            place.work_until_cut(&site, serving, moment, heard, &mut chance).await;
            place.fail(&outage, &mut chance);
            serving = place.started(&mut chance, moment.starts_badly()).await;
            site = site.at(&serving);
            let lost = site.lost().await;
            assert!(
                lost.is_empty(),
                "cut {cut} of seed {seed:#x}, {moment:?}, {outage:?}, {}: {lost:#?}",
                place.keep()
            );
            place.is_sound();
        }
        site.letters_come(&place.data()).await;
        assert_eq!(serving.stop(), Some(0));
        told.add(&site.told().await);
        println!("{} cuts, {told}", cuts.min(first + CUTS_OF_A_FOLDER));
    }
    told.is_worth_something(cuts);
}

/// Checks the layer itself: if syncs of telemetry or of the registry are ignored, acknowledged data is lost, and the
/// test finds that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_that_ignores_syncs_is_found_out() {
    let mut chance = Chance::new(SEED);
    let mut place = Place::new();
    let serving = place.started(&mut chance, false).await;
    let site = work::Site::found(&serving).await;
    assert_eq!(serving.stop(), Some(0));
    let gentle = Outage { kept_percent: 100, ..Outage::by(&mut chance) };
    place.fail(&gentle, &mut chance);
    let serving = place.started(&mut chance, false).await;
    let site = site.at(&serving);
    place.work_until_cut(&site, serving, Moment::UnderLoad, HEARD, &mut chance).await;
    for lies_about in ["", "telemetry", "registry.db"] {
        let outage =
            Outage { lies_about: Some(lies_about), kept_percent: 0, rubbish: false, ..Outage::by(&mut chance) };
        // A refused start counts as found too.
        let Some(serving) = place.after_a_lie(&outage, &mut chance) else { continue };
        let site = site.at(&serving);
        let found = match tokio::spawn(async move { site.lost().await }).await {
            Ok(lost) => !lost.is_empty(),
            // An answer of 500 or 503, an exit, and a list of another length than stated, because of a damaged file,
            // count as damage too.
            Err(ended) => is_damage(ended),
        };
        assert!(found, "no sync of {lies_about:?} was one, and nothing is lost");
    }
}

/// Returns true if a check ended by an answer of 500 or 503, because the server was gone, or because a list is shorter or
/// longer than it says: pages of the registry are of different times then.
fn is_damage(ended: JoinError) -> bool {
    let said = ended.into_panic();
    let faults = [": 500 ", ": 503 ", "reqwest::Error", "the list is not as long as it says"];
    let found = said.downcast_ref::<String>().is_some_and(|said| faults.iter().any(|fault| said.contains(fault)));
    if !found {
        resume_unwind(said);
    }
    found
}

/// Checks that the name of a new data folder is durable: synced contents are lost with it.
#[tokio::test]
async fn new_data_folder_is_durable_before_the_first_answer() {
    let mut chance = Chance::new(SEED);
    let mut place = Place::new();
    place.started(&mut chance, false).await.kill();
    for _ in 0..OUTAGES {
        let outage = Outage { names: Names::Any, kept_percent: 0, ..Outage::by(&mut chance) };
        assert!(place.left_by(&outage, &mut chance).join("VERSION").is_file(), "{outage:?}");
    }
}
