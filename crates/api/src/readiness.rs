//! The readiness check behind `/readyz`. It caches its result for `CACHED_FOR` and has its own database connection, so
//! that frequent calls take nothing from other requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use recado_domain::shared::StoreError;
use tokio::sync::Mutex;

/// How long a result is cached, success and failure alike.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// The number of pending migrations.
pub type PendingMigrations = Result<usize, Arc<StoreError>>;

/// Asks the database for the number of migrations that it does not have yet. Callers are of any runtime.
pub type PendingQuery = Box<dyn Fn() -> BoxFuture<'static, Result<usize, StoreError>> + Send + Sync>;

/// Single-flight: callers that wait share one query.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    query: PendingQuery,
    last: Mutex<Option<(Instant, PendingMigrations)>>,
}

impl Readiness {
    pub fn new(query: PendingQuery) -> Self {
        Self(Arc::new(Inner {
            query,
            last: Mutex::default(),
        }))
    }

    /// Returns the number of migrations that the database does not have yet.
    pub async fn pending_migrations(&self) -> PendingMigrations {
        let inner = &self.0;
        let mut last = inner.last.lock().await;
        if let Some((_, result)) = last.as_ref().filter(|(at, _)| at.elapsed() < CACHED_FOR) {
            return result.clone();
        }
        let result = (inner.query)().await.map_err(Arc::new);
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
