//! Tests that entries of devices share the cache's memory, and that eviction loses no change of a run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use isobar_design::Plan;
use isobar_model::ids::{DeviceKey, SettingId};
use isobar_model::json::{RawJson, parse};
use isobar_model::retention::ProjectRetention;
use isobar_model::setting::SETTINGS_BYTES_MAX;
use isobar_quota::{LruLimits, TENANT_BYTES, TenantLru};
use parking_lot::Mutex;
use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng};
use uuid::Uuid;

use super::data_quota::Meters;
use super::held::{InRun, Weighed as _};
use super::loading_cache::CacheValue as _;
use super::*;
use crate::stage::{Stage, blank_device};

mod overtaken;

type DeviceEntries = LoadingCache<DeviceId, Arc<DeviceEntry>>;

/// Fixed weight of an entry, without its state.
const ENTRY_BYTES: usize = DeviceView::ENTRY_BYTES;
const PLAIN: &str = r#"{"reading": {"type": "deviceEvent"}}"#;
const KIB: usize = 1 << 10;

fn tenant(number: usize) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number as u128 + 1))
}

fn device(number: usize) -> DeviceRef {
    DeviceRef { id: DeviceId(Uuid::from_u128(number as u128)), key: DeviceKey(number as u64) }
}

fn text(bytes: usize) -> RawJson {
    RawJson::trusted(format!("\"{}\"", "x".repeat(bytes.saturating_sub(2))).into())
}

/// Makes an entry of a device of this tenant with this many bytes of metadata.
fn entry(of: usize, number: usize, meta: usize) -> Arc<DeviceEntry> {
    with_settings(of, number, meta, Vec::new())
}

