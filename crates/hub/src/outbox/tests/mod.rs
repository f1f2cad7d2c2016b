//! Tests the queue of pending work against a model of it.

mod hub;
mod overtaken;
mod turns;

use std::collections::{BTreeMap, HashMap};

use futures::poll;
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::status::Status;
use isobar_model::time::Clock;
use isobar_store::telemetry::OutboxEntry;
use proptest::prelude::*;
use uuid::Uuid;

use super::device_queue::DeviceQueue;
use super::piece::{OutboxSize, Piece, PieceKind};
use super::queue::QueueLook;
use super::work::SettingWork;
use super::*;
use crate::stage::blank_device as blank;

fn organization(number: u128) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number))
}

fn device(number: u64) -> DeviceRef {
    DeviceRef { id: DeviceId(Uuid::from_u128(number.into())), key: DeviceKey(number) }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn labelled(device: DeviceRef, label: &str, value: &str, now: i64) -> RegistryWork {
    RegistryWork { meta: vec![(label.to_owned(), value.to_owned())], ..RegistryWork::of(device.id, at(now)) }
}

fn expect(
    waiting: &mut OutboxQueue,
    device: DeviceRef,
    tenant: OrganizationId,
    work: RegistryWork,
    number: &dyn Fn() -> u64,
) -> Option<(StagedWork, Vec<OutboxChange>)> {
    let draft = Draft::of(device, waiting.base(device.key), UnstagedWork::of(work, number), number);
    match waiting.expect(device, tenant, draft) {
        Expect::Goes(leaving, changes) => Some((leaving, changes)),
        Expect::Anew(_) => panic!("nothing happened in between"),
        Expect::Full => None,
    }
}

/// The pending work, and the entries of the store that contain it.
#[derive(Default)]
struct Desk {
    waiting: OutboxQueue,
    rows: BTreeMap<u64, (DeviceKey, Vec<u8>)>,
    next: std::cell::Cell<u64>,
    /// Bytes of all entries that were written.
    written: usize,
}

impl Desk {
    /// Leaves the work of a run; returns false if there is no room.
    fn leaves(&mut self, device: DeviceRef, tenant: u128, work: RegistryWork) -> bool {
        let now = at(work.at.unwrap_or_default());
        let Some(left) = self.expects(device, tenant, work) else { return false };
        self.comes(device, left, now);
        true
    }

    /// Expects the work of a run.
    fn expects(
        &mut self,
        device: DeviceRef,
        tenant: u128,
        work: RegistryWork,
    ) -> Option<(StagedWork, Vec<OutboxChange>)> {
        let next = &self.next;
        let number = || {
            next.set(next.get() + 1);
            next.get()
        };
        expect(&mut self.waiting, device, organization(tenant), work, &number)
    }

    /// Submits the commit of the run.
    fn comes(&mut self, device: DeviceRef, (staged, changes): (StagedWork, Vec<OutboxChange>), now: Timestamp) {
        self.waiting.comes((device.key, 0), staged, now);
        for change in changes {
            match change {
                OutboxChange::Put { number, work } => {
                    self.written += work.len();
                    self.rows.insert(number, (device.key, work.to_vec()));
                }
                OutboxChange::Done(number) => drop(self.rows.remove(&number)),
            }
        }
    }

    fn takes(&mut self) -> Vec<Piece> {
        self.waiting.take(Clock::System.instant(), BATCH_ROWS_MAX)
    }

    fn removes(&mut self) {
        for (_, row) in self.waiting.take_needless() {
            self.rows.remove(&row);
        }
    }

    /// Ends the process and begins the next one.
    fn restarts(&mut self) {
        self.waiting = OutboxQueue::default();
        for (number, (device, work)) in &self.rows {
            let entry = OutboxEntry { number: *number, device: *device, work: work.clone().into(), parked: None };
            self.waiting.take_up(&entry, 0, at(0)).unwrap();
        }
        while let Some(device) = self.waiting.strangers(1).first() {
            let key = device.key;
            self.waiting.belongs(key, organization(u128::from(key.0 % 3)));
        }
    }

    fn look(&self) -> QueueLook {
        self.waiting.look()
    }
}

#[test]
fn label_written_repeatedly_is_one_entry() {
    let mut desk = Desk::default();
    for n in 0..1_000 {
        assert!(desk.leaves(device(1), 1, labelled(device(1), "n", &n.to_string(), n)));
    }
    assert_eq!((desk.rows.len(), desk.look().size.entries, desk.look().oldest), (1, 1, Some(0)));
    let pieces = desk.takes();
    let PieceKind::Report(report) = &pieces[0].what else { panic!("{pieces:?}") };
    let labels: Vec<_> = report.found.report.meta.iter().map(|(tag, value)| (&**tag, value.text())).collect();
    assert_eq!((pieces.len(), labels, report.found.at), (1, vec![("n", "999")], at(999)));
    // Work that arrives while the report is in hand has an entry of its own; both are merged when the first is put
    // back.
    desk.leaves(device(1), 1, labelled(device(1), "m", "1", 1_000));
    assert_eq!((desk.rows.len(), desk.look().size.entries), (2, 2));
    for piece in pieces {
        desk.waiting.put_back(piece);
    }
    assert_eq!((desk.look().size.entries, desk.takes().len()), (1, 1));
}

#[test]
fn large_report_is_not_rewritten_with_every_label() {
    let mut desk = Desk::default();
    let long = format!("\"{}\"", "x".repeat(200));
    for n in 0..200 {
        assert!(desk.leaves(device(1), 1, labelled(device(1), &format!("label {n}"), &long, n)));
        let after: usize = desk.rows.values().map(|(_, work)| work.len()).sum();
        assert!(after <= 3 * desk.look().size.bytes, "{after}");
    }
    // Each change has some 300 bytes, all of them together 50,000.
    assert!(desk.written < 300_000, "{}", desk.written);
    let before = desk.waiting.of(DeviceKey(1)).map(PendingChanges::of);
    desk.restarts();
    let after = desk.waiting.of(DeviceKey(1)).map(PendingChanges::of);
    assert_eq!(shown(&before), shown(&after));
}

/// Returns what a reader sees of a device that had no labels.
fn shown(pending: &Option<PendingChanges>) -> (Status, Status, String) {
    let mut device = blank();
    pending.iter().for_each(|pending| pending.apply_to(&mut device));
    (device.status, device.status_before, device.meta.text().to_owned())
}

#[test]
fn tenants_take_turns_whatever_their_backlog() {
    let mut desk = Desk::default();
    for number in 0..2_000 {
        desk.leaves(device(number), 1, labelled(device(number), "n", "1", 0));
    }
    for (number, tenant) in [(5_000, 2), (5_001, 3), (5_002, 3)] {
        desk.leaves(device(number), tenant, labelled(device(number), "n", "1", 0));
    }
    let first: Vec<u64> = desk.takes().iter().take(5).map(|piece| piece.device.key.0).collect();
    assert_eq!(first, [0, 5_000, 5_001, 1, 5_002]);
}

#[test]
fn tenant_gets_no_more_than_is_free() {
    let mut desk = Desk::default();
    let (most, mut number) = (super::queue::OUTBOX_MAX.entries, 0);
    let mut fills = |desk: &mut Desk, tenant| {
        let before = number;
        while number <= most as u64 && desk.leaves(device(number), tenant, labelled(device(number), "n", "1", 0)) {
            number += 1;
        }
        (number - before) as usize
    };
    let most = super::queue::OUTBOX_MAX.entries;
    let counts = [fills(&mut desk, 1), fills(&mut desk, 2), fills(&mut desk, 1)];
    assert_eq!(counts, [most / 2, most / 4, 0]);
    let (rows, size) = (desk.rows.len(), desk.look().size);
    // A refused run leaves nothing; a newer state of a device needs no more room than the pending one.
    assert!(desk.leaves(device(0), 1, labelled(device(0), "n", "2", 0)));
    assert!(!desk.leaves(device(number), 1, labelled(device(number), "n", "1", 0)));
    assert_eq!((desk.rows.len(), desk.look().size.entries), (rows, size.entries));
    for _ in 0..=most {
        let pieces = desk.takes();
        if pieces.is_empty() {
            break;
        }
        pieces.iter().for_each(|piece| desk.waiting.written(piece));
        desk.waiting.is_done();
        desk.removes();
    }
    assert_eq!((desk.look().size, desk.rows.len()), (OutboxSize::default(), 0));
    assert!(desk.look().oldest.is_none() && !desk.waiting.is_ready());
}

#[test]
fn tenants_of_one_site_leave_a_third_to_others() {
    let mut desk = Desk::default();
    let most = super::queue::OUTBOX_MAX.entries as u64;
    // The last 32 bits are the site.
    let crowd = |number: u64| (u128::from(number) + 1) << 32 | 7;
    let fits =
        |number: &u64| desk.leaves(device(*number), crowd(*number % 1_000), labelled(device(*number), "n", "1", 0));
    let count = (0..most).take_while(fits).count() as u64;
    assert!(count.abs_diff(most * 2 / 3) <= most / 1_000, "{count}");
    assert!(desk.leaves(device(most), 1, labelled(device(most), "n", "1", 0)));
    assert!(!desk.leaves(device(most + 1), crowd(0), labelled(device(most + 1), "n", "1", 0)));
}

type Leaves = (u64, u8, u8, Option<u8>, bool);

#[test]
fn pending_work_moves_with_its_device() {
    let mut desk = Desk::default();
    let most = super::queue::OUTBOX_MAX.entries;
    for number in 0..most as u64 / 4 {
        assert!(desk.leaves(device(number), 1, labelled(device(number), "n", "1", 0)));
    }
    // All devices now belong to another tenant: their work counts as its own, and the first tenant has room again.
    for number in 0..most as u64 / 4 {
        assert!(desk.leaves(device(number), 2, labelled(device(number), "n", "2", 0)));
    }
    let mut more = |tenant, from: u64| {
        let fits = |number: &u64| desk.leaves(device(*number), tenant, labelled(device(*number), "n", "1", 0));
        (from..from + most as u64).take_while(fits).count()
    };
    // Each gets as much as is free at that time.
    assert_eq!(more(1, most as u64), most * 3 / 8);
    assert_eq!(more(2, 3 * most as u64), most / 16);
}

#[derive(Clone, Debug)]
enum Step {
    /// A device gets a label of this many bytes, and perhaps a status.
    Leaves(Leaves),
    /// The same while the worker has a batch in hand, or takes one only when the work is already expected, and ends it
    /// before the run's commit is submitted.
    Meets(Leaves, u8, bool),
    /// The worker takes pending work; every piece whose bit is set is written, the others are put back.
    Works(u8),
    /// The same, but the registry commits and the process ends before the entries are removed.
    Dies(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let leaves = (0..4_u64, 0..6_u8, any::<u8>(), prop::option::of(0..5_u8), any::<bool>());
    prop_oneof![
        6 => leaves.clone().prop_map(Step::Leaves),
        3 => (leaves, any::<u8>(), any::<bool>()).prop_map(|(leaves, written, late)| Step::Meets(leaves, written, late)),
        2 => any::<u8>().prop_map(Step::Works),
        1 => any::<u8>().prop_map(Step::Dies),
    ]
}

proptest! {
    /// Checks for any order of writes, put-backs and restarts that a device shows the changes of its runs in order, and
    /// that the registry has them in the end, each setting once and in order.
    #[test]
    fn no_change_is_lost_or_reordered(steps in prop::collection::vec(step(), 1..120)) {
        let mut desk = Desk::default();
        let mut truth: HashMap<u64, (Device, Vec<u128>)> = HashMap::new();
        let mut registry: HashMap<u64, (Device, Vec<u128>)> = HashMap::new();
        let keep = |registry: &mut HashMap<u64, (Device, Vec<u128>)>, piece: &Piece| {
            let (row, settings) = registry.entry(piece.device.key.0).or_insert_with(|| (blank(), Vec::new()));
            match &piece.what {
                PieceKind::Report(report) => drop(report.found.report.over(row, report.found.at)),
                PieceKind::Settings(records, _) => {
                    for id in records.iter().map(|record| record.what.id.0.as_u128()) {
                        if !settings.contains(&id) {
                            settings.push(id);
                        }
                    }
                }
                PieceKind::Delivery(_) => {}
            }
        };
        let last = [Step::Works(0xff), Step::Works(0xff), Step::Works(0xff), Step::Works(0xff)];
        for (now, step) in (1_i64..).zip(steps.into_iter().chain(last)) {
            let works = |desk: &mut Desk, registry: &mut HashMap<_, _>, pieces: Vec<Piece>, written: u8| {
                for (index, piece) in pieces.into_iter().enumerate() {
                    if written >> (index % 8) & 1 == 1 {
                        keep(registry, &piece);
                        desk.waiting.written(&piece);
                    } else {
                        desk.waiting.put_back(piece);
                    }
                }
                desk.waiting.is_done();
            };
            match step {
                Step::Leaves((number, label, value, status, long)) | Step::Meets((number, label, value, status, long), ..) => {
                    let of = device(number);
                    let value = if long { format!("\"{}\"", "x".repeat(600 + usize::from(value))) } else { value.to_string() };
                    let mut work = labelled(of, &format!("label {label}"), &value, now);
                    work.status = status;
                    if label == 0 {
                        let id = isobar_model::ids::SettingId(Uuid::from_u128(now.unsigned_abs().into()));
                        work.settings.push(SettingWork { id, name: "limit".to_owned(), value: Some(value.clone()), by: None });
                    }
                    let (row, settings) = truth.entry(number).or_insert_with(|| (blank(), Vec::new()));
                    settings.extend(work.settings.iter().map(|setting| setting.id.0.as_u128()));
                    let mut same: RegistryWork = serde_json::from_slice(&work.bytes()).unwrap();
                    let found = same.take_found(at(0)).unwrap();
                    found.report.over(row, found.at);
                    let mut pieces = Vec::new();
                    if matches!(step, Step::Meets(_, _, false)) {
                        pieces = desk.takes();
                    }
                    let left = desk.expects(of, u128::from(number % 3), work).unwrap();
                    if matches!(step, Step::Meets(_, _, true)) {
                        pieces = desk.takes();
                    }
                    if let Step::Meets(_, written, _) = step {
                        works(&mut desk, &mut registry, pieces, written);
                    }
                    desk.comes(of, left, at(now));
                    desk.removes();
                }
                Step::Works(written) | Step::Dies(written) => {
                    let dies = matches!(step, Step::Dies(_));
                    let pieces = desk.takes();
                    works(&mut desk, &mut registry, pieces, written);
                    match dies {
                        true => desk.restarts(),
                        false => desk.removes(),
                    }
                }
            }
            for tenant in 0..3 {
                let waiting = &desk.waiting;
                let is_its = |number: &u64| {
                    number % 3 == tenant && waiting.of(DeviceKey(*number)).is_some_and(DeviceQueue::is_reported)
                };
                let of_all: Vec<u64> = (0..4).filter(is_its).collect();
                let listed = waiting.reported(organization(tenant.into()), 4).unwrap();
                prop_assert_eq!(listed.iter().map(|of| of.device.key.0).collect::<Vec<_>>(), of_all);
            }
            for (number, (row, settings)) in &truth {
                let (mut seen, mut known) = registry.get(number).cloned().unwrap_or_else(|| (blank(), Vec::new()));
                let pending = desk.waiting.of(DeviceKey(*number)).map(PendingChanges::of);
                pending.iter().for_each(|pending| pending.apply_to(&mut seen));
                prop_assert_eq!((&seen.meta, seen.status), (&row.meta, row.status), "device {}", number);
                let mut records = Vec::new();
                pending.iter().for_each(|pending| pending.apply_to_settings(DeviceId(Uuid::nil()), &mut records));
                known.extend(records.iter().map(|record| record.id.0.as_u128()));
                prop_assert_eq!(known.last(), settings.last());
            }
        }
        for (number, (row, settings)) in &truth {
            let (kept, known) = &registry[number];
            prop_assert_eq!((&kept.meta, kept.status, known), (&row.meta, row.status, settings));
        }
        prop_assert_eq!((desk.look().size, desk.rows.len()), (OutboxSize::default(), 0));
    }
}

#[test]
fn reported_devices_of_a_tenant_are_limited() {
    let outbox = Outbox::new(Clock::System, false);
    let next = std::cell::Cell::new(0);
    let number = || {
        next.set(next.get() + 1);
        next.get()
    };
    let leaves = |of: u64, tenant: u128| {
        let mut waiting = outbox.queue.lock();
        let work = labelled(device(of), "n", "1", 0);
        let (leaving, _) = expect(&mut waiting, device(of), organization(tenant), work, &number).unwrap();
        waiting.comes((device(of).key, 0), leaving, at(0));
    };
    (0..REPORTED_MAX as u64).for_each(|of| leaves(of, 1));
    leaves(90_000, 2);
    assert_eq!(outbox.reported(organization(1)).unwrap().len(), REPORTED_MAX);
    leaves(80_000, 1);
    assert!(matches!(outbox.reported(organization(1)), Err(Error::Busy)));
    assert_eq!(outbox.reported(organization(2)).unwrap().len(), 1);
}

#[tokio::test]
async fn caught_up_waits_for_earlier_work_of_its_own_tenant() {
    let outbox = Outbox::new(Clock::System, false);
    let next = std::cell::Cell::new(0);
    let number = || {
        next.set(next.get() + 1);
        next.get()
    };
    let leaves = |number_of: u64, tenant: u128| {
        let (of, mut waiting) = (device(number_of), outbox.queue.lock());
        let work = labelled(of, "n", "1", 0);
        let (leaving, _) = expect(&mut waiting, of, organization(tenant), work, &number).unwrap();
        waiting.comes((of.key, 0), leaving, at(0));
    };
    leaves(1, 1);
    leaves(2, 1);
    assert!(poll!(std::pin::pin!(outbox.caught_up(organization(2), &[Shown::State]))).is_ready());
    let mut waits = std::pin::pin!(outbox.caught_up(organization(1), &[Shown::State]));
    assert!(poll!(&mut waits).is_pending());
    // There is always work, of the same devices too.
    leaves(3, 1);
    // A report and its label are two rows.
    let pieces = {
        let mut waiting = outbox.queue.lock();
        waiting.take(Clock::System.instant(), 3)
    };
    leaves(1, 1);
    assert_eq!(pieces.len(), 2);
    let mut done = std::pin::pin!(outbox.written(DeviceKey(1)));
    // The waiting callers check again.
    outbox.done.notify_waiters();
    assert!(poll!(&mut waits).is_pending() && poll!(&mut done).is_pending());
    for piece in &pieces {
        outbox.queue.lock().written(piece);
    }
    outbox.queue.lock().is_done();
    outbox.done.notify_waiters();
    assert!(poll!(&mut waits).is_ready());
    assert!(poll!(&mut done).is_pending());
}

#[tokio::test]
async fn work_of_an_earlier_process_is_waited_for_by_its_tenant() {
    let outbox = Outbox::new(Clock::System, false);
    for number in [1, 2] {
        let (device, work) = (DeviceKey(number), labelled(device(number), "n", "1", 0).bytes());
        outbox.take_up(&OutboxEntry { number, device, work, parked: None }, 0, at(0)).unwrap();
    }
    assert!(
        poll!(std::pin::pin!(outbox.caught_up(organization(2), &[Shown::State]))).is_pending(),
        "it may be anybody's"
    );
    // The second device was deleted.
    outbox.strangers_belong(&outbox.strangers(), &HashMap::from([(DeviceKey(1), organization(1))]));
    assert!(outbox.strangers().is_empty());
    assert!(poll!(std::pin::pin!(outbox.caught_up(organization(1), &[Shown::State]))).is_pending());
    assert!(poll!(std::pin::pin!(outbox.caught_up(organization(2), &[Shown::State]))).is_ready());
}
