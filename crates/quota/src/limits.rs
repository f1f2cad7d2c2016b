//! The table of limits: each row bounds one instance of a rule of this crate. The section "Limits that tenants share" of
//! docs/limits.md is made of it, and so are the values of the label `limit` of the metrics ([`crate::LimitMeter`]).

use std::time::Duration;

/// Unit of a limit that counts bytes.
pub const BYTES: &str = "bytes";

const MIB: usize = 1 << 20;

/// A row of the table. What a rule does not use, or what has no bound, is as in [`UNLIMITED`].
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Name, in the metrics and in the refusals.
    pub name: &'static str,
    /// Unit of the counts: [`BYTES`], or a noun in the plural.
    pub unit: &'static str,
    /// Subject of the limit, for operators.
    pub bounds: &'static str,
    /// Name of the party that `of_one` counts.
    pub holder: &'static str,
    /// Total of all tenants. Of a queue: work that has begun and not ended; beyond it, new work takes the place of waiting
    /// work of a tenant that has more, or is refused. Continued work is not counted and keeps its place.
    pub of_all: usize,
    /// Most of one holder. Beyond it, the holder is refused.
    pub of_one: usize,
    /// Most of one site. Beyond it, what comes from there is refused.
    pub of_site: usize,
    /// Slots of a queue: work that is done at the same time.
    pub at_once: usize,
    /// Slots of one tenant at the same time: its further work waits although slots are free.
    pub at_once_of_tenant: usize,
    /// Time after which a slot is returned if others wait.
    pub slice: Duration,
}

impl Limit {
    /// Returns the limit with another total.
    #[must_use]
    pub const fn with_total(self, of_all: usize) -> Self {
        Self { of_all, ..self }
    }

    /// Returns the limit with so many slots, and so many of them for one tenant.
    #[must_use]
    pub const fn with_slots(self, at_once: usize, at_once_of_tenant: usize) -> Self {
        Self { at_once, at_once_of_tenant, ..self }
    }
}

/// Limits nothing.
pub const UNLIMITED: Limit = Limit {
    name: "unlimited",
    unit: "",
    bounds: "",
    holder: "tenant",
    of_all: usize::MAX,
    of_one: usize::MAX,
    of_site: usize::MAX,
    at_once: usize::MAX,
    at_once_of_tenant: usize::MAX,
    slice: Duration::MAX,
};

/// All rows, in the order of the document.
pub const LIMITS: &[&Limit] = &[
    &LONG_WAITS,
    &BODY_MEMORY,
    &BODY_READS,
    &BODY_READ_BYTES,
    &RESPONSE_MEMORY,
    &MULTIPLEXED_ANSWERS,
    &COMMIT_BYTES,
    &EVENT_BATCH_BYTES,
    &LONG_RUNS,
    &LONG_RUN_BYTES,
    &CODE_TIMERS,
    &DESIGN_COMPILATIONS,
    &WEBHOOK_BYTES,
    &OUTGOING_CALLS,
    &SCANS,
    &EXPORTS,
    &BUCKET_BYTES,
    &STREAM_BYTES,
    &FOLLOWED_LISTS,
    &DEVICE_LISTS,
    &DEVICE_SELECTIONS,
    &BULK_CHANGES,
    &PICTURES,
    &PASSWORD_HASHES,
];

/// Calls that wait. A new client still needs a connection to ask for a place.
pub const LONG_WAITS: Limit = Limit {
    name: "long_waits",
    unit: "calls",
    bounds: "long polls and streams: 3 quarters of `max_connections`, which is 20,000 by default. \
        When no place is left, the tenant with most loses its newest place to a tenant that has fewer, and that wait ends",
    of_all: 15_000,
    ..UNLIMITED
};

/// Several bodies of the largest size that the settings allow.
pub const BODY_MEMORY: Limit = Limit {
    name: "body_memory",
    unit: BYTES,
    bounds: "request bodies that arrive in pieces",
    of_all: 256 * MIB,
    ..UNLIMITED
};

