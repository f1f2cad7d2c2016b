//! Exports a whole series as a stream, in memory that does not grow with the series.

use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use isobar_model::access::{Caller, CanRead};
use isobar_model::error::{Error, Result};
use isobar_model::event::StoredValue;
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId};
use isobar_quota::Claim;
use isobar_store::telemetry::{ValueChunk, ValueCursor, ValueQuery};

use crate::Hub;
use crate::resources::data::ELEMENT;
use isobar_quota::{TenantShare, TenantShares, limits};

/// Makes the shares of concurrent exports.
pub(crate) fn exports() -> Arc<TenantShares> {
    TenantShares::new(&limits::EXPORTS)
}

/// An export whose first piece is loaded. Its end was fixed when it began: values stored later are not included.
pub struct Export {
    hub: Hub,
    permit: CanRead<DeviceRef>,
    element: String,
    query: ValueQuery,
    begun: ValueChunk,
    /// The tenant that it is charged to, and its place among all exports.
    tenant: OrganizationId,
    _place: TenantShare,
}

impl Hub {
    /// Begins an export. It is ordered by time; the page of the query is ignored.
    ///
    /// Needs `DeviceRead`. Pieces are read in turns among the long reads.
    ///
    /// # Errors
    /// `Busy`: the tenant has 32 exports running, or twice what is left for others; or too many long reads are running.
    pub async fn values_export(
        &self,
        caller: &Caller,
        id: DeviceId,
        element: &str,
        query: ValueQuery,
    ) -> Result<Export> {
        let (permit, entry) = self.0.identity.user_device_read(caller, id).await?;
        if query.newest_first().is_none() {
            return Err(Error::invalid("query.sortBy", "an export is sorted by createdAt or id, in one direction"));
        }
        let (tenant, kept) = (caller.lineage.top(), self.kept(&entry, element).await?);
        let query = ValueQuery { kept, ..query };
        let place = self.0.exports.take(tenant, 1)?;
        let begun = self.telemetry().values_chunk(&permit, element, &query, None, Claim::begin(tenant)).await;
        let begun = match begun? {
            Some(begun) => begun,
            None if self.declares(&entry, element).await? => ValueChunk { values: Vec::new(), next: None },
            None => return Err(Error::Missing(ELEMENT)),
        };
        Ok(Export { hub: self.clone(), permit, element: element.to_owned(), query, begun, tenant, _place: place })
    }
}

impl Export {
    /// Returns the values in pieces; each piece is read when it is polled. A series that is deleted meanwhile is an
    /// error, because the export would be incomplete.
    pub fn pieces(mut self) -> impl Stream<Item = Result<Vec<StoredValue>>> + Send + 'static {
        let begun = std::mem::take(&mut self.begun.values);
        let rest = stream::try_unfold(self, |mut export| async move {
            let Some(cursor) = export.begun.next.take() else { return Ok(None) };
            let chunk = export.following(cursor).await?;
            export.begun.next = chunk.next;
            Ok(Some((chunk.values, export)))
        });
        stream::once(std::future::ready(Ok(begun))).chain(rest)
    }

    async fn following(&self, cursor: ValueCursor) -> Result<ValueChunk> {
        // The export was admitted: its next piece waits for as long as it must.
        let (telemetry, claim) = (self.hub.telemetry(), Claim::go_on(self.tenant));
        let chunk = telemetry.values_chunk(&self.permit, &self.element, &self.query, Some(cursor), claim).await;
        chunk?.ok_or(Error::Missing(ELEMENT))
    }
}
