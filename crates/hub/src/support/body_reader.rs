//! Bodies of calls: a short one is read where it came, a long one on a thread that gives way, in a slot of its tenant.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::check::Faults;
use isobar_model::error::Result;
use isobar_model::ids::OrganizationId;
use isobar_model::json::{Json, RawJson};

use isobar_quota::NOBODY;

use super::bounded_jobs::BoundedJobs;
use isobar_quota::TenantShares;

/// Most bytes of a body that is read on the thread that serves calls. Of names of a few letters, that takes up to a
/// millisecond.
pub(crate) const READ_HERE_BYTES_MAX: usize = 32 << 10;
/// What the threads are called that read longer ones.
const READING_THREAD: &str = "isobar-bodies";
/// Longer bodies that are read at the same time, and those that are read or wait, of all tenants and of one; beyond, 503.
const READ_AT_ONCE: usize = 2;
const READING_MAX: usize = 4_096;
const READING_OF_ONE_MAX: usize = 1_024;
/// Bytes of longer bodies that are read or wait, of all tenants and of one; beyond, 503.
const READING_BYTES_MAX: usize = 256 << 20;
const READING_BYTES_OF_ONE_MAX: usize = 64 << 20;

/// Reads bodies.
pub(crate) struct BodyReader {
    jobs: BoundedJobs,
    bytes: Arc<TenantShares>,
}

impl BodyReader {
    /// # Errors
    /// The system gives no more resources.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            jobs: BoundedJobs::giving_way(READING_THREAD, READ_AT_ONCE, READING_MAX, READING_OF_ONE_MAX)?,
            bytes: TenantShares::new(READING_BYTES_MAX, READING_BYTES_OF_ONE_MAX),
        })
    }

    /// Reads a body of so many bytes, a short one here. [`isobar_model::error::Error::Busy`] when too many long ones wait for a slot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if bytes <= READ_HERE_BYTES_MAX { Ok(read()) } else { self.take_apart(tenant, bytes, read).await }
    }

    /// Reads a body on such a thread, however short it is: what is done with it takes longer than its length
    /// tells. [`isobar_model::error::Error::Busy`] as with a long one.
    pub(crate) async fn take_apart<T: Send + 'static>(
        &self,
        tenant: Option<OrganizationId>,
        bytes: usize,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let share = self.bytes.take(tenant.unwrap_or(NOBODY), bytes)?;
        // Whoever hangs up does not end what has begun, nor give back what it holds.
        let read = move || {
            let _share = share;
            read()
        };
        self.jobs.run_charged(tenant, read).await
    }

    /// Reads a payload: any JSON but null. Its tree comes with it, unless it is a long one.
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

/// A payload and its tree, or what is wrong with it.
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

    #[tokio::test]
    async fn a_long_body_is_read_on_another_thread() {
        let (bodies, here) = (BodyReader::new().unwrap(), std::thread::current().id());
        for (bytes, is_here) in [(1, true), (READ_HERE_BYTES_MAX, true), (READ_HERE_BYTES_MAX + 1, false)] {
            let read = bodies.read(None, bytes, || std::thread::current().id()).await.unwrap();
            assert_eq!(read == here, is_here, "{bytes}");
            let taken = bodies.take_apart(None, bytes, || std::thread::current().id()).await.unwrap();
            assert_ne!(taken, here, "{bytes}");
        }
    }

    #[tokio::test]
    async fn what_a_tenant_has_waiting_is_bounded_in_bytes_and_others_have_room() {
        let (bodies, [one, other]) =
            (BodyReader::new().unwrap(), [1, 2].map(|n| Some(OrganizationId(uuid::Uuid::from_u128(n)))));
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let most = bodies.read(one, READING_BYTES_OF_ONE_MAX, move || begun.recv().is_ok());
        let rest = async {
            // It is polled behind the first, which holds all that it may.
            let refused = bodies.read(one, READ_HERE_BYTES_MAX + 1, || ()).await;
            assert!(matches!(refused, Err(isobar_model::error::Error::Busy)), "{refused:?}");
            let refused = bodies.take_apart(one, 1, || ()).await;
            assert!(matches!(refused, Err(isobar_model::error::Error::Busy)), "{refused:?}");
            bodies.read(one, READ_HERE_BYTES_MAX, || ()).await.unwrap();
            bodies.read(other, READING_BYTES_OF_ONE_MAX, || ()).await.unwrap();
            begin.send(()).unwrap();
        };
        let (first, ()) = futures::future::join(most, rest).await;
        assert!(first.unwrap());
        bodies.read(one, READING_BYTES_OF_ONE_MAX, || ()).await.unwrap();
    }

    #[tokio::test]
    async fn a_payload_is_judged_alike_wherever_it_is_read() {
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
