//! Queues all pending work in memory: decides whose work is written next, counts it, and tracks the work in hand.
//!
//! Each tenant (all devices beneath one top-level organization) has its devices in the order of their oldest work, and
//! tenants take turns, one device at a time.

mod overtaken;
mod parked_labels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{OutboxChange, OutboxEntry};
use rustc_hash::{FxHashMap, FxHashSet};

use super::device_queue::{DeviceQueue, SiteSizes};
use super::draft::{Draft, ReportBase, StagedWork, UnstagedWork};
use super::piece::{OutboxSize, PendingItem, Piece, PieceKind, Refusals, Report, ReportRows};
use super::reported::{Awaited, ReportedDevices, Shown};
use super::work::RegistryWork;

/// Limits on pending work. One tenant gets at most as much as is free, hence half; one site leaves a third to others.
pub(crate) const OUTBOX_MAX: OutboxSize = OutboxSize { entries: 200_000, bytes: 64 << 20 };
/// Bytes written in one batch.
const BYTES_AT_ONCE: usize = 1 << 20;

/// The tenant of a device, or `None` while unknown.
pub(crate) type Tenant = Option<OrganizationId>;

#[derive(Default)]
pub(crate) struct OutboxQueue {
    devices: FxHashMap<DeviceKey, DeviceQueue>,
    reported: ReportedDevices,
    tenants: FxHashMap<Tenant, TenantQueue>,
    /// Tenants with work to write, in the order of their turns.
    rotation: VecDeque<Tenant>,
    /// Devices with refused work, by the time of its retry.
    later: BTreeSet<(Instant, DeviceKey)>,
    /// The sequence of the newest work.
    sequence: u64,
    size: OutboxSize,
    sites: SiteSizes,
    /// Number of unwritten items in each entry of the store with more than one item.
    shared: FxHashMap<u64, u32>,
    /// Entries of the store that can be removed.
    needless: Vec<(DeviceKey, u64)>,
    /// Devices whose work another process has taken over, until they run here again.
    overtaken: FxHashSet<DeviceKey>,
    /// Numbers of entries that cannot be read.
    unreadable: FxHashSet<u64>,
    /// The arrival of the oldest work in hand.
    in_hand_since: Option<i64>,
}

#[derive(Default)]
struct TenantQueue {
    /// Devices by the sequence of the oldest work that can be written.
    queue: BTreeMap<u64, DeviceKey>,
    /// True if the tenant is in the rotation.
    is_in_rotation: bool,
    size: OutboxSize,
}

impl TenantQueue {
    /// Returns true if the tenant has no work and can be removed.
    fn is_nothing(&self) -> bool {
        self.queue.is_empty() && self.size == OutboxSize::default() && !self.is_in_rotation
    }
}

/// The outcome of expecting a run's work.
pub(crate) enum Expect {
    /// The work is expected with the run's commit, which contains these changes.
    Goes(StagedWork, Vec<OutboxChange>),
    /// The pending report has changed since the draft: this part must be drafted again.
    Anew(UnstagedWork),
    /// There is no room for the work.
    Full,
}

/// The figures for the gauges.
pub(crate) struct QueueLook {
    pub size: OutboxSize,
    /// Arrival of the oldest work, in milliseconds.
    pub oldest: Option<i64>,
    pub parked: usize,
}

impl OutboxQueue {
    /// Returns the sequence of the newest work.
    pub fn newest(&self) -> u64 {
        self.sequence
    }

    pub fn of(&self, device: DeviceKey) -> Option<&DeviceQueue> {
        self.devices.get(&device)
    }

    /// Returns true if another process has taken over the last work of a device.
    pub fn is_overtaken(&self, device: DeviceKey) -> bool {
        self.overtaken.contains(&device)
    }

    /// Returns true if any work can be written.
    pub fn is_ready(&self) -> bool {
        !self.rotation.is_empty()
    }

    /// Returns the time of the next retry of refused work.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Returns true if so much work is pending that the worker should not rest.
    pub fn presses(&self) -> bool {
        self.size.entries > OUTBOX_MAX.entries / 4 || self.size.bytes > OUTBOX_MAX.bytes / 4
    }

