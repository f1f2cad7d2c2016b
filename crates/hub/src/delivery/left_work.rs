//! Takes over work in the outbox that another process has left, or an earlier one.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use isobar_model::access::{self, CanWrite};
use isobar_model::error::Result;
use isobar_model::ids::{DeviceKey, DeviceRef};
use isobar_store::telemetry::{OutboxEntry, SharedTelemetry};

use super::Delivery;
use crate::outbox::RegistryWork;
use crate::supervisor::Shift;

/// Entries read from the store at a time at a start.
const LEFT_AT_ONCE: usize = 1_000;
/// Pause between two looks at what others have left, and (next constants) the devices of one look, and of them at a time.
const LEFT_LOOK: Duration = Duration::from_secs(1);
const LEFT_DEVICES: usize = 512;
const LEFT_TAKEN_AT_ONCE: usize = 32;

impl Delivery {
    /// Loads the entries that an earlier process left in the outbox: reads of a device include them from now on. Where
    /// processes share the store, only those of processes that serve no more are taken over.
    pub(crate) async fn take_up_left_work(&self) -> Result<()> {
        let mut count = 0;
        match self.env.telemetry().shared() {
            Some(shared) => {
                while let more @ 1.. = self.take_over_left(shared).await? {
                    count += more;
                }
            }
            None => count = self.take_up_all().await?,
        }
        if count > 0 {
            tracing::info!(count, "entries of the outbox were left by an earlier process and are written now");
        }
        Ok(())
    }

    async fn take_up_all(&self) -> Result<usize> {
        let (mut after, mut count) = (0, 0);
        loop {
            let entries = self.env.telemetry().outbox(after, LEFT_AT_ONCE).await?;
            let Some(last) = entries.last() else { return Ok(count) };
            after = last.number;
            count += entries.len();
            for entry in &entries {
                self.take_up(entry, 0).await?;
            }
        }
    }

    async fn take_up(&self, entry: &OutboxEntry, revision: u64) -> Result<()> {
        let taken = self.outbox.take_up(entry, revision, self.env.now());
        let Err(error) = taken else { return Ok(()) };
        let (number, device) = (entry.number, entry.device.0);
        tracing::error!(%error, number, device, "an entry of the outbox cannot be read and is parked");
        Ok(self.env.telemetry().outbox_park(entry.device, entry.number, &format!("it cannot be read: {error}")).await?)
    }

    /// Looks from time to time for work that other processes have left, and takes it over.
    pub(crate) async fn run_left_work(self: Arc<Self>, mut shift: Shift) {
        loop {
            self.env.reaches("left_work");
            if let Some(shared) = self.env.telemetry().shared() {
                match self.take_over_left(shared).await {
                    Ok(0) => {}
                    Ok(count) => tracing::info!(count, "entries of the outbox that a process left are taken over"),
                    Err(error) => tracing::warn!(%error, "cannot look for work that other processes left, will retry"),
                }
            }
            shift.well();
            if shift.pause(LEFT_LOOK).await {
                return;
            }
        }
    }

    /// Takes over what has been left by some devices; returns the number of entries.
    async fn take_over_left(&self, shared: &dyn SharedTelemetry) -> Result<usize> {
        // Entries whose removal has failed are not left, though they look so.
        self.remove_needless().await?;
        let left = shared.left_work(LEFT_DEVICES).await?;
        let left = left.into_iter().filter(|device| !self.outbox.has_work(*device));
        let taken = futures::stream::iter(left).map(|device| self.take_over(shared, device));
        let taken: Vec<Result<usize>> = taken.buffer_unordered(LEFT_TAKEN_AT_ONCE).collect().await;
        // A device whose database has just gone away keeps back no other.
        let (mut count, mut failed) = (0, Ok(()));
        for taken in taken {
            match taken {
                Ok(more) => count += more,
                Err(error) => failed = Err(error),
            }
        }
        if count == 0 {
            failed?;
        }
        Ok(count)
    }

