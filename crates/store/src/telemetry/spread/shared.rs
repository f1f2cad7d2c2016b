//! Carries out the port for what processes must know of each other, over several databases.

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;

use super::SpreadTelemetry;
use crate::error::Result;
use crate::telemetry::postgres::PostgresTelemetry;
use crate::telemetry::{OutboxEntry, SharedTelemetry, Standing};

#[async_trait]
impl SharedTelemetry for SpreadTelemetry {
    async fn standings(&self, devices: &[DeviceKey]) -> Result<Vec<Option<Standing>>> {
        self.of_each(devices, |store, devices| async move { store.standings(&devices).await }).await
    }

    async fn queue_ends(&self, devices: &[DeviceKey]) -> Result<Vec<Option<u64>>> {
        self.of_each(devices, |store, devices| async move { store.queue_ends(&devices).await }).await
    }

    async fn left_work(&self, limit: usize) -> Result<Vec<DeviceKey>> {
        let (found, outcome) = self.ask_all(|store| store.left_work(limit)).await;
        if found.is_empty() {
            outcome?;
        }
        // In turn, so that no database with much work keeps back that of the others.
        let mut lists: Vec<_> = found.into_iter().map(|(_, devices)| devices.into_iter()).collect();
        let mut devices = Vec::new();
        while devices.len() < limit {
            let before = devices.len();
            devices.extend(lists.iter_mut().filter_map(Iterator::next));
            if devices.len() == before {
                break;
            }
        }
        devices.truncate(limit);
        Ok(devices)
    }

    async fn outbox_of(&self, device: DeviceKey) -> Result<Vec<OutboxEntry>> {
        let member = self.of(device)?;
        member.ask(member.store().outbox_of(device)).await
    }

    async fn outbox_take(&self, device: DeviceKey, revision: u64) -> Result<Vec<OutboxEntry>> {
        let member = self.of(device)?;
        member.ask(member.store().outbox_take(device, revision)).await
    }
}

impl SpreadTelemetry {
    /// Asks each database about those of the devices that it has, at the same time; returns the answers in the order of the
    /// devices. Devices of databases that do not answer have none.
    ///
    /// # Errors
    /// The only database, or that of the only device, does not answer.
    async fn of_each<'a, T, F>(
        &'a self,
        devices: &[DeviceKey],
        ask: impl Fn(&'a PostgresTelemetry, Vec<DeviceKey>) -> F,
    ) -> Result<Vec<Option<T>>>
    where
        F: Future<Output = Result<Vec<Option<T>>>> + Send,
    {
        let asked = self.sorted(devices, |device| *device)?.into_iter().map(|(member, devices)| {
            let (places, devices): (Vec<usize>, Vec<DeviceKey>) = devices.into_iter().unzip();
            let answer = ask(member.store(), devices);
            async move { (places, member.ask(answer).await) }
        });
        let mut answers: Vec<Option<T>> = devices.iter().map(|_| None).collect();
        for (places, found) in futures::future::join_all(asked).await {
            match found {
                Ok(found) => {
                    for (place, found) in places.into_iter().zip(found) {
                        answers[place] = found;
                    }
                }
                Err(error) if devices.len() == 1 || self.members.len() == 1 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(answers)
    }
}
