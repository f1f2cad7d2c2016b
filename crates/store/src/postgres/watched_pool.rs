//! Connections to a database that may be away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use parking_lot::Mutex;
use sqlx::postgres::PgPool;

use super::away::AwayDatabase;
use super::place;
use super::watching::DatabaseWatch;

/// Time in which connections have to close.
const CONNECTIONS_CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// Connections to a database that may be away. When it is back, those from before are left behind: what waits there for a
/// server that is gone, the driver's own questions among it, waits until TCP gives up.
#[derive(Debug)]
pub(crate) struct WatchedPool {
    /// The pool in use, and the moment from which it is.
    current: Mutex<(PgPool, Instant)>,
    watch: Arc<DatabaseWatch>,
}

impl WatchedPool {
    /// Watches connections that were opened just now.
    pub fn new(pool: PgPool, watch: Arc<DatabaseWatch>) -> Self {
        Self { current: Mutex::new((pool, Clock::System.instant())), watch }
    }

    /// Returns the connections that are in use now.
    pub fn get(&self) -> PgPool {
        let mut current = self.current.lock();
        let (pool, opened) = &mut *current;
        if self.away().is_back_since(*opened) {
            *opened = Clock::System.instant();
            *pool = pool.options().clone().connect_lazy_with(pool.connect_options().as_ref().clone());
        }
        pool.clone()
    }

    /// Closes the connections that are in use now, and then watches the database no more.
    pub async fn close(&self) {
        let pool = self.get();
        // A silent server keeps those that wait for an answer of it; it notices when the process ends.
        if Clock::System.timeout(CONNECTIONS_CLOSED_WITHIN, pool.close()).await.is_err() {
            let database = place(&pool.connect_options());
            tracing::warn!(%database, "connections do not close in time, they end with the process");
        }
        self.watch.end();
    }

    /// Tells if the database is away.
    pub fn away(&self) -> &AwayDatabase {
        self.watch.away()
    }
}