    /// Takes over the work of a device. From the new revision on, runs in all processes wait for it; what the process that
    /// left it may still write is refused by the registry. Only then the entries are read: they are all of the work.
    async fn take_over(&self, shared: &dyn SharedTelemetry, key: DeviceKey) -> Result<usize> {
        // Read first: at this revision the device has no entries but those that are read then.
        let before = shared.standing(key).await?.revision;
        let entries = shared.outbox_of(key).await?;
        if entries.is_empty() {
            return Ok(0);
        }
        let read = |entry: &OutboxEntry| serde_json::from_slice::<RegistryWork>(&entry.work).ok()?.device;
        let Some(id) = entries.iter().find_map(read) else { return self.take_all_of(shared, key, before).await };
        let permit = access::system(DeviceRef { id, key }, "work that another process left is taken over");
        let revision = self.outbox.revise(self.env.telemetry(), &permit, Vec::new()).await?;
        match self.has_others_refused(shared, &permit, revision).await? {
            true => self.take_all_of(shared, key, revision).await,
            false => Ok(0),
        }
    }

    /// Has the registry refuse findings of a device of revisions before this one. Returns false if another process has taken
    /// the device over at a later one.
    async fn has_others_refused(
        &self,
        shared: &dyn SharedTelemetry,
        permit: &CanWrite<DeviceRef>,
        revision: u64,
    ) -> Result<bool> {
        let mut outlived = None;
        while let Some(later) = self.env.registry().findings_take(permit, revision, outlived).await? {
            if shared.standing(permit.target().key).await?.revision > revision {
                return Ok(false);
            }
            // The telemetry was brought back to an earlier state than that of the registry.
            outlived = Some(later);
        }
        Ok(true)
    }

