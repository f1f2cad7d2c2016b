//! Reads bodies of calls: short ones on the serving thread, long ones on a low-priority thread, in a slot of the
//! tenant.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::check::Faults;
use isobar_model::error::Result;
use isobar_model::ids::OrganizationId;
use isobar_model::json::{Json, RawJson};

use isobar_quota::NOBODY;

use super::bounded_jobs::BoundedJobs;
use isobar_quota::{TenantShares, limits};

/// Largest body read on the serving thread, in bytes. JSON with short names of this size takes up to a millisecond.
pub(crate) const READ_HERE_BYTES_MAX: usize = 32 << 10;
/// Name of the threads that read longer bodies.
const READING_THREAD: &str = "isobar-bodies";

/// Reads bodies of calls within limits; beyond them the call is refused with 503.
pub(crate) struct BodyReader {
    jobs: BoundedJobs,
    bytes: Arc<TenantShares>,
}

impl BodyReader {
    /// Starts the reading threads.
    ///
    /// # Errors
    /// Returns an error if the system gives no more threads.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            jobs: BoundedJobs::giving_way(READING_THREAD, &limits::BODY_READS)?,
            bytes: TenantShares::new(&limits::BODY_READ_BYTES),
        })
    }

    /// Reads a body of this size, a short one on this thread. Returns [`isobar_model::error::Error::Busy`] if too many
    /// long ones wait.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if bytes <= READ_HERE_BYTES_MAX { Ok(read()) } else { self.take_apart(tenant, bytes, read).await }
    }

    /// Processes a body on a reading thread even if it is short, because the work takes longer than its length
    /// suggests. Returns [`isobar_model::error::Error::Busy`] as for a long one.
    pub(crate) async fn take_apart<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let share = self.bytes.take(tenant.unwrap_or(NOBODY), bytes)?;
        // A client that disconnects neither ends running work nor frees its share.
        let read = move || {
            let _share = share;
            read()
        };
        self.jobs.run_charged(tenant, read).await
    }

    /// Reads a payload, any JSON but null. A short one is returned with its tree.
    pub(crate) async fn payload<'a>(
        &self,
        tenant: Option<OrganizationId>,
        body: &'a Bytes,
        faults: &mut Faults,
    ) -> Result<Option<(RawJson, Option<Json<'a>>)>> {
        let read = if body.len() <= READ_HERE_BYTES_MAX {
            payload_of(body).map(|(payload, tree)| (payload, Some(tree)))
        } else {
            let kept = body.clone();
            let read = move || payload_of(&kept).map(|(payload, _)| payload);
            Box::pin(self.read(tenant, body.len(), read)).await?.map(|payload| (payload, None))
        };
        Ok(read.map_err(|fault| faults.add("body", fault)).ok())
    }
}

/// Reads a payload and its tree, or returns its fault.
fn payload_of(body: &Bytes) -> std::result::Result<(RawJson, Json<'_>), String> {
    match RawJson::read(body) {
        Ok((_, Json::Null)) => Err("must not be null".to_owned()),
        Ok(read) => Ok(read),
        Err(fault) => Err(format!("is not valid JSON: {fault}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ONE: usize = limits::BODY_READ_BYTES.of_one;

    #[tokio::test]
    async fn long_body_is_read_on_another_thread() {
        let (bodies, here) = (BodyReader::new().unwrap(), std::thread::current().id());
        for (bytes, is_here) in [(1, true), (READ_HERE_BYTES_MAX, true), (READ_HERE_BYTES_MAX + 1, false)] {
            let read = bodies.read(None, bytes, || std::thread::current().id()).await.unwrap();
            assert_eq!(read == here, is_here, "{bytes}");
            let taken = bodies.take_apart(None, bytes, || std::thread::current().id()).await.unwrap();
            assert_ne!(taken, here, "{bytes}");
        }
    }

    #[tokio::test]
    async fn queued_bodies_of_a_tenant_are_bounded_in_bytes() {
        let (bodies, [one, other]) =
            (BodyReader::new().unwrap(), [1, 2].map(|n| Some(OrganizationId(uuid::Uuid::from_u128(n)))));
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let most = bodies.read(one, OF_ONE, move || begun.recv().is_ok());
        let rest = async {
            // Polled after the first read, which occupies the tenant's whole share.
            let refused = bodies.read(one, READ_HERE_BYTES_MAX + 1, || ()).await;
            assert!(matches!(refused, Err(isobar_model::error::Error::Busy)), "{refused:?}");
            let refused = bodies.take_apart(one, 1, || ()).await;
            assert!(matches!(refused, Err(isobar_model::error::Error::Busy)), "{refused:?}");
            bodies.read(one, READ_HERE_BYTES_MAX, || ()).await.unwrap();
            bodies.read(other, OF_ONE, || ()).await.unwrap();
            begin.send(()).unwrap();
        };
        let (first, ()) = futures::future::join(most, rest).await;
        assert!(first.unwrap());
        bodies.read(one, OF_ONE, || ()).await.unwrap();
    }

    #[tokio::test]
    async fn payload_has_the_same_faults_on_every_thread() {
        let bodies = BodyReader::new().unwrap();
        for filling in [1, READ_HERE_BYTES_MAX] {
            let text = "x".repeat(filling);
            let good = Bytes::from(format!(r#"{{"a":"{text}"}}"#));
            let mut faults = Faults::new();
            let (payload, tree) = bodies.payload(None, &good, &mut faults).await.unwrap().unwrap();
            assert_eq!((payload.bytes(), tree.is_some()), (&*good, filling == 1));
            let twice = format!(r#"{{"a":1,"a":"{text}"}}"#);
            for (bad, told) in [(twice, "JSON"), (format!("null{}", " ".repeat(filling)), "null")] {
                let mut faults = Faults::new();
                assert!(bodies.payload(None, &bad.into(), &mut faults).await.unwrap().is_none());
                let fault = format!("{:?}", faults.end().unwrap_err());
                assert!(fault.contains(told), "{fault}");
            }
        }
    }
}
