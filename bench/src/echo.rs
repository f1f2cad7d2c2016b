//! The baseline: what axum does when nothing is to be done.

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;

use crate::Failure;

/// Serves until it is killed; prints its address when it listens.
pub fn run(threads: usize) -> Result<(), Failure> {
    crate::process::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("The echo is ready: http://{}", listener.local_addr()?);
        axum::serve(listener, Router::new().route("/echo", post(echo))).await?;
        Ok(())
    })
}

async fn echo(body: Bytes) -> (StatusCode, Bytes) {
    (StatusCode::CREATED, body)
}
