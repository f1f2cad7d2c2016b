//! What was loaded before runs changed what it says is not installed.

use super::*;

#[tokio::test]
async fn an_older_load_is_not_installed_after_a_newer_one_was_pushed_out() {
    let stage = Stage::set().await;
    let first = stage.device(PLAIN).await;
    let load = async || Arc::clone(&stage.hub.0.caches.load_device(first.id).await.unwrap().unwrap());
    let entries = bounded(2, usize::MAX);
    // One load has read the device and waits for something: its plan, say. Another one is quicker.
    let slow = entries.begin(&first.id);
    let (old, new) = (load().await, load().await);
    let quick = entries.begin(&first.id);
    assert!(Arc::ptr_eq(&entries.install(Arc::clone(&new), &quick), &new) && new.is_current());
    // Runs by its entry change what the device is; then others push it out.
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
    assert!(!shown.is_current() && entries.get(first.id).is_none());
    // One that begins from here on is installed.
    let begun = entries.begin(&first.id);
    assert!(entries.install(load().await, &begun).is_current());
    drop((slow, quick, begun));
    assert!(entries.nobody_loads());
    stage.over().await;
}

#[test]
fn a_load_is_not_installed_that_began_before_an_entry_was_pushed_out() {
    let (entries, id) = (bounded(9, usize::MAX), device(1).id);
    // Somebody who found no entry is slow to begin, and meanwhile another one has installed one.
    put(&entries, &entry(0, 1, 2));
    let load = entries.begin(&id);
    let old = entry(0, 1, 2);
    // A run by the installed one changes it, and it leaves.
    entries.push_all_out();
    assert!(!entries.install(old, &load).is_current() && entries.get(id).is_none());
}

#[test]
fn a_load_is_not_installed_that_began_before_another_whose_design_has_left_since() {
    let (entries, id) = (bounded(9, usize::MAX), device(1).id);
    // Two have read the device; one is quicker.
    let (slow, old, new) = (entries.begin(&id), entry(0, 1, 2), entry(0, 1, 2));
    assert!(put(&entries, &new).is_current());
    // A run by its entry changes what the device is. Then its project's design makes room for others: no run goes by the
    // entry any more, and nobody has taken it out.
    new.plan.held().retire();
    assert!(!new.is_current() && new.held().is_installed());
    assert!(!entries.install(old, &slow).is_current() && entries.get(id).is_none());
    // One that begins from here on is installed.
    assert!(put(&entries, &entry(0, 1, 2)).is_current());
    drop(slow);
    assert!(entries.nobody_loads());
}
