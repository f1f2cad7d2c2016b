//! Queues the pending work of one device in three lanes: its report, merged into one; its settings, in order; and its
//! outgoing deliveries. Each lane proceeds independently.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use isobar_model::ids::{DeviceRef, OrganizationId};
use isobar_model::site::Site;
use isobar_store::registry::DeviceReport;
use rustc_hash::FxHashMap;

use super::piece::{OutboxSize, PendingItem, Piece, PieceKind, Refusals, Report};
use super::reported::{Awaited, Shown};
use super::work::{DeviceFindings, OutgoingWork, SettingWork};

/// Settings, and deliveries, of one device written in one transaction.
const SETTINGS_AT_ONCE: usize = 256;
const DELIVERIES_AT_ONCE: usize = 32;

/// Counts the pending work of the tenants of each site.
#[derive(Debug, Default)]
pub(crate) struct SiteSizes(FxHashMap<Site, OutboxSize>);

impl SiteSizes {
    /// Returns the pending work of a tenant's site.
    pub fn of(&self, tenant: OrganizationId) -> OutboxSize {
        self.0.get(&tenant.site()).copied().unwrap_or_default()
    }

    /// Adds and subtracts pending work of a tenant; work of an unknown tenant is not counted.
    pub fn change(&mut self, tenant: Option<OrganizationId>, more: OutboxSize, less: OutboxSize) {
        let Some(site) = tenant.map(|tenant| tenant.site()) else { return };
        let of = self.0.entry(site).or_default();
        of.add(more);
        of.take(less);
        if *of == OutboxSize::default() {
            self.0.remove(&site);
        }
    }
}

/// The pieces of a device that the worker is writing.
#[derive(Debug)]
pub(crate) struct InHand {
    pub pieces: usize,
    pub sequence: u64,
    pub since: i64,
    pub report: Option<Arc<DeviceFindings>>,
    pub settings: Vec<Arc<SettingWork>>,
    pub parked: ParkedInHand,
    /// Another process has taken over the pieces that are not parked: they are not put back.
    pub is_overtaken: bool,
    /// The registry has a part of the report: all of it but findings about alarms.
    pub is_state_written: bool,
}

/// Tells which pieces in hand are parked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParkedInHand {
    report: bool,
    settings: bool,
    all: bool,
}

/// All pending work of one device.
#[derive(Debug)]
pub(crate) struct DeviceQueue {
    pub device: DeviceRef,
    /// Its top-level organization, or `None` while unknown.
    pub tenant: Option<OrganizationId>,
    /// Number of runs with work whose commit is not decided yet.
    pub expected: u32,
    /// The revision of the device that the newest of them made.
    pub revision: u64,
    pub report: Option<Report>,
    pub settings: VecDeque<PendingItem<SettingWork>>,
    pub settings_faults: Refusals,
    pub deliveries: VecDeque<PendingItem<OutgoingWork>>,
    /// Refused deliveries that wait for a retry.
    pub refused: Vec<PendingItem<OutgoingWork>>,
    pub in_hand: Option<InHand>,
    /// The report in hand between two of its parts, when others have their turns.
    pub rest: Option<Report>,
    /// Kinds of its changes for which lists of its tenant wait.
    pub awaited: Awaited,
    /// Its place among its tenant's devices, and its time among the devices to be retried.
    pub place: Option<u64>,
    pub due: Option<Instant>,
}

impl DeviceQueue {
    pub fn new(device: DeviceRef, tenant: Option<OrganizationId>) -> Self {
        Self {
            device,
            tenant,
            expected: 0,
            revision: 0,
            report: None,
            settings: VecDeque::new(),
            settings_faults: Refusals::default(),
            deliveries: VecDeque::new(),
            refused: Vec::new(),
            in_hand: None,
            rest: None,
            awaited: Awaited::default(),
            place: None,
            due: None,
        }
    }

    /// Returns true if the device has no pending work.
    pub fn is_over(&self) -> bool {
        let is_empty = self.report.is_none() && self.settings.is_empty();
        is_empty
            && self.deliveries.is_empty()
            && self.refused.is_empty()
            && self.expected == 0
            && self.in_hand.is_none()
    }

    /// Returns true if the registry does not know a report of the device yet.
    pub fn is_reported(&self) -> bool {
        self.report.is_some() || self.in_hand.as_ref().is_some_and(|in_hand| in_hand.report.is_some())
    }

    /// Returns the pending work that is not being written.
    pub fn size(&self) -> OutboxSize {
        let mut size = OutboxSize::default();
        self.report.iter().for_each(|report| size.add(report.size()));
        self.settings.iter().for_each(|setting| size.add(setting.size()));
        self.deliveries.iter().chain(&self.refused).for_each(|delivery| size.add(delivery.size()));
        size
    }

