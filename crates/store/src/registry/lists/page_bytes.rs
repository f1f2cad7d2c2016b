//! Bounds the bytes of rows with texts of any length, before the rows are read: both databases know the length of a
//! text without reading it.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use crate::error::{Result, StoreError};
use crate::registry::sql::{Connection, Dialect, Sql, all, one};
use crate::telemetry::PAGE_BYTES_MAX;

/// Rows found by their ids, with the length of their texts.
pub(crate) struct LongTexts {
    /// SQL expression for the length of a row's texts.
    pub bytes: &'static str,
    /// `FROM` a table, up to the list of ids.
    pub from: &'static str,
    /// Column of the ids.
    pub id: &'static str,
    /// Number of rows that always fit, regardless of their content: up to this number nothing is asked.
    pub few: usize,
}

/// Metadata of devices: 64 KiB each.
pub(crate) const METADATA: LongTexts =
    LongTexts { bytes: "octet_length(d.meta)", from: "FROM devices d WHERE d.id", id: "d.id", few: 128 };
/// Metadata and current settings of devices: 64 KiB and 1 MiB each.
pub(crate) const METADATA_AND_SETTINGS: LongTexts = LongTexts {
    bytes: "octet_length(d.meta) + coalesce((SELECT sum(octet_length(s.value)) FROM settings s \
            WHERE s.device_key = d.key AND s.changed_at IS NULL), 0)",
    from: "FROM devices d WHERE d.id",
    id: "d.id",
    few: 8,
};
/// Titles and values of alarms: 4 KiB and 8 KiB each.
pub(crate) const ALARM_TEXTS: LongTexts = LongTexts {
    bytes: "octet_length(a.title) + coalesce(octet_length(a.value), 0)",
    from: "FROM alarms a WHERE a.id",
    id: "a.id",
    few: 500,
};
/// Values of records of settings: 1 MiB each.
pub(crate) const SETTING_VALUES: LongTexts =
    LongTexts { bytes: "coalesce(octet_length(s.value), 0)", from: "FROM settings s WHERE s.id", id: "s.id", few: 8 };

impl LongTexts {
    /// Checks that these rows are a page that may be read: answers [`StoreError::TooMuch`] if their texts together take
    /// more than [`PAGE_BYTES_MAX`]. A single row is always accepted.
    pub async fn are_a_page<K: Display>(&self, connection: &impl Connection, ids: &[K]) -> Result<()> {
        if ids.len() <= self.few {
            return Ok(());
        }
        let Self { bytes, from, .. } = self;
        let sum = Sql::new(format!("SELECT CAST(coalesce(sum({bytes}), 0) AS BIGINT) AS bytes {from}"));
        is_a_page(connection, sum.among(Dialect::of(connection), ids)).await
    }

    /// Returns how many of the rows, from the first on, together take no more than `bytes_max`; at least one, if there
    /// is any.
    pub async fn first_of<K: Display + FromStr + Hash + Eq>(
        &self,
        connection: &impl Connection,
        ids: &[K],
        bytes_max: usize,
    ) -> Result<usize> {
        if ids.len() <= self.few {
            return Ok(ids.len());
        }
        let Self { bytes, from, id, .. } = self;
        let lengths = Sql::new(format!("SELECT {id} AS id, CAST({bytes} AS BIGINT) AS bytes {from}"));
        let mut known = HashMap::<K, u64>::with_capacity(ids.len());
        for row in all(connection, lengths.among(Dialect::of(connection), ids)).await? {
            known.insert(row.id("id")?, row.count("bytes")?);
        }
        let mut taken = 0_u64;
        let fits = |id: &&K| {
            taken = taken.saturating_add(known.get(id).copied().unwrap_or_default());
            taken <= bytes_max as u64
        };
        Ok(ids.iter().take_while(fits).count().max(1).min(ids.len()))
    }
}

/// Checks that rows whose texts have this total length are a page that may be read; else answers
/// [`StoreError::TooMuch`].
pub(crate) async fn is_a_page(connection: &impl Connection, sum: Sql) -> Result<()> {
    let bytes = one(connection, sum).await?.map_or(Ok(0), |row| row.count("bytes"))?;
    if bytes > PAGE_BYTES_MAX as u64 { Err(StoreError::TooMuch) } else { Ok(()) }
}