    /// Returns true if all work of a device up to a sequence is written or parked.
    pub fn is_written(&self, device: DeviceKey, sequence: u64) -> bool {
        self.of(device).and_then(DeviceQueue::first_expected).is_none_or(|first| first > sequence)
    }

    /// Returns true if the findings of a tenant up to a sequence that a list shows are written, except for refused ones.
    pub fn is_caught_up(&self, tenant: OrganizationId, shown: &[Shown], sequence: u64) -> bool {
        // A device of an unknown tenant may belong to this one.
        let tenants = [Some(tenant), None];
        tenants.iter().all(|of| shown.iter().all(|kind| self.reported.is_caught_up(*of, *kind, sequence)))
    }

    /// Returns true if work up to a sequence can be written.
    pub fn is_ready_until(&self, sequence: u64) -> bool {
        self.tenants.values().any(|of| of.queue.first_key_value().is_some_and(|(first, _)| *first <= sequence))
    }

    /// Returns the devices of a tenant with pending reports, or `None` if there are more than `most`.
    pub fn reported(&self, tenant: OrganizationId, most: usize) -> Option<Vec<&DeviceQueue>> {
        // A device of an unknown tenant may belong to this one.
        let keys = [Some(tenant), None].into_iter().flat_map(|tenant| self.reported.of(tenant));
        let reported: Vec<_> = keys.filter_map(|key| self.of(key)).take(most + 1).collect();
        (reported.len() <= most).then_some(reported)
    }

    /// Returns the figures for the gauges.
    pub fn look(&self) -> QueueLook {
        let since = |device: &DeviceKey| self.of(*device).and_then(DeviceQueue::since);
        let first = self.tenants.values().filter_map(|of| of.queue.first_key_value()).filter_map(|(_, key)| since(key));
        let later = self.later.iter().filter_map(|(_, key)| since(key));
        let parked: usize = self.later.iter().filter_map(|(_, key)| self.of(*key)).map(DeviceQueue::parked).sum();
        QueueLook {
            size: self.size,
            oldest: first.chain(later).chain(self.in_hand_since).min(),
            parked: self.unreadable.len() + parked,
        }
    }

    /// Returns the pending report of a device, to draft a run's report with.
    pub fn base(&self, device: DeviceKey) -> Option<ReportBase> {
        self.of(device).and_then(|of| of.report.as_ref()).map(ReportBase::of)
    }

    /// Reserves room for the work of a run that is about to be committed, and returns the changes for the store.
    pub fn expect(&mut self, device: DeviceRef, tenant: OrganizationId, draft: Draft) -> Expect {
        let before = self.of(device.key).and_then(|of| of.report.as_ref());
        if !draft.stands_on(before) {
            return Expect::Anew(draft.rest);
        }
        let more = draft.more(before);
        if !self.has_room(tenant, more) {
            return Expect::Full;
        }
        self.belongs(device.key, tenant);
        self.devices.entry(device.key).or_insert_with(|| DeviceQueue::new(device, Some(tenant))).expected += 1;
        let (staged, changes) = draft.goes();
        Expect::Goes(staged, changes)
    }

    fn has_room(&self, tenant: OrganizationId, more: OutboxSize) -> bool {
        let mut own = self.tenants.get(&Some(tenant)).map_or(OutboxSize::default(), |of| of.size);
        own.add(self.sites.of(tenant));
        let fits = |own: usize, all: usize, more: usize, most: usize| {
            more == 0 || own.div_ceil(2) + more <= most.saturating_sub(all)
        };
        fits(own.entries, self.size.entries, more.entries, OUTBOX_MAX.entries)
            && fits(own.bytes, self.size.bytes, more.bytes, OUTBOX_MAX.bytes)
    }