    /// Returns the sequence of the oldest work that can be written now.
    pub fn first_ready(&self) -> Option<u64> {
        let report = self.report.as_ref().filter(|report| report.faults.due.is_none()).map(|report| report.sequence);
        let settings = self.settings.front().filter(|_| self.settings_faults.due.is_none()).map(|first| first.sequence);
        let deliveries = self.deliveries.front().map(|first| first.sequence);
        [report, settings, deliveries].into_iter().flatten().min()
    }

    /// Returns the time of the next retry.
    pub fn next_due(&self) -> Option<Instant> {
        let report = self.report.as_ref().and_then(|report| report.faults.due);
        let refused = self.refused.iter().filter_map(|delivery| delivery.faults.due).min();
        [report, self.settings_faults.due, refused].into_iter().flatten().min()
    }

    /// Returns the sequence of the oldest work that is neither written nor parked.
    pub fn first_expected(&self) -> Option<u64> {
        let report = self.report.as_ref().filter(|report| !report.faults.is_parked()).map(|report| report.sequence);
        let settings = self.settings.front().filter(|_| !self.settings_faults.is_parked()).map(|first| first.sequence);
        let deliveries = self.deliveries.front().map(|first| first.sequence);
        let in_hand = self.in_hand.as_ref().map(|in_hand| in_hand.sequence);
        [report, settings, deliveries, in_hand].into_iter().flatten().min()
    }

    /// Returns the sequence of the oldest findings that are to be written, for each kind that lists show.
    pub fn awaited(&self) -> Awaited {
        let in_hand = self.in_hand.as_ref().filter(|in_hand| !in_hand.parked.report);
        let in_hand = in_hand.and_then(|it| Some((it.report.as_ref()?, it.sequence, it.is_state_written)));
        let report = self.report.as_ref().filter(|report| report.faults.due.is_none());
        let report = report.map(|report| (&report.found, report.sequence, false));
        let mut awaited = Awaited::default();
        for (found, sequence, is_state_written) in in_hand.into_iter().chain(report) {
            if !is_state_written && found.report != DeviceReport::default() {
                awaited[Shown::State as usize].get_or_insert(sequence);
            }
            if !found.alarms.is_empty() || !found.alarm_changes.is_empty() {
                awaited[Shown::Alarms as usize].get_or_insert(sequence);
            }
        }
        awaited
    }

    /// Returns the arrival of the oldest work, in milliseconds.
    pub fn since(&self) -> Option<i64> {
        let report = self.report.as_ref().map(|report| report.since);
        let settings = self.settings.front().map(|first| first.since);
        let deliveries = self.deliveries.front().map(|first| first.since);
        let refused = self.refused.iter().map(|delivery| delivery.since).min();
        let in_hand = self.in_hand.as_ref().map(|in_hand| in_hand.since);
        [report, settings, deliveries, refused, in_hand].into_iter().flatten().min()
    }

