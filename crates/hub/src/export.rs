//! Exports: a whole series as a stream, in memory that does not grow with it.

use futures::stream::{self, Stream, StreamExt as _};
use isobar_model::access::{Caller, CanRead};
use isobar_model::error::{Error, Result};
use isobar_model::event::StoredValue;
use isobar_model::ids::{DeviceId, DeviceRef};
use isobar_store::telemetry::{ValueChunk, ValueCursor, ValueQuery};

use crate::Hub;
use crate::data::{ELEMENT, as_user, declares};
use crate::error::Told as _;

/// An export whose beginning is at hand. Its end was fixed when it began: what is stored meanwhile does not come up.
pub struct Export {
    hub: Hub,
    pass: CanRead<DeviceRef>,
    element: String,
    query: ValueQuery,
    begun: ValueChunk,
}

impl Hub {
    /// Begins an export. It is in an order of time; the page of the query is ignored.
    pub async fn values_export(
        &self,
        caller: &Caller,
        id: DeviceId,
        element: &str,
        query: ValueQuery,
    ) -> Result<Export> {
        let (pass, entry) = self.device_read(&as_user(caller), id).await?;
        if query.newest_first().is_none() {
            return Err(Error::invalid("query.sortBy", "an export is sorted by createdAt or id, in one direction"));
        }
        let begun = match self.0.telemetry.values_chunk(&pass, element, &query, None).await.told()? {
            Some(begun) => begun,
            None if declares(&entry, element) => ValueChunk { values: Vec::new(), next: None },
            None => return Err(Error::Missing(ELEMENT)),
        };
        Ok(Export { hub: self.clone(), pass, element: element.to_owned(), query, begun })
    }
}

impl Export {
    /// The values, piece by piece; each piece is read when it is asked for. A series that goes away on the way is an
    /// error, for what was promised cannot be had.
    pub fn pieces(self) -> impl Stream<Item = Result<Vec<StoredValue>>> + Send + 'static {
        let Export { hub, pass, element, query, begun } = self;
        let rest = stream::try_unfold(
            (hub, pass, element, query, begun.next),
            |(hub, pass, element, query, next)| async move {
                let Some(cursor) = next else { return Ok(None) };
                let chunk = following(&hub, &pass, &element, &query, cursor).await?;
                Ok(Some((chunk.values, (hub, pass, element, query, chunk.next))))
            },
        );
        stream::once(std::future::ready(Ok(begun.values))).chain(rest)
    }
}

async fn following(
    hub: &Hub,
    pass: &CanRead<DeviceRef>,
    element: &str,
    query: &ValueQuery,
    cursor: ValueCursor,
) -> Result<ValueChunk> {
    let chunk = hub.0.telemetry.values_chunk(pass, element, query, Some(cursor)).await.told()?;
    chunk.ok_or(Error::Missing(ELEMENT))
}