    /// Adds the expected work of a device once its commit is submitted. Returns true if the worker has new work.
    pub fn comes(&mut self, (device, revision): (DeviceKey, u64), staged: StagedWork, now: Timestamp) -> bool {
        self.sequence += 1;
        let (sequence, since) = (self.sequence, now.millis());
        let Some(of) = self.devices.get_mut(&device) else { return false };
        of.expected -= 1;
        of.revision = revision;
        self.overtaken.remove(&device);
        let (mut more, mut less) = (OutboxSize::default(), OutboxSize::default());
        let StagedWork { base, found, rest, row } = staged;
        if let Some((found, bytes, rows)) = found {
            let faults = Refusals::default();
            let came = Report { found, bytes, rows, alarms_written: 0, sequence, since, faults };
            let before = of.report.take();
            before.iter().for_each(|before| less.add(before.size()));
            let report = match before {
                Some(before) if base.as_ref().is_some_and(|base| Arc::ptr_eq(base, &before.found)) => {
                    Report { sequence: before.sequence, since: before.since, faults: before.faults, ..came }
                }
                // The worker has put back a piece since the draft.
                Some(before) => before.then(came, of.device),
                None => came,
            };
            more.add(of.report.insert(report).size());
        }
        let held = keep_rest(of, rest, row, (sequence, since, Refusals::default()), &mut more);
        if held > 1 {
            self.shared.insert(row, held);
        }
        self.sized(device, more, less);
        self.place(device)
    }

    /// Cancels the expected work of a device. Returns true if the worker has new work.
    pub fn does_not_come(&mut self, device: DeviceKey) -> bool {
        if let Some(of) = self.devices.get_mut(&device) {
            of.expected -= 1;
        }
        self.place(device)
    }

    /// Loads an entry that another process left, unless it cannot be read. The device is at this revision.
    pub fn take_up(&mut self, entry: &OutboxEntry, revision: u64, now: Timestamp) -> serde_json::Result<()> {
        let mut work: RegistryWork = serde_json::from_slice(&entry.work)?;
        let Some(id) = work.device else {
            self.needless.push((entry.device, entry.number));
            return Ok(());
        };
        self.sequence += 1;
        let device = DeviceRef { id, key: entry.device };
        let (sequence, since) = (self.sequence, work.at.unwrap_or(now.millis()));
        let faults = if entry.parked.is_some() { Refusals::PARKED } else { Refusals::default() };
        let of = self.devices.entry(entry.device).or_insert_with(|| DeviceQueue::new(device, None));
        of.revision = revision;
        let (mut more, mut less, mut held) = (OutboxSize::default(), OutboxSize::default(), 0);
        if let Some(found) = work.take_found(now) {
            held += 1;
            let before = of.report.take();
            before.iter().for_each(|before| less.add(before.size()));
            let (found, mut rows, (sequence, since, faults)) = match before {
                Some(before) => {
                    let faults = if before.faults.is_parked() { before.faults } else { faults };
                    (before.found.then(found), before.rows, (before.sequence, before.since, faults))
                }
                None => (found, ReportRows::default(), (sequence, since, faults)),
            };
            rows.left.push(entry.number);
            let (bytes, found) = (found.bytes(id).len(), Arc::new(found));
            let report = Report { found, bytes, rows, alarms_written: 0, sequence, since, faults };
            more.add(of.report.insert(report).size());
        }
        held += keep_rest(of, work, entry.number, (sequence, since, faults), &mut more);
        match held {
            0 => self.needless.push((entry.device, entry.number)),
            1 => {}
            more => drop(self.shared.insert(entry.number, more)),
        }
        self.sized(entry.device, more, less);
        self.place(entry.device);
        Ok(())
    }

    /// Counts an entry that cannot be read.
    pub fn is_unreadable(&mut self, number: u64) {
        self.unreadable.insert(number);
    }

    /// Takes the entries of the store that can be removed, each of a device.
    pub fn take_needless(&mut self) -> Vec<(DeviceKey, u64)> {
        std::mem::take(&mut self.needless)
    }

    /// Puts back entries whose removal failed.
    pub fn put_back_needless(&mut self, needless: Vec<(DeviceKey, u64)>) {
        self.needless.extend(needless);
    }

    /// Makes the queue look full.
    #[cfg(test)]
    pub fn fill(&mut self) {
        self.size = OUTBOX_MAX;
    }

