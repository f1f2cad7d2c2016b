//! The port for operators, over several databases: all of them must answer.

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;
use isobar_quota::FairQueue;

use super::SpreadTelemetry;
use crate::error::Result;
use crate::telemetry::postgres::PostgresTelemetry;
use crate::telemetry::{Examined, LostDevices, Upkeep};

#[async_trait]
impl Upkeep for SpreadTelemetry {
    async fn examine(&self) -> Result<Examined> {
        let mut all = Examined::default();
        for (member, examined) in self.each(PostgresTelemetry::examine).await? {
            all.add(member, examined);
        }
        Ok(all)
    }

    async fn greatest_device(&self) -> Result<DeviceKey> {
        let greatest = self.each(PostgresTelemetry::greatest_device).await?;
        Ok(greatest.into_iter().map(|(_, device)| device).max().unwrap_or(DeviceKey(0)))
    }

    async fn devices_lost(&self) -> Result<Vec<LostDevices>> {
        let mut all: Vec<LostDevices> = Vec::new();
        for (_, lost) in self.each(PostgresTelemetry::devices_lost).await? {
            let new: Vec<_> = lost.into_iter().filter(|lost| !all.contains(lost)).collect();
            all.extend(new);
        }
        Ok(all)
    }

    async fn note_lost_devices(&self, devices: LostDevices) -> Result<()> {
        self.each(|store| store.note_lost_devices(devices)).await.map(drop)
    }

    async fn forget_lost_devices(&self, found: Vec<LostDevices>) -> Result<()> {
        self.each(|store| store.forget_lost_devices(found.clone())).await.map(drop)
    }

    fn scans(&self) -> &FairQueue {
        &self.parts.scans
    }
}

impl SpreadTelemetry {
    /// Asks every database; returns host, port and name of each with its answer.
    async fn each<'a, T, F>(&'a self, ask: impl Fn(&'a PostgresTelemetry) -> F) -> Result<Vec<(&'a str, T)>>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let (answers, outcome) = self.ask_all(ask).await;
        outcome?;
        Ok(answers.into_iter().map(|(member, answer)| (&**member.name(), answer)).collect())
    }
}
