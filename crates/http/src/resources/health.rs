//! Monitoring: liveness, readiness and metrics.

use axum::http::{HeaderValue, StatusCode};
use serde_json::json;

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

/// Answers that both stores are ready, with the status of backups, which does not affect readiness.
pub(crate) async fn ready(call: &mut Call) -> Answer {
    call.hub().ready().await.map_err(Problem::NotReady)?;
    let Some(backup) = &call.state.settings.backup else { return Ok(raw_json(StatusCode::OK, UP)) };
    let backup = *backup.borrow();
    let message = backup.is_failing.then_some("the last backup failed: the log says why");
    let backup = json!({"lastGoodAt": backup.last_good, "failing": backup.is_failing, "message": message});
    Ok(raw_json(StatusCode::OK, json!({"status": "up", "backup": backup}).to_string()))
}

/// Answers with the metrics.
pub(crate) async fn metrics(call: &mut Call) -> Answer {
    call.hub().measure().await;
    Ok(of_type(StatusCode::OK, METRICS, call.state.metrics.render()))
}
