//! Stores which telemetry stores belong to the registry. The rows contain no tenant's data, and so need no permit.

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Row, Sql, all, one, run};
use crate::telemetry::{ForeignStore, KnownStores, NamedStore, NotedStore};

const NOTED: &str = "SELECT number, identity, place FROM telemetry_stores ORDER BY number";

impl Registry {
    /// Returns what the registry knows of its telemetry stores. One of an earlier version has noted none.
    pub async fn known_stores(&self) -> Result<KnownStores> {
        let used = self.device_databases().await?;
        let (taken, known) = self.steps().await?;
        let rows = if taken < known { Vec::new() } else { all(&self.db.read, Sql::new(NOTED)).await? };
        Ok(KnownStores { used, noted: rows.iter().map(noted).collect::<Result<_>>()? })
    }

    /// Notes the stores that are served from now on.
    ///
    /// # Errors
    /// Another store was noted with the number of one of them, and nothing is.
    pub async fn telemetry_stores_note(&self, stores: &[NotedStore]) -> Result<()> {
        let tx = self.db.begin().await?;
        for store in stores {
            let number = u64::from(store.number);
            let note = Sql::new(
                "INSERT INTO telemetry_stores (number, identity, place) VALUES (?, ?, ?) ON CONFLICT (number) DO UPDATE \
                 SET place = excluded.place WHERE telemetry_stores.identity = excluded.identity",
            );
            if run(&tx, note.bind(number).bind(store.identity.as_str()).bind(store.place.as_str())).await? == 0 {
                let query = Sql::new("SELECT number, identity, place FROM telemetry_stores WHERE number = ?");
                let row = one(&tx, query.bind(number)).await?;
                let expected = noted(&row.ok_or_else(|| StoreError::Damaged("a store has no row".to_owned()))?)?;
                let (identity, number) = (Some(store.identity.clone()), Some(store.number));
                let found = NamedStore { place: store.place.clone(), identity, number }.description();
                return Err(StoreError::unavailable(ForeignStore { expected, found }));
            }
        }
        tx.commit().await
    }

    /// Forgets the telemetry stores: those that are served next are noted.
    pub async fn telemetry_stores_forget(&self) -> Result<()> {
        self.db.write.run(Sql::new("DELETE FROM telemetry_stores")).await.map(drop)
    }
}

fn noted(row: &Row) -> Result<NotedStore> {
    let number = u16::try_from(row.count("number")?).unwrap_or(u16::MAX);
    Ok(NotedStore { number, identity: row.text("identity")?, place: row.text("place")? })
}