    async fn take_all_of(&self, shared: &dyn SharedTelemetry, device: DeviceKey, revision: u64) -> Result<usize> {
        // What this process has written itself until now is removed either before this or after it, and is not written again.
        let _removing = self.removing.read().await;
        let entries = shared.outbox_take(device, revision).await?;
        if self.outbox.has_work(device) {
            return Ok(0);
        }
        for entry in &entries {
            self.take_up(entry, revision).await?;
        }
        Ok(entries.len())
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use isobar_store::error;
    use isobar_store::telemetry::Standing;
    use parking_lot::Mutex;

    use super::*;
    use crate::stage::{Stage, until};

    const QUIET: &str = r#"{"reading": {"type": "deviceEvent"}}"#;

    /// A store that others share, with work of one device that another process has left.
    struct LeftOfOne {
        device: DeviceRef,
        revision: u64,
        entries: Vec<OutboxEntry>,
        /// The revisions at which the work was asked for.
        taken_at: Mutex<Vec<u64>>,
        /// Locked while answers to that are kept back.
        pause: tokio::sync::Mutex<()>,
    }

    impl LeftOfOne {
        fn new(device: DeviceRef, revision: u64, work: &[String]) -> Self {
            let entry = |(number, work): (u64, &String)| OutboxEntry {
                number,
                device: device.key,
                work: work.clone().into(),
                parked: None,
            };
            let entries = (1..).zip(work).map(entry).collect();
            Self { device, revision, entries, taken_at: Mutex::default(), pause: tokio::sync::Mutex::default() }
        }
    }

    #[async_trait]
    impl SharedTelemetry for LeftOfOne {
        async fn standings(&self, devices: &[DeviceKey]) -> error::Result<Vec<Option<Standing>>> {
            Ok(devices.iter().map(|_| Some(Standing { revision: self.revision, pending: None })).collect())
        }

        async fn queue_ends(&self, devices: &[DeviceKey]) -> error::Result<Vec<Option<u64>>> {
            Ok(devices.iter().map(|_| None).collect())
        }

        async fn left_work(&self, _limit: usize) -> error::Result<Vec<DeviceKey>> {
            Ok(vec![self.device.key])
        }

        async fn outbox_of(&self, _device: DeviceKey) -> error::Result<Vec<OutboxEntry>> {
            Ok(self.entries.clone())
        }

        async fn outbox_take(&self, _device: DeviceKey, revision: u64) -> error::Result<Vec<OutboxEntry>> {
            self.taken_at.lock().push(revision);
            let _pause = self.pause.lock().await;
            Ok(self.entries.clone())
        }
    }

    #[tokio::test]
    async fn device_that_was_taken_over_later_is_given_up() {
        let stage = Stage::set().await;
        let device = stage.device(QUIET).await.reference();
        let (delivery, registry) = (&stage.hub.0.delivery, stage.hub.0.env.registry());
        let permit = access::system(device, "a test takes a device over");
        let takes = async |revision| registry.findings_take(&permit, revision, None).await.unwrap();
        takes(9).await;
        // The stage's own store is at revision 0 of every device.
        let work = [format!(r#"{{"device":"{}","meta":[["n","1"]]}}"#, device.id)];
        let later = LeftOfOne::new(device, 9, &work);
        assert_eq!(delivery.take_over_left(&later).await.unwrap(), 0);
        assert!(later.taken_at.lock().is_empty());
        assert_eq!(takes(8).await, Some(9));
        // No process has made that revision: the store was brought back.
        let restored = LeftOfOne::new(device, 0, &work);
        assert_eq!(delivery.take_over_left(&restored).await.unwrap(), 1);
        assert_eq!(takes(8).await, None);
        stage.over().await;
    }

    #[tokio::test]
    async fn work_that_waits_for_its_removal_is_not_written_again() {
        let stage = Stage::set().await;
        let device = stage.device(QUIET).await.reference();
        let delivery = &stage.hub.0.delivery;
        let work = format!(r#"{{"device":"{}","meta":[["n","1"]]}}"#, device.id);
        let left = LeftOfOne::new(device, 7, &[work]);
        let needless = vec![(device.key, left.entries[0].number)];
        // The process has written this, and its removal has failed.
        delivery.outbox.put_back_needless(needless.clone());
        assert_eq!(delivery.take_over(&left, device.key).await.unwrap(), 0);
        assert!(!delivery.outbox.is_ready());
        assert_eq!(delivery.outbox.take_needless(), needless);
        // Nothing is removed between the look at the store and that at what is to be removed.
        let pause = left.pause.lock().await;
        let (taken, ()) = tokio::join!(delivery.take_over(&left, device.key), async {
            until("the work is asked for again", async || left.taken_at.lock().len() == 2).await;
            assert!(delivery.removing.try_write().is_err());
            delivery.outbox.put_back_needless(needless);
            drop(pause);
        });
        assert_eq!(taken.unwrap(), 0);
        // The next look removes it first.
        assert_eq!(delivery.take_over_left(&left).await.unwrap(), 1);
        assert!(delivery.outbox.is_ready());
        stage.over().await;
    }

    #[tokio::test]
    async fn work_that_another_has_done_is_not_taken() {
        let stage = Stage::set().await;
        let device = stage.device(QUIET).await.reference();
        let delivery = &stage.hub.0.delivery;
        let done = LeftOfOne::new(device, 7, &[]);
        assert_eq!(delivery.take_over_left(&done).await.unwrap(), 0);
        assert!(done.taken_at.lock().is_empty());
        // Nobody can read this, so the revision stays; whoever has made another since has work that is not left.
        let unreadable = LeftOfOne::new(device, 7, &["rubbish".to_owned()]);
        for _ in 0..2 {
            assert_eq!(delivery.take_over_left(&unreadable).await.unwrap(), 1);
        }
        assert_eq!(*unreadable.taken_at.lock(), [7, 7]);
        stage.over().await;
    }
}