/// Bodies that are too long for the thread that serves their call.
pub const BODY_READS: Limit = Limit {
    name: "body_reads",
    unit: "bodies",
    bounds: "request bodies over 32 KiB, and webhook bodies of any length, that are parsed or wait for it",
    at_once: 2,
    of_all: 4_096,
    of_one: 1_024,
    ..UNLIMITED
};

/// The bytes of these bodies.
pub const BODY_READ_BYTES: Limit = Limit {
    name: "body_read_bytes",
    unit: BYTES,
    bounds: "these bodies",
    of_all: 256 * MIB,
    of_one: 64 * MIB,
    ..UNLIMITED
};

/// Clients may read slowly.
pub const RESPONSE_MEMORY: Limit = Limit {
    name: "response_memory",
    unit: BYTES,
    bounds: "responses, and stored payloads in pages, that readers have not taken yet; the 503 names it",
    of_all: 512 * MIB,
    ..UNLIMITED
};

/// One connection of HTTP/2 has a hundred responses in flight, and its client decides when it takes them.
pub const MULTIPLEXED_ANSWERS: Limit = Limit {
    name: "multiplexed_answers",
    unit: BYTES,
    bounds: "responses over 1 KiB that readers by HTTP/2 have not taken yet, of any size; the 503 names them",
    of_all: 512 * MIB,
    of_one: 64 * MIB,
    ..UNLIMITED
};

/// Bounds waiting commits; the writer may have as many bytes again.
pub const COMMIT_BYTES: Limit = Limit {
    name: "commit_bytes",
    unit: BYTES,
    bounds: "rows of commits that wait for the writer, as it found them when it last looked. A tenant with nothing \
        waiting may send one more commit until 48 MiB wait",
    of_all: 24 * MIB,
    ..UNLIMITED
};

/// A body counts as it came, and as payloads.
pub const EVENT_BATCH_BYTES: Limit = Limit {
    name: "event_batch_bytes",
    unit: BYTES,
    bounds: "batches of events in progress (a body counts twice)",
    of_all: 256 * MIB,
    ..UNLIMITED
};

/// A run cannot be interrupted: a tenant has a part of the slots only. These are those of two processors.
pub const LONG_RUNS: Limit = Limit {
    name: "long_runs",
    unit: "runs",
    bounds: "runs of designs that may take over a millisecond: at a time 4 for each processor (at least 2 count)",
    holder: "project",
    at_once: 8,
    at_once_of_tenant: 2,
    of_all: 4_096,
    of_one: 256,
    of_site: 1_024,
    ..UNLIMITED
};

/// Charges a run its payload or values, and the metadata and settings of the device.
pub const LONG_RUN_BYTES: Limit = Limit {
    name: "long_run_bytes",
    unit: BYTES,
    bounds: "these runs, and changes of settings (payload or values, metadata and settings of the device)",
    of_all: 192 * MIB,
    ..UNLIMITED
};

/// They are in addition to the events that their code has to run on.
pub const CODE_TIMERS: Limit = Limit {
    name: "code_timers",
    unit: "intervals",
    bounds: "intervals whose code runs or waits; others are delayed, from 5 s to 160 s",
    of_all: 512,
    of_one: 64,
    ..UNLIMITED
};

/// Designs that are stored already are compiled without a slot.
pub const DESIGN_COMPILATIONS: Limit = Limit {
    name: "design_compilations",
    unit: "designs",
    bounds: "designs compiled for requests",
    at_once: 2,
    of_all: 64,
    of_one: 32,
    ..UNLIMITED
};

/// Charges a delivery from the extraction of its body to its answer.
pub const WEBHOOK_BYTES: Limit = Limit {
    name: "webhook_bytes",
    unit: BYTES,
    bounds: "webhook deliveries (body, payloads, results) from extraction to the answer; the 503 names it",
    of_all: 256 * MIB,
    ..UNLIMITED
};

/// Calls of designs.
pub const OUTGOING_CALLS: Limit = Limit {
    name: "outgoing_calls",
    unit: "calls",
    bounds: "outgoing calls at a time; others wait",
    of_all: 128,
    ..UNLIMITED
};

