//! The readiness check behind `/readyz`. It caches its result for `CACHED_FOR` and has its own database connection, so
//! that frequent calls take nothing from other requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use recado_domain::shared::StoreError;
use recado_postgres::OwnerPool;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// How long a result is cached, success and failure alike.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// The number of pending migrations.
pub type PendingMigrations = Result<usize, Arc<StoreError>>;

/// Single-flight: callers that wait share one query.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    /// The runtime to which the pool belongs.
    runtime: Handle,
    pool: OwnerPool,
    last: Mutex<Option<(Instant, PendingMigrations)>>,
}

impl Readiness {
    /// `pool` MUST belong to the current runtime.
    pub fn new(pool: OwnerPool) -> Self {
        Self(Arc::new(Inner {
            runtime: Handle::current(),
            pool,
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
        let pool = inner.pool.clone();
        let query = inner
            .runtime
            .spawn(async move { recado_postgres::pending(&pool).await });
        let result = match query.await {
            Ok(result) => result.map_err(Arc::new),
            Err(error) => Err(Arc::new(StoreError::Failed(Box::new(error)))),
        };
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
