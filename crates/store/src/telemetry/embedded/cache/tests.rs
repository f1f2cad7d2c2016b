//! Tests that devices share the memory, and that the counted weights equal the actual ones.

use std::collections::BTreeMap;

use isobar_quota::TENANT_BYTES;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const KIB: usize = 1 << 10;

fn tenant(number: u64) -> Option<OrganizationId> {
    Some(OrganizationId(Uuid::from_u128(number.into())))
}

async fn visit(devices: &Devices, of: u64, key: u64, ticket: u64) {
    let mut held = devices.lock(key, tenant(of), 0).await;
    held.state.get_or_insert_with(DeviceState::default).ticket = ticket;
    devices.weigh(&mut held, 0);
}

/// Makes a device take this many bytes in addition to its base size.
fn takes(devices: &Devices, held: &mut Held, bytes: usize, durable: u64) {
    let state = held.state.get_or_insert_default();
    state.states = vec![("large".into(), vec![0; bytes].into())];
    state.count_texts();
    devices.weigh(held, durable);
}

/// Adds a device that takes this many bytes; its last write has this ticket.
async fn comes(devices: &Devices, of: u64, key: u64, bytes: usize, ticket: u64) {
    let mut held = devices.lock(key, tenant(of), 0).await;
    held.state.get_or_insert_default().ticket = ticket;
    takes(devices, &mut held, bytes, 0);
}

/// Returns pseudo-random numbers, each below a given bound.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn weight(devices: &Devices) -> usize {
    devices.0.weight()
}

/// Counts the devices in memory.
fn count(devices: &Devices) -> usize {
    devices.0.values().len()
}

fn is_there(devices: &Devices, key: u64) -> bool {
    devices.0.peek(&key).is_some()
}

/// Checks that the counted weights equal the actual ones, of each tenant and of all; no device may be locked meanwhile.
fn books_are_right(devices: &Devices) {
    let mut weights = BTreeMap::<OrganizationId, usize>::new();
    for device in devices.0.values() {
        let device = device.try_lock().unwrap();
        let weight = device.state.as_ref().map_or(0, DeviceState::weight);
        assert!(device.place.is_cached() && device.place.set_weight(weight) == weight);
        *weights.entry(device.place.tenant()).or_insert(TENANT_BYTES) += weight;
    }
    assert_eq!(weight(devices), weights.values().sum::<usize>());
    assert_eq!(devices.0.weights(), weights);
}

#[tokio::test]
async fn durable_devices_are_evicted_and_others_stay() {
    let devices = Devices::new(100 * DeviceState::default().weight());
    visit(&devices, 1, 0, 1).await;
    for key in 1..10_000 {
        visit(&devices, 1, key, 0).await;
    }
    let count = count(&devices);
    assert!(count <= 101, "{count}");
    assert!(devices.lock_if_present(0).await.is_some());
    books_are_right(&devices);
}

#[tokio::test]
async fn growing_device_evicts_others_in_all_shards() {
    const MAX: usize = 8 << 20;
    const DEVICES: u64 = 64;
    let devices = Devices::new(MAX);
    for key in 0..DEVICES {
        comes(&devices, 1, key, MAX / 8, 0).await;
        let weight = weight(&devices);
        assert!(weight <= MAX + MAX / 8 + 1_000, "{weight} bytes after {key}");
    }
    // No device is added; one that is present grows.
    let mut held = devices.lock(DEVICES - 1, tenant(1), 0).await;
    takes(&devices, &mut held, MAX / 2, 0);
    drop(held);
    let (count, weight) = (count(&devices), weight(&devices));
    assert!(count > 1 && weight <= MAX, "{weight} bytes of {count} devices");
    books_are_right(&devices);
}

#[tokio::test]
async fn locked_device_is_not_evicted() {
    let devices = Devices::new(0);
    let held = devices.lock(7, tenant(1), 0).await;
    for key in 0..1_000 {
        visit(&devices, key % 3, key + 8, 0).await;
    }
    assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&held.0), &devices.0.get(&7).unwrap()));
}

/// Adds two hundred devices of forty tenants, which are idle from now on and take a quarter of the cache.
async fn quiet_ones(devices: &Devices) {
    for key in 0..200 {
        comes(devices, 10 + key % 40, key, KIB, 0).await;
    }
}

#[tokio::test]
async fn tenant_of_few_heavy_devices_evicts_its_own() {
    const MAX: usize = 1 << 20;
    let devices = Devices::new(MAX);
    quiet_ones(&devices).await;
    for round in 0..200 {
        comes(&devices, 1, 1_000 + round % 10, 100 * KIB, 0).await;
        let weight = weight(&devices);
        assert!(weight <= MAX, "{weight} bytes after {round}");
    }
    assert!((0..200).all(|key| is_there(&devices, key)));
    let there = (1_000..1_010).filter(|key| is_there(&devices, *key)).count();
    assert!(there >= 5, "the heavy one has what is left: {there}");
    books_are_right(&devices);
}

#[tokio::test]
async fn unevictable_devices_evict_no_tenant_within_its_share() {
    const MAX: usize = 1 << 20;
    let devices = Devices::new(MAX);
    quiet_ones(&devices).await;
    // One tenant has more than its share, and all its devices can be evicted.
    for key in 300..340 {
        comes(&devices, 2, key, 4 * KIB, 0).await;
    }
    // The writes of another tenant take more than the cache has, and none of them is durable.
    for key in 1_000..1_020 {
        comes(&devices, 1, key, 100 * KIB, 1).await;
    }
    assert!((1_000..1_020).all(|key| is_there(&devices, key)));
    assert!((0..200).all(|key| is_there(&devices, key)));
    let there = (300..340).filter(|key| is_there(&devices, *key)).count();
    assert!(there < 10, "who has more than its part makes room: {there}");
    // The writes are durable: the next caller brings the cache within its bound.
    let mut held = devices.lock(0, tenant(10), 1).await;
    takes(&devices, &mut held, 2 * KIB, 1);
    drop(held);
    assert!(weight(&devices) <= MAX && (0..200).all(|key| is_there(&devices, key)));
    books_are_right(&devices);
}

