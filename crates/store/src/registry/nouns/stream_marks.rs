//! Stores marks, on PostgreSQL alone. No row tells a tenant's data, and no permit is needed.

use std::time::Duration;

use async_trait::async_trait;
use isobar_model::ids::DATABASES_MAX;
use isobar_model::time::Timestamp;
use serde_json::json;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Column, Row, Sql, all, one, run};
use crate::telemetry::postgres::EventPlace;
use crate::telemetry::{StreamMark, StreamMarks};

/// The database's time, in milliseconds.
const MARKED_NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

#[async_trait]
impl StreamMarks for Registry {
    async fn mark_at(&self, number: u64) -> Result<StreamMark> {
        let query = Sql::new(format!(
            "SELECT coalesce((SELECT max(number) FROM stream_marks WHERE number <= ?), 0) AS mark, \
                p.database, p.xact, p.item, p.near \
             FROM (VALUES (1)) AS always LEFT JOIN \
                (generate_series(0, {DATABASES_MAX} - 1) AS d(number) CROSS JOIN LATERAL \
                (SELECT * FROM stream_places WHERE database = d.number AND mark <= ? ORDER BY mark DESC LIMIT 1) AS p) \
             ON true"
        ));
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let rows = all(&self.db.read, query.bind(number).bind(number)).await?;
        let mut mark = StreamMark::default();
        for row in &rows {
            mark.number = row.count("mark")?;
            mark.places.extend(place(row)?);
        }
        Ok(mark)
    }

    async fn marks_after(&self, number: u64, limit: u32) -> Result<Vec<StreamMark>> {
        let query = Sql::new(
            "SELECT m.number AS mark, p.database, p.xact, p.item, p.near \
             FROM (SELECT number FROM stream_marks WHERE number > ? ORDER BY number LIMIT ?) AS m \
             LEFT JOIN stream_places p ON p.mark = m.number AND p.database < ? ORDER BY m.number",
        );
        let rows = all(&self.db.read, query.bind(number).bind(u64::from(limit)).bind(DATABASES_MAX as u64)).await?;
        let mut marks: Vec<StreamMark> = Vec::new();
        for row in &rows {
            let number = row.count("mark")?;
            if marks.last().is_none_or(|mark| mark.number != number) {
                marks.push(StreamMark { number, ..StreamMark::default() });
            }
            if let Some(mark) = marks.last_mut() {
                mark.places.extend(place(row)?);
            }
        }
        Ok(marks)
    }

    async fn marks_of(&self, places: &[(u16, EventPlace)]) -> Result<Vec<Option<u64>>> {
        let columns = ["index", "database", "xact", "item"].map(Column::Number);
        let rows = places
            .iter()
            .enumerate()
            .map(|(index, (database, place))| json!([index, database, place.transaction, place.item]));
        let query = Sql::new(
            "SELECT w.index, (SELECT p.mark FROM stream_places p WHERE p.database = w.database \
                AND (p.xact, p.item) >= (w.xact, w.item) ORDER BY p.xact, p.item, p.mark LIMIT 1) AS mark FROM ",
        );
        let query = query.relation(self.db.dialect, &columns, rows).text(" AS w");
        let mut marks = vec![None; places.len()];
        for row in all(&self.db.read, query).await? {
            let index = usize::try_from(row.count("index")?).unwrap_or(usize::MAX);
            if let Some(mark) = marks.get_mut(index) {
                *mark = row.number_if("mark")?.map(i64::unsigned_abs);
            }
        }
        Ok(marks)
    }

    async fn mark_before(&self, at: Timestamp) -> Result<u64> {
        let query = Sql::new(format!(
            "SELECT coalesce(min(p.mark) - 1, (SELECT max(number) FROM stream_marks), 0) AS mark \
             FROM generate_series(0, {DATABASES_MAX} - 1) AS d(number) CROSS JOIN LATERAL \
                (SELECT mark FROM stream_places WHERE database = d.number AND near >= ? ORDER BY near, mark LIMIT 1) AS p"
        ));
        one(&self.db.read, query.bind(at)).await?.map_or(Ok(0), |row| row.count("mark"))
    }

    async fn mark_add(&self, mark: &StreamMark) -> Result<bool> {
        let tx = self.db.begin().await?;
        // Times of marks increase with their numbers, whatever the clock does.
        let add = Sql::new(format!(
            "INSERT INTO stream_marks (number, made_at) SELECT CAST(? AS BIGINT), \
             greatest({MARKED_NOW}, (SELECT max(made_at) FROM stream_marks)) ON CONFLICT DO NOTHING"
        ));
        if run(&tx, add.bind(mark.number)).await? == 0 {
            return Ok(false);
        }
        if !mark.places.is_empty() {
            let places = Sql::new("INSERT INTO stream_places (database, mark, xact, item, near)");
            let places = mark.places.iter().fold(places.values(mark.places.len(), 5), |places, (database, place)| {
                let places = places.bind(u64::from(*database)).bind(mark.number).bind(place.transaction);
                places.bind(i64::from(place.item)).bind(place.at)
            });
            run(&tx, places).await?;
        }
        tx.commit().await.map(|()| true)
    }

    async fn marks_forget(&self, kept: Duration) -> Result<()> {
        let last = Sql::new(format!(
            "SELECT number AS mark FROM stream_marks WHERE made_at < {MARKED_NOW} - CAST(? AS BIGINT) \
             ORDER BY made_at DESC, number DESC LIMIT 1"
        ));
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        let Some(last) = one(&self.db.read, last.bind(kept)).await? else { return Ok(()) };
        let last = last.count("mark")?;
        let tx = self.db.begin().await?;
        run(&tx, Sql::new("DELETE FROM stream_marks WHERE number < ?").bind(last)).await?;
        // The newest place of each database up to there is that of the marks that stay.
        let places = Sql::new(
            "DELETE FROM stream_places p WHERE mark < ? AND EXISTS (SELECT FROM stream_places n \
             WHERE n.database = p.database AND n.mark > p.mark AND n.mark <= ?)",
        );
        run(&tx, places.bind(last).bind(last)).await?;
        tx.commit().await
    }
}

/// Reads the place of a database, if the row has one.
fn place(row: &Row) -> Result<Option<(u16, EventPlace)>> {
    let Some(database) = row.number_if("database")? else { return Ok(None) };
    let database = u16::try_from(database)
        .map_err(|_| StoreError::Damaged(format!("a mark has a place in a database with the number {database}")))?;
    let item = i32::try_from(row.number("item")?).unwrap_or(i32::MAX);
    Ok(Some((database, EventPlace { transaction: row.number("xact")?, item, at: row.time("near")? })))
}