/// Others have their slots at the latest after a slice.
pub const SCANS: Limit = Limit {
    name: "scans",
    unit: "reads",
    bounds: "long reads of telemetry: scans of a series, pieces of exports, pages of more than 1,000 items, catching up \
        of streams. Their threads run at low priority",
    at_once: 4,
    of_all: 64,
    of_one: 24,
    slice: Duration::from_millis(20),
    ..UNLIMITED
};

/// Each holds at most one piece of its series in memory.
pub const EXPORTS: Limit = Limit {
    name: "exports",
    unit: "exports",
    bounds: "exports of series in progress",
    of_all: 256,
    of_one: 32,
    ..UNLIMITED
};

/// An answer reserves a piece at first, and keeps what it uses.
pub const BUCKET_BYTES: Limit = Limit {
    name: "bucket_bytes",
    unit: BYTES,
    bounds: "bucket answers while they are computed and written; each reserves 1 MiB at first, and its actual size once \
        computed",
    of_all: 384 * MIB,
    ..UNLIMITED
};

/// A stream beyond the limit waits.
pub const STREAM_BYTES: Limit = Limit {
    name: "stream_bytes",
    unit: BYTES,
    bounds: "events that streams have read and not sent; a stream beyond it waits",
    of_all: 512 * MIB,
    of_one: 32 * MIB,
    ..UNLIMITED
};

/// The registry has few readers, and other calls need them too. The line is unbounded, as there is at most one list for each
/// organization.
pub const FOLLOWED_LISTS: Limit = Limit {
    name: "followed_lists",
    unit: "lists",
    bounds: "device lists built for resuming streams, one shared by all waiting streams of an organization; others wait. \
        Their threads run at low priority",
    at_once: 2,
    ..UNLIMITED
};

/// Has as many slots as a registry on SQLite has readers.
pub const DEVICE_LISTS: Limit = Limit {
    name: "device_lists",
    unit: "lists",
    bounds: "unfiltered lists of devices, of replaced settings, of alarms and of notifications",
    at_once: 4,
    of_all: 1_024,
    of_one: 512,
    ..UNLIMITED
};

/// Half of the readers of a registry on SQLite are left to other calls.
pub const DEVICE_SELECTIONS: Limit = Limit {
    name: "device_selections",
    unit: "selections",
    bounds: "filtered lists, summaries and first pages of CSVs of devices",
    at_once: 2,
    of_all: 64,
    of_one: 24,
    ..UNLIMITED
};

/// Bulk work on devices.
pub const BULK_CHANGES: Limit = Limit {
    name: "bulk_changes",
    unit: "calls",
    bounds: "bulk creations of devices and bulk changes of labels",
    at_once: 2,
    of_all: 64,
    of_one: 8,
    ..UNLIMITED
};

/// An image takes much memory while it is decoded.
pub const PICTURES: Limit = Limit {
    name: "pictures",
    unit: "images",
    bounds: "posted images that are decoded or wait for it",
    at_once: 1,
    of_all: 16,
    of_one: 8,
    ..UNLIMITED
};

/// Each hash takes about 19 MiB and tens of milliseconds, and cannot be interrupted.
pub const PASSWORD_HASHES: Limit = Limit {
    name: "password_hashes",
    unit: "hashes",
    bounds: "password hashes, on threads at low priority. A site is an IPv4 address or an IPv6 network of 48 bits, or \
        the tenants that registered from one",
    holder: "address or tenant",
    at_once: 2,
    of_all: 258,
    of_one: 32,
    of_site: 64,
    ..UNLIMITED
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn limit_has_a_name_of_its_own_in_snake_case() {
        let names: BTreeSet<_> = LIMITS.iter().map(|limit| limit.name).collect();
        assert_eq!(names.len(), LIMITS.len());
        for Limit { name, unit, bounds, .. } in LIMITS {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(!unit.is_empty() && !bounds.is_empty() && !bounds.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn limit_of_one_holder_is_below_the_total() {
        for limit in LIMITS {
            let parts = [limit.of_one, limit.of_site].into_iter().filter(|part| *part != usize::MAX);
            assert!(parts.into_iter().all(|part| part < limit.of_all), "{}", limit.name);
            assert!(limit.at_once == usize::MAX || limit.at_once <= limit.of_all, "{}", limit.name);
        }
    }
}
