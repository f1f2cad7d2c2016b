//! Tests that an entry loaded before runs changed the device is not installed.

use super::super::loading_cache::CacheValue as _;
use super::*;

#[tokio::test]
async fn older_load_is_not_installed_after_newer_was_evicted() {
    let stage = Stage::set().await;
    let first = stage.device(PLAIN).await;
    let load = async || Arc::clone(&stage.hub.0.caches.load_device(first.id).await.unwrap().unwrap());
    let entries = bounded(2, usize::MAX);
    // One load has read the device and is slow, waiting for its plan for instance. Another one is quicker.
    let slow = entries.begin(&first.id);
    let (old, new) = (load().await, load().await);
    let quick = entries.begin(&first.id);
    assert!(Arc::ptr_eq(&entries.install(Arc::clone(&new), &quick), &new) && new.is_current());
    // Runs change the device's state through the new entry; then other devices evict it.
    let body = format!(r#"{{"name":"e","projectUuid":"{}"}}"#, first.project);
    let mut others = Vec::new();
    for _ in 0..4 {
        let other = stage.another(&body).await;
        others.push((other.id, stage.hub.0.caches.load_device(other.id).await.unwrap().unwrap()));
    }
    for (id, other) in others.iter().cycle().take(100) {
        let begun = entries.begin(id);
        entries.install(Arc::clone(other), &begun);
    }
    assert!(!new.is_current());
    let shown = entries.install(old, &slow);
    assert!(!shown.is_current() && entries.get(&first.id).is_none());
    // A load that begins now is installed.
    let begun = entries.begin(&first.id);
    assert!(entries.install(load().await, &begun).is_current());
    drop((slow, quick, begun));
    assert!(entries.nobody_loads());
    stage.over().await;
}

#[test]
fn load_begun_before_an_eviction_is_not_installed() {
    let (entries, id) = (bounded(9, usize::MAX), device(1).id);
    // A reader that found no entry is slow to begin its load, and meanwhile another one installs an entry.
    put(&entries, &entry(0, 1, 2));
    let load = entries.begin(&id);
    let old = entry(0, 1, 2);
    // A run changes the state of the installed entry, and the entry is evicted.
    entries.push_all_out();
    assert!(!entries.install(old, &load).is_current() && entries.get(&id).is_none());
}

#[test]
fn load_begun_before_entry_lost_its_design_is_not_installed() {
    let (entries, id) = (bounded(9, usize::MAX), device(1).id);
    // Two loads have read the device; one is quicker.
    let (slow, old, new) = (entries.begin(&id), entry(0, 1, 2), entry(0, 1, 2));
    assert!(put(&entries, &new).is_current());
    // A run changes the state of the new entry. Then its project's design is evicted: no run uses the entry any more,
    // and nobody has removed it.
    new.plan.retire();
    assert!(!new.is_current() && new.place().unwrap().is_cached());
    assert!(!entries.install(old, &slow).is_current() && entries.get(&id).is_none());
    // A load that begins now is installed.
    assert!(put(&entries, &entry(0, 1, 2)).is_current());
    drop(slow);
    assert!(entries.nobody_loads());
}