fn with_settings(of: usize, number: usize, meta: usize, settings: Vec<SettingRecord>) -> Arc<DeviceEntry> {
    let specification = parse(r#"{"cloud":{"elements":{}}}"#).unwrap();
    let plan = Plan::compile(&specification).unwrap();
    let plan = PlanEntry::new(ProjectId(Uuid::nil()), tenant(of), plan.into(), ProjectRetention::default());
    let limits = LruLimits { entries: 1, bytes: usize::MAX, evictions: 1, spares_small_shares: false };
    let plans = TenantLru::new(limits);
    plans.change().insert(((), tenant(of)), 0, |place| plan.install(place), |(), ()| true);
    let (lineage, meters) = (Lineage::new([], tenant(of)), Meters::default());
    let quota = meters.quota_of(&lineage);
    let found = Device { meta: text(meta), ..blank_device() };
    DeviceEntry::new((device(number), lineage), found, (settings, ListedAlarms::default()), (plan, 0), quota)
}

fn bounded(entries: usize, bytes: usize) -> DeviceEntries {
    DeviceEntries::new(entries, bytes)
}

/// Loads an entry and installs it.
fn put(entries: &DeviceEntries, entry: &Arc<DeviceEntry>) -> Arc<DeviceEntry> {
    let id = entry.device.id;
    let load = entries.begin(&id);
    entries.install(Arc::clone(entry), &load)
}

/// Loads an entry whose device changes during the load.
fn put_too_late(entries: &DeviceEntries, entry: &Arc<DeviceEntry>) -> Arc<DeviceEntry> {
    let id = entry.device.id;
    let load = entries.begin(&id);
    entries.invalidate(&id);
    entries.install(Arc::clone(entry), &load)
}

/// Makes room after the entry's weight has changed.
fn settle(entries: &DeviceEntries, entry: &DeviceEntry) {
    entries.settle(entry.place().unwrap());
}

/// Returns the numbers of the devices whose entry is installed.
fn installed(entries: &DeviceEntries) -> Vec<usize> {
    let mut numbers: Vec<_> = entries.all().iter().map(|entry| entry.device.key.0 as usize).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn least_recently_used_entries_are_evicted() {
    const META: usize = 4 * KIB;
    let entries = bounded(100, TENANT_BYTES + 10 * (ENTRY_BYTES + META));
    for number in 0..10 {
        put(&entries, &entry(0, number, META));
    }
    assert_eq!((installed(&entries).len(), entries.weight()), (10, TENANT_BYTES + 10 * (ENTRY_BYTES + META)));
    for number in [0, 2, 4] {
        entries.get(&device(number).id).unwrap();
        // A peek does not count as a use.
        entries.peek(&device(number + 1).id).unwrap();
    }
    for number in 10..15 {
        put(&entries, &entry(0, number, META));
    }
    assert_eq!(installed(&entries), [0, 2, 4, 8, 9, 10, 11, 12, 13, 14]);
    // An entry as large as several others.
    put(&entries, &entry(0, 99, 6 * META));
    assert_eq!(installed(&entries), [4, 12, 13, 14, 99]);
    assert!(entries.weight() <= TENANT_BYTES + 10 * (ENTRY_BYTES + META));
    // The number of entries is bounded too.
    let few = bounded(3, usize::MAX);
    (0..50).for_each(|number| drop(put(&few, &entry(number % 2, number, 2))));
    assert_eq!(installed(&few).len(), 3);
}

#[test]
fn growing_entry_evicts_others_and_stays() {
    const MAX: usize = 64 * KIB;
    let entries = bounded(100, MAX);
    let grown: Vec<_> = (0..8).map(|number| entry(number % 2, number, 4 * KIB)).collect();
    grown.iter().for_each(|entry| drop(put(&entries, entry)));
    let run = grown[0].begin_run().unwrap();
    for size in [10, 20, 40, 60] {
        grown[0].change_view(|view| view.meta = text(size * KIB));
        settle(&entries, &grown[0]);
        assert!(grown[0].is_current() && entries.weight() <= MAX, "{} bytes", entries.weight());
    }
    assert_eq!(installed(&entries), [0]);
    // The run is not committed: the weight is that of the restored state.
    grown[0].restore(grown[0].state(text_view(&grown[0], 4 * KIB)));
    assert_eq!(entries.weight(), TENANT_BYTES + ENTRY_BYTES + 4 * KIB);
    drop(run);
    entries.invalidate(&grown[0].device.id);
    assert_eq!((entries.weight(), installed(&entries).len()), (0, 0));
}

/// Returns the entry's state with this many bytes of metadata.
fn text_view(entry: &DeviceEntry, meta: usize) -> Arc<DeviceView> {
    let mut view = entry.view().unwrap();
    Arc::make_mut(&mut view).meta = text(meta);
    view
}

#[test]
fn tenant_with_heavy_devices_evicts_its_own() {
    const MAX: usize = 1 << 20;
    let entries = bounded(1_000, MAX);
    // Forty tenants use a half together, each a fortieth of it.
    for number in 0..200 {
        put(&entries, &entry(number % 40, number, KIB));
    }
    let quiet = installed(&entries);
    for round in 0..5 {
        for number in 1_000..1_100 {
            put(&entries, &entry(99, number, 60 * KIB));
            entries.get(&device(number).id).unwrap();
            assert!(entries.weight() <= MAX, "{} bytes in round {round}", entries.weight());
        }
        let stay = installed(&entries);
        assert_eq!(stay.iter().filter(|number| **number < 1_000).count(), quiet.len());
        assert!(stay.len() > quiet.len() + 5, "the heavy one has what is left: {}", stay.len());
    }
    // A tenant that has more than any other makes room even if it is idle.
    let entries = bounded(1_000, MAX);
    (0..16).for_each(|number| drop(put(&entries, &entry(0, number, 62 * KIB))));
    (100..108).for_each(|number| drop(put(&entries, &entry(1, number, 62 * KIB))));
    let of_each = installed(&entries).iter().fold([0, 0], |[one, other], number| match number {
        0..100 => [one + 1, other],
        _ => [one, other + 1],
    });
    assert_eq!(of_each, [8, 8]);
}

#[test]
fn device_memory_is_bounded_while_entries_are_referenced() {
    const MAX: usize = 16 << 20;
    const SETTINGS: usize = 16;
    let entries = bounded(10_000, MAX);
    let (mut held, mut views) = (Vec::new(), Vec::<Weak<DeviceView>>::new());
    for number in 0..100 {
        let record = |name: usize| SettingRecord {
            id: SettingId(Uuid::from_u128(name as u128)),
            device: device(number).id,
            name: format!("setting {name}"),
            value: Some(text(SETTINGS_BYTES_MAX / SETTINGS - 100)),
            created_at: Timestamp::from_millis(0),
            changed_at: None,
            changed_to: None,
            changed_by: None,
        };
        let entry = with_settings(number % 3, number, 64 * KIB, (0..SETTINGS).map(record).collect());
        views.push(Arc::downgrade(&entry.view().unwrap()));
        put(&entries, &entry);
        // The device's token, a long poll and the byte counts keep a reference.
        held.push(entry);
        let kept: Vec<_> = views.iter().filter_map(Weak::upgrade).collect();
        let bytes: usize = kept.iter().map(|view| view.settings_bytes() + view.meta.bytes().len()).sum();
        assert!(bytes <= MAX && bytes <= entries.weight(), "{bytes} bytes of {number} devices");
    }
    assert!(views.iter().filter(|view| view.strong_count() > 0).count() >= 10, "what has room is kept");
    assert!(held.iter().all(|entry| entry.view().is_some() == entry.is_current()));
}

#[test]
fn entry_that_is_not_installed_has_no_state() {
    let entries = bounded(10_000, 1 << 20);
    let changes: [fn(&DeviceEntries, DeviceId); 4] = [
        |entries, id| entries.invalidate(&id),
        |entries, _| entries.discard_loads(),
        |entries, _| entries.forget_if(|_| false),
        |entries, id| {
            put(entries, &entry(0, id.0.as_u128() as usize, 2));
            entries.push_all_out();
        },
    ];
    let mut held = Vec::new();
    for (number, change) in changes.iter().cycle().take(100).enumerate() {
        let id = device(number).id;
        let load = entries.begin(&id);
        change(&entries, id);
        let loaded = entries.install(entry(number % 3, number, 64 * KIB), &load);
        assert!(!loaded.is_current() && entries.get(&id).is_none());
        held.push(loaded);
    }
    let bytes: usize = held.iter().filter_map(|entry| entry.view()).map(|view| view.meta.bytes().len()).sum();
    assert_eq!((bytes, entries.weight()), (0, 0));
}

#[test]
fn run_keeps_its_entrys_state_until_it_ends() {
    let entries = bounded(10, usize::MAX);
    for retires in
        [|entries: &DeviceEntries| entries.push_all_out(), |entries: &DeviceEntries| entries.invalidate(&device(1).id)]
    {
        let entry = entry(0, 1, 2);
        put(&entries, &entry);
        let (_, run) = entry.begin_run().unwrap();
        retires(&entries);
        entry.change_view(|view| view.name = "changed".to_owned());
        assert_eq!(entry.view().unwrap().name, "changed");
        drop(run);
        // The entry that was in use during the eviction stayed; it is evicted after the run.
        entries.push_all_out();
        assert!(!entry.is_current() && entry.view().is_none() && entry.begin_run().is_none());
        // A retired entry has no state and no weight.
        entry.change_view(|view| view.name = "again".to_owned());
        assert!(entry.view().is_none() && entries.weight() == 0);
    }
}

/// Changes that may happen to an entry.
#[derive(Clone, Copy, Debug)]
enum Step {
    Comes { number: usize, meta: usize },
    ComesTooLate { number: usize, meta: usize },
    IsUsed(usize),
    Grows { number: usize, meta: usize },
    Runs(usize),
    Rests(usize),
    Changes(usize),
    TenantChanges(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (number, meta) = (0..24_usize, 0..8 * KIB);
    prop_oneof![
        6 => (number.clone(), meta.clone()).prop_map(|(number, meta)| Step::Comes { number, meta }),
        2 => (number.clone(), meta.clone()).prop_map(|(number, meta)| Step::ComesTooLate { number, meta }),
        3 => number.clone().prop_map(Step::IsUsed),
        3 => (number.clone(), meta).prop_map(|(number, meta)| Step::Grows { number, meta }),
        2 => number.clone().prop_map(Step::Runs),
        2 => number.clone().prop_map(Step::Rests),
        1 => number.prop_map(Step::Changes),
        1 => (0..3_usize).prop_map(Step::TenantChanges),
    ]
}

proptest! {
    #[test]
    fn weights_add_up_and_bounds_hold(steps in prop::collection::vec(step(), 1..200)) {
        const ENTRIES: usize = 12;
        const BYTES: usize = 40 * KIB;
        let entries = bounded(ENTRIES, BYTES);
        let mut made: Vec<Arc<DeviceEntry>> = Vec::new();
        let arena: Vec<Arc<DeviceEntry>> =
            steps.iter().filter_map(|step| match step {
                Step::Comes { number, meta } | Step::ComesTooLate { number, meta } => Some(entry(number % 3, *number, *meta)),
                _ => None,
            }).collect();
        let mut coming = arena.iter();
        let mut runs: BTreeMap<usize, (&Arc<DeviceEntry>, InRun<'_, DeviceView>)> = BTreeMap::new();
        for step in steps {
            let mut makes_room = false;
            match step {
                Step::Comes { .. } => {
                    let entry = coming.next().unwrap();
                    made.push(put(&entries, entry));
                    makes_room = true;
                }
                Step::ComesTooLate { .. } => made.push(put_too_late(&entries, coming.next().unwrap())),
                Step::IsUsed(number) => drop(entries.get(&device(number).id)),
                Step::Grows { number, meta } => {
                    if let Some(entry) = entries.peek(&device(number).id) {
                        entry.change_view(|view| view.meta = text(meta));
                        settle(&entries, &entry);
                        makes_room = true;
                    }
                }
                Step::Runs(number) => {
                    let current = arena.iter().find(|entry| entry.device == device(number) && entry.is_current());
                    if let Some(entry) = current && !runs.contains_key(&number) {
                        runs.insert(number, (entry, entry.begin_run().unwrap().1));
                    }
                }
                Step::Rests(number) => drop(runs.remove(&number)),
                Step::Changes(number) => entries.invalidate(&device(number).id),
                Step::TenantChanges(of) => entries.forget_if(|entry| entry.lineage.top() == tenant(of)),
            }
            let all = entries.books_are_right();
            prop_assert!(all.iter().all(|entry| entry.is_current() && entry.view().is_some()));
            if makes_room && runs.is_empty() {
                prop_assert!(all.len() <= ENTRIES && entries.weight() <= BYTES, "{} of {}", entries.weight(), all.len());
            }
            for (entry, _) in runs.values() {
                prop_assert!(entry.view().is_some());
            }
            // An evicted entry has no state unless a run uses it; nor has one that was outdated during its load.
            for entry in made.iter().filter(|entry| !entry.is_current()) {
                let runs = runs.values().any(|(of_run, _)| Arc::ptr_eq(of_run, entry));
                prop_assert!(runs || entry.view().is_none());
            }
        }
    }
}

/// Yields, so that other threads run, change and evict entries at this point.
fn yield_to_others() {
    (0..8).for_each(|_| std::thread::yield_now());
}

/// Devices whose entries are loaded, changed by runs and evicted at the same time.
struct Crowd {
    entries: DeviceEntries,
    /// The number of committed runs of each device.
    committed: Vec<Mutex<u64>>,
    /// Each device's lock: its runs take turns.
    turns: Vec<Mutex<()>>,
}

impl Crowd {
    fn load(&self, number: usize, load: &Load<'_, DeviceId>) -> Arc<DeviceEntry> {
        let runs = *self.committed[number].lock();
        yield_to_others();
        let loaded = entry(number % 3, number, KIB);
        loaded.change_view(|view| view.name = runs.to_string());
        self.entries.install(loaded, load)
    }

    /// Runs once: counts on from the entry's state, and commits if the entry is still current.
    fn run(&self, number: usize, grows: usize) {
        let id = device(number).id;
        let found = self.entries.get(&id);
        let entry = found.unwrap_or_else(|| {
            yield_to_others();
            self.load(number, &self.entries.begin(&id))
        });
        let _turn = self.turns[number].lock();
        if !entry.is_current() {
            return;
        }
        let Some((view, run)) = entry.begin_run() else { return };
        yield_to_others();
        let known = *self.committed[number].lock();
        let is_current = entry.is_current();
        assert!(!is_current || view.name == known.to_string(), "{} runs were seen of {known}", view.name);
        entry.change_view(|view| (view.name, view.meta) = ((known + 1).to_string(), text(grows)));
        settle(&self.entries, &entry);
        assert!(entry.view().is_some(), "a run keeps what its entry says");
        let before = entry.state(view);
        let mut committed = self.committed[number].lock();
        if entry.is_current() {
            *committed += 1;
        } else {
            entry.restore(before);
        }
        drop((committed, run));
    }
}

#[test]
fn concurrent_loads_runs_and_evictions_lose_no_run() {
    const DEVICES: usize = 12;
    const MAX: usize = 24 * KIB;
    let crowd = Crowd {
        entries: bounded(8, MAX),
        committed: (0..DEVICES).map(|_| Mutex::default()).collect(),
        turns: (0..DEVICES).map(|_| Mutex::default()).collect(),
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let crowd = &crowd;
            scope.spawn(move || {
                let mut chance = StdRng::seed_from_u64(seed);
                for _ in 0..4_000 {
                    let number = chance.random_range(0..DEVICES);
                    match chance.random_range(0..20) {
                        0 => crowd.entries.invalidate(&device(number).id),
                        1 => crowd.entries.push_all_out(),
                        _ => crowd.run(number, chance.random_range(0..6 * KIB)),
                    }
                }
            });
        }
    });
    crowd.entries.books_are_right();
    crowd.entries.push_all_out();
    assert_eq!((crowd.entries.weight(), crowd.entries.all().len()), (0, 0));
    assert!(crowd.committed.iter().all(|runs| *runs.lock() > 100));
}

/// Counts each event in a label of the device.
const COUNTS: &str = r#"{
    "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
        {"element": "label", "ability": "setValue", "arguments": {"tag": "'runs'", "value": "device.meta.runs + 1"}}
    ]}},
    "label": {"type": "deviceMeta"}
}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "the test hears of its panics")]
async fn evicted_entries_lose_no_change_of_a_design() {
    const RUNS: u32 = 40;
    let stage = Stage::set().await;
    let first = stage.device(COUNTS).await;
    let body = format!(r#"{{"name":"e","projectUuid":"{}","meta":{{"runs":0}}}}"#, first.project);
    let mut devices = Vec::new();
    for _ in 0..4 {
        devices.push(stage.another(&body).await);
    }
    let (over, caches) = (Arc::new(AtomicBool::new(false)), Arc::clone(&stage.hub.0.caches));
    let ended = Arc::clone(&over);
    let pushing = tokio::task::spawn_blocking(move || {
        while !ended.load(Ordering::SeqCst) {
            caches.devices.push_all_out();
            // A run that finds its entry evicted at each attempt gives up: the pause lets some succeed.
            #[expect(clippy::disallowed_methods, reason = "lets runs come through, by a thread of its own")]
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    for _ in 0..RUNS {
        futures::future::join_all(devices.iter().map(|device| stage.posts(device, "1"))).await;
    }
    over.store(true, Ordering::SeqCst);
    pushing.await.unwrap();
    for device in &devices {
        let shown = stage.shows(device).await.meta;
        let runs = shown.tree();
        assert_eq!(runs.get("runs").and_then(|runs| runs.as_f64()), Some(RUNS.into()), "{}", shown.text());
    }
    stage.over().await;
}