    /// Returns devices whose tenant is unknown.
    pub fn strangers(&self, most: usize) -> Vec<DeviceRef> {
        let of = self.tenants.get(&None).into_iter().flat_map(|of| of.queue.values());
        of.filter_map(|key| self.of(*key)).map(|of| of.device).take(most).collect()
    }

    /// Sets the tenant of a device, which may have moved with its organization. Work in hand is written for the tenant
    /// that it was taken for.
    pub fn belongs(&mut self, device: DeviceKey, tenant: OrganizationId) {
        let is_another = |of: &&mut DeviceQueue| of.tenant != Some(tenant) && of.in_hand.is_none();
        let Some(of) = self.devices.get_mut(&device).filter(is_another) else { return };
        let (before, size, place) = (of.tenant.replace(tenant), of.size(), of.place.take());
        let awaited = std::mem::take(&mut of.awaited);
        self.reported.set(before, device, false, (awaited, Awaited::default()));
        if let Some(of_tenant) = self.tenants.get_mut(&before) {
            of_tenant.size.take(size);
            place.map(|place| of_tenant.queue.remove(&place));
            if of_tenant.is_nothing() {
                self.tenants.remove(&before);
            }
        }
        self.tenants.entry(Some(tenant)).or_default().size.add(size);
        self.sites.change(before, OutboxSize::default(), size);
        self.sites.change(Some(tenant), size, OutboxSize::default());
        self.place(device);
    }

    /// Takes work that can be written, of about so many rows of the registry, with tenants taking turns. The list may be
    /// empty.
    pub fn take(&mut self, now: Instant, rows: usize) -> Vec<Piece> {
        while let Some((due, device)) = self.later.first().copied().filter(|(due, _)| *due <= now) {
            self.later.remove(&(due, device));
            if let Some(of) = self.devices.get_mut(&device) {
                of.due = None;
                of.ripen(now);
            }
            self.place(device);
        }
        let (mut pieces, mut cost) = (Vec::new(), OutboxSize::default());
        while cost.entries < rows && cost.bytes < BYTES_AT_ONCE {
            let Some(tenant) = self.rotation.pop_front() else { break };
            let Some(of_tenant) = self.tenants.get_mut(&tenant) else { continue };
            let Some((_, device)) = of_tenant.queue.pop_first() else {
                of_tenant.is_in_rotation = false;
                if of_tenant.is_nothing() {
                    self.tenants.remove(&tenant);
                }
                continue;
            };
            self.rotation.push_back(tenant);
            let Some(of) = self.devices.get_mut(&device) else { continue };
            of.place = None;
            if of.expected > 0 && of.rest.is_none() {
                // Expected work may overwrite an entry that would be removed. The device gets a place when it arrives.
                continue;
            }
            let before = pieces.len();
            of.take(&mut pieces);
            pieces[before..].iter().for_each(|piece| cost.add(piece.cost()));
            let since = of.in_hand.as_ref().map(|in_hand| in_hand.since);
            self.in_hand_since = self.in_hand_since.into_iter().chain(since).min();
            self.place(device);
        }
        pieces
    }

    /// Removes a written piece; if only a part of it was written, it stays in hand until the next turn of its tenant.
    pub fn part_written(&mut self, mut piece: Piece) {
        if !piece.advance() {
            return self.written(&piece);
        }
        let device = piece.device.key;
        if let (Some(of), PieceKind::Report(rest)) = (self.devices.get_mut(&device), piece.what) {
            of.in_hand.iter_mut().for_each(|in_hand| in_hand.is_state_written = true);
            of.rest = Some(rest);
        }
        self.place(device);
    }

    /// Removes a written piece.
    pub fn written(&mut self, piece: &Piece) {
        for row in piece.rows() {
            self.let_go(piece.device.key, row);
        }
        self.ends(piece);
    }

    fn ends(&mut self, piece: &Piece) {
        self.sized(piece.device.key, OutboxSize::default(), piece.size());
        if let Some(of) = self.devices.get_mut(&piece.device.key) {
            of.written(piece);
        }
        self.place(piece.device.key);
    }