#[tokio::test]
async fn unevictable_devices_hide_no_evictable_ones() {
    const MAX: usize = 1 << 20;
    let devices = Devices::new(MAX);
    for of in 0..60 {
        comes(&devices, 100 + of, of, 30 * KIB, 1).await;
    }
    for key in 1_000..1_200 {
        comes(&devices, 1 + key % 20, key, 20 * KIB, 0).await;
    }
    assert!((0..60).all(|key| is_there(&devices, key)));
    // Each tenant whose writes are all durable is down to about its equal share.
    let there = (1_000..1_200).filter(|key| is_there(&devices, *key)).count();
    assert!(there <= 40, "{there}");
    books_are_right(&devices);
}

#[tokio::test]
async fn device_is_charged_to_its_tenant() {
    let devices = Devices::new(1 << 20);
    let weight_of = |of: u64| devices.0.weights().get(&tenant(of).unwrap()).copied();
    // Only the system itself has used the device so far.
    drop(devices.lock(7, None, 0).await);
    comes(&devices, 1, 7, 10 * KIB, 0).await;
    assert!(weight_of(1).unwrap() > 10 * KIB && devices.0.weights().len() == 1);
    // The device moves to another tenant, and stays there when the system uses it.
    drop(devices.lock_now(7, tenant(2)).unwrap());
    drop(devices.lock_now(7, None).unwrap());
    drop(devices.lock(7, None, 0).await);
    assert!(weight_of(2).unwrap() > 10 * KIB && weight_of(1).is_none());
    books_are_right(&devices);
}

/// Step of a test with devices of tenants.
#[derive(Clone, Debug)]
enum Step {
    Takes { of: u64, key: u64, bytes: usize },
    Writes { of: u64, key: u64 },
    IsDurable,
    IsHeld { of: u64, key: u64 },
    IsLetGo,
}

fn step() -> impl Strategy<Value = Step> {
    // A device mostly belongs to the same tenant, and sometimes to another.
    let whose = || (0..30_u64, 0..20_u64).prop_map(|(key, other)| (if other < 4 { other } else { key % 4 }, key));
    prop_oneof![
        8 => (whose(), 0..8 * KIB).prop_map(|((of, key), bytes)| Step::Takes { of, key, bytes }),
        2 => whose().prop_map(|(of, key)| Step::Writes { of, key }),
        2 => Just(Step::IsDurable),
        1 => whose().prop_map(|(of, key)| Step::IsHeld { of, key }),
        2 => Just(Step::IsLetGo),
    ]
}

proptest! {
    #[test]
    fn cache_weights_are_exact_and_bounded(steps in prop::collection::vec(step(), 1..200)) {
        const MAX: usize = 32 * KIB;
        let devices = Devices::new(MAX);
        let lock = |of, key, durable| futures::executor::block_on(devices.lock(key, tenant(of), durable));
        let (mut written, mut durable, mut held) = (0, 0, None::<Held>);
        for step in steps {
            let is_held = |key| held.as_ref().is_some_and(|held| held.key == key);
            match step {
                Step::Takes { of, key, bytes } if !is_held(key) => {
                    takes(&devices, &mut lock(of, key, durable), bytes, durable);
                }
                Step::Writes { of, key } if !is_held(key) => {
                    written += 1;
                    lock(of, key, durable).state.get_or_insert_default().ticket = written;
                }
                Step::IsDurable => durable = written,
                Step::IsHeld { of, key } if held.is_none() => held = Some(lock(of, key, durable)),
                Step::IsLetGo => held = None,
                Step::Takes { .. } | Step::Writes { .. } | Step::IsHeld { .. } => {}
            }
            if let Some(held) = &held {
                prop_assert!(is_there(&devices, held.key));
            } else if durable == written {
                // Only the device that grows must stay: room is made for it.
                takes(&devices, &mut lock(4, 1_000, durable), 0, durable);
                takes(&devices, &mut lock(4, 1_000, durable), KIB, durable);
                prop_assert!(weight(&devices) <= MAX, "{} bytes", weight(&devices));
            }
            if held.is_none() {
                // The weight of devices with unweighed writes is not counted yet.
                for key in 0..30 {
                    if is_there(&devices, key) {
                        devices.weigh(&mut lock(key % 4, key, durable), durable);
                    }
                }
                books_are_right(&devices);
            }
        }
    }
}

#[test]
fn concurrent_changes_of_devices_keep_weights_exact() {
    const MAX: usize = 256 * KIB;
    let devices = Devices::new(MAX);
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let devices = &devices;
            scope.spawn(move || {
                let mut chance = chance(seed);
                for ticket in 0..5_000 {
                    let (key, other) = (chance(200), chance(100));
                    let of = if other < 8 { other } else { key % 8 };
                    let mut held = futures::executor::block_on(devices.lock(key, tenant(of), ticket));
                    held.state.get_or_insert_default().ticket = chance(ticket + 10);
                    if other % 3 == 0 {
                        std::thread::yield_now();
                    }
                    takes(devices, &mut held, chance(8 << 10) as usize, ticket);
                }
            });
        }
    });
    books_are_right(&devices);
    // All writes are durable now: the next device makes room.
    drop(futures::executor::block_on(devices.lock(1_000, tenant(9), u64::MAX)));
    assert!(weight(&devices) <= MAX);
    books_are_right(&devices);
}