    /// Returns true if labels in the report are parked.
    pub fn has_parked_labels(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.faults.is_parked() && !report.found.report.meta.is_empty())
    }

    /// Returns the number of parked reports, settings lanes and deliveries.
    pub fn parked(&self) -> usize {
        let report = self.report.as_ref().is_some_and(|report| report.faults.is_parked());
        let settings = self.settings_faults.is_parked();
        let refused = self.refused.iter().filter(|delivery| delivery.faults.is_parked()).count();
        usize::from(report) + usize::from(settings) + refused
    }

    /// Releases refused work that is due for its retry.
    pub fn ripen(&mut self, now: Instant) {
        self.report.iter_mut().for_each(|report| report.faults.ripen(now));
        self.settings_faults.ripen(now);
        let mut at = 0;
        while let Some(delivery) = self.refused.get_mut(at) {
            delivery.faults.ripen(now);
            match delivery.faults.due {
                Some(_) => at += 1,
                None => self.deliveries.push_front(self.refused.swap_remove(at)),
            }
        }
    }

    /// Takes the work that can be written now, at most as much as one transaction should have.
    pub fn take(&mut self, into: &mut Vec<Piece>) {
        let before = into.len();
        let device = self.device;
        if let Some(rest) = self.rest.take() {
            into.push(Piece { device, what: PieceKind::Report(rest) });
            return;
        }
        if let Some(report) = self.report.take_if(|report| report.faults.due.is_none()) {
            into.push(Piece { device, what: PieceKind::Report(report) });
        }
        if !self.settings.is_empty() && self.settings_faults.due.is_none() {
            let count = self.settings.len().min(SETTINGS_AT_ONCE);
            let settings = self.settings.drain(..count).collect();
            into.push(Piece { device, what: PieceKind::Settings(settings, std::mem::take(&mut self.settings_faults)) });
        }
        let count = self.deliveries.len().min(DELIVERIES_AT_ONCE);
        let deliveries = self.deliveries.drain(..count).map(PieceKind::Delivery);
        into.extend(deliveries.map(|what| Piece { device, what }));
        let taken = &into[before..];
        if taken.is_empty() {
            return;
        }
        let sequence = taken.iter().filter_map(Piece::came).map(|(sequence, _)| sequence).min().unwrap_or(u64::MAX);
        let since = taken.iter().filter_map(Piece::came).map(|(_, since)| since).min().unwrap_or(i64::MAX);
        let (mut report, mut settings) = (None, Vec::new());
        let mut parked = ParkedInHand { all: true, ..ParkedInHand::default() };
        for piece in taken {
            let is_parked = piece.faults().is_parked();
            parked.all &= is_parked;
            match &piece.what {
                PieceKind::Report(found) => (report, parked.report) = (Some(Arc::clone(&found.found)), is_parked),
                PieceKind::Settings(taken, _) => {
                    parked.settings = is_parked;
                    settings.extend(taken.iter().map(|setting| Arc::clone(&setting.what)));
                }
                PieceKind::Delivery(_) => {}
            }
        }
        let pieces = taken.len();
        let (is_overtaken, is_state_written) = (false, false);
        self.in_hand =
            Some(InHand { pieces, sequence, since, report, settings, parked, is_overtaken, is_state_written });
    }

    /// Removes all work that is neither in hand nor parked, and returns it; what is in hand and not parked counts as overtaken.
    /// Returns true besides if there is such work in hand, which did not count as overtaken before.
    pub fn forget(&mut self) -> (Vec<Piece>, bool) {
        let in_hand = self.in_hand.as_mut().filter(|in_hand| !in_hand.parked.all && !in_hand.is_overtaken);
        let leaves_hand = in_hand.is_some();
        if let Some(in_hand) = in_hand {
            in_hand.is_overtaken = true;
            in_hand.report.take_if(|_| !in_hand.parked.report);
            if !in_hand.parked.settings {
                in_hand.settings.clear();
            }
        }
        let report = self.report.take_if(|report| !report.faults.is_parked()).map(PieceKind::Report);
        let mut settings = None;
        if !self.settings_faults.is_parked() && !self.settings.is_empty() {
            let faults = std::mem::take(&mut self.settings_faults);
            settings = Some(PieceKind::Settings(std::mem::take(&mut self.settings).into(), faults));
        }
        let refused = self.refused.extract_if(.., |delivery| !delivery.faults.is_parked());
        let deliveries: Vec<_> = std::mem::take(&mut self.deliveries).into_iter().chain(refused).collect();
        let (parked, deliveries): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(|it| it.faults.is_parked());
        // Parked ones stay that are due for their retry.
        self.deliveries = parked.into();
        let deliveries = deliveries.into_iter().map(PieceKind::Delivery);
        let kinds = report.into_iter().chain(settings).chain(deliveries);
        (kinds.map(|what| Piece { device: self.device, what }).collect(), leaves_hand)
    }

    /// Returns true if another process has taken over a piece in hand.
    pub fn is_overtaken_in_hand(&self, piece: &Piece) -> bool {
        !piece.faults().is_parked() && self.in_hand.as_ref().is_some_and(|in_hand| in_hand.is_overtaken)
    }

    /// Removes a written piece from the work in hand.
    pub fn written(&mut self, piece: &Piece) {
        self.let_go(&piece.what);
    }

    /// Puts back a piece that was not written, before newer work. Returns the size by which pending work shrinks if two
    /// reports are merged into one.
    pub fn put_back(&mut self, piece: Piece) -> OutboxSize {
        let mut less = OutboxSize::default();
        self.let_go(&piece.what);
        match piece.what {
            PieceKind::Report(report) => {
                self.report = Some(match self.report.take() {
                    Some(newer) => {
                        less.add(report.size());
                        less.add(newer.size());
                        let both = report.then(newer, self.device);
                        less.take(both.size());
                        both
                    }
                    None => report,
                });
            }
            PieceKind::Settings(settings, faults) => {
                settings.into_iter().rev().for_each(|setting| self.settings.push_front(setting));
                self.settings_faults = faults;
            }
            PieceKind::Delivery(delivery) if delivery.faults.due.is_some() => self.refused.push(delivery),
            PieceKind::Delivery(delivery) => self.deliveries.push_front(delivery),
        }
        less
    }

    fn let_go(&mut self, what: &PieceKind) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.pieces -= 1;
            match what {
                PieceKind::Report(_) => in_hand.report = None,
                PieceKind::Settings(..) => in_hand.settings.clear(),
                PieceKind::Delivery(_) => {}
            }
        }
        self.in_hand.take_if(|in_hand| in_hand.pieces == 0);
    }
}
