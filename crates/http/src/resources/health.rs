//! Monitoring: liveness, readiness and metrics.

use axum::http::{HeaderValue, StatusCode};
use isobar_hub::DatabaseState;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::request::Call;
use crate::response::{Answer, of_type, raw_json};

const UP: &[u8] = br#"{"status":"up"}"#;
/// Text format of Prometheus.
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers that the process is alive.
pub(crate) async fn live(_call: &mut Call) -> Answer {
    Ok(raw_json(StatusCode::OK, UP))
}

/// Answers that the databases are ready and names them, with warnings and the status of backups, which do not affect
/// readiness.
pub(crate) async fn ready(call: &mut Call) -> Answer {
    let databases = call.hub().ready().await.map_err(Problem::NotReady)?;
    let mut answer = json!({"status": "up", "databases": databases.iter().map(state).collect::<Vec<_>>()});
    let warnings = call.hub().warnings();
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into_iter().map(|it| json!({"name": it.field, "message": it.message})).collect();
    }
    if let Some(backup) = &call.state.settings.backup {
        let backup = *backup.borrow();
        let message = backup.is_failing.then_some("the last backup failed: the log says why");
        answer["backup"] = json!({"lastGoodAt": backup.last_good, "failing": backup.is_failing, "message": message});
    }
    Ok(raw_json(StatusCode::OK, answer.to_string()))
}

/// Describes the state of a database.
fn state(database: &DatabaseState) -> Value {
    let (status, message) = match &database.fault {
        None => ("up", None),
        Some(fault) => ("down", Some(&fault.message)),
    };
    json!({"name": database.name, "status": status, "message": message})
}

/// Answers with the metrics.
pub(crate) async fn metrics(call: &mut Call) -> Answer {
    call.hub().measure().await;
    Ok(of_type(StatusCode::OK, METRICS, call.state.metrics.render()))
}