    /// Puts back a piece that was not written.
    pub fn put_back(&mut self, piece: Piece) {
        let device = piece.device.key;
        let Some(of) = self.devices.get_mut(&device) else { return };
        if of.is_overtaken_in_hand(&piece) {
            return self.overtaken(&piece);
        }
        let less = of.put_back(piece);
        self.sized(device, OutboxSize::default(), less);
        self.place(device);
    }

    /// Ends the batch: no work is in hand any more.
    pub fn is_done(&mut self) {
        self.in_hand_since = None;
    }

    /// Counts one item less in an entry of the store, which can be removed after its last item.
    fn let_go(&mut self, device: DeviceKey, row: u64) {
        match self.shared.get_mut(&row) {
            Some(left) if *left > 1 => *left -= 1,
            _ => {
                self.shared.remove(&row);
                self.needless.push((device, row));
            }
        }
    }

    /// Adds and subtracts pending work of a device.
    fn sized(&mut self, device: DeviceKey, more: OutboxSize, less: OutboxSize) {
        let Some(tenant) = self.of(device).map(|of| of.tenant) else { return };
        let own = &mut self.tenants.entry(tenant).or_default().size;
        for size in [&mut self.size, own] {
            size.add(more);
            size.take(less);
        }
        self.sites.change(tenant, more, less);
    }

    /// Puts a device into its place among the devices. Returns true if it has work to write and had none before.
    fn place(&mut self, device: DeviceKey) -> bool {
        let Some(of) = self.devices.get_mut(&device) else { return false };
        let (place, due) = match &of.in_hand {
            Some(in_hand) => (of.rest.as_ref().map(|_| in_hand.sequence), None),
            None => (of.first_ready(), of.next_due()),
        };
        let (old, tenant) = (std::mem::replace(&mut of.place, place), of.tenant);
        if due != of.due {
            of.due.take().map(|due| self.later.remove(&(due, device)));
            of.due = due;
            self.later.extend(due.map(|due| (due, device)));
        }
        let awaited = of.awaited();
        let awaited = (std::mem::replace(&mut of.awaited, awaited), awaited);
        self.reported.set(tenant, device, of.is_reported(), awaited);
        let is_over = of.is_over();
        if is_over {
            self.devices.remove(&device);
        }
        if old != place {
            let queue = &mut self.tenants.entry(tenant).or_default().queue;
            old.map(|old| queue.remove(&old));
            queue.extend(place.map(|place| (place, device)));
        }
        match place {
            Some(_) => self.join_rotation(tenant),
            None if is_over && self.tenants.get(&tenant).is_some_and(TenantQueue::is_nothing) => {
                self.tenants.remove(&tenant);
            }
            None => {}
        }
        place.is_some() && old.is_none()
    }

    /// Adds a tenant to the rotation if it has work to write.
    fn join_rotation(&mut self, tenant: Tenant) {
        if let Some(of) = self.tenants.get_mut(&tenant).filter(|of| !of.is_in_rotation && !of.queue.is_empty()) {
            of.is_in_rotation = true;
            self.rotation.push_back(tenant);
        }
    }
}

/// Adds settings and deliveries to the pending work of a device; returns their number.
fn keep_rest(
    of: &mut DeviceQueue,
    mut work: RegistryWork,
    row: u64,
    (sequence, since, faults): (u64, i64, Refusals),
    size: &mut OutboxSize,
) -> u32 {
    let outgoing = work.take_outgoing();
    let held = work.settings.len() + outgoing.len();
    if faults.is_parked() && !work.settings.is_empty() {
        of.settings_faults = faults;
    }
    for setting in work.settings {
        let bytes = setting.size();
        let record = PendingItem { what: Arc::new(setting), row, bytes, sequence, since, faults: Refusals::default() };
        size.add(record.size());
        of.settings.push_back(record);
    }
    for outgoing in outgoing {
        let bytes = outgoing.size();
        let record = PendingItem { what: Arc::new(outgoing), row, bytes, sequence, since, faults };
        size.add(record.size());
        of.deliveries.push_back(record);
    }
    u32::try_from(held).unwrap_or(u32::MAX)
}
