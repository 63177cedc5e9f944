//! Whether the process may be given work, as `/readyz` answers it. The answer is remembered for `REMEMBERED_FOR`, and
//! the database is asked on a connection of its own: whoever calls it however often takes nothing from requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use recado_domain::shared::StoreError;
use recado_postgres::OwnerPool;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// How long an answer of the database counts, whatever it was.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// What the database said of its migrations: how many are pending, or why it did not say.
pub type Answer = Result<usize, Arc<StoreError>>;

/// Asks the database, once for all who wait (single-flight).
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    /// The runtime that the pool belongs to.
    runtime: Handle,
    pool: OwnerPool,
    last: Mutex<Option<(Instant, Answer)>>,
}

impl Readiness {
    /// Of the current runtime, whose pool it is.
    pub fn new(pool: OwnerPool) -> Self {
        Self(Arc::new(Inner {
            runtime: Handle::current(),
            pool,
            last: Mutex::default(),
        }))
    }

    /// How many migrations are pending.
    pub async fn pending_migrations(&self) -> Answer {
        let inner = &self.0;
        let mut last = inner.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(at, _)| at.elapsed() < REMEMBERED_FOR) {
            return answer.clone();
        }
        let pool = inner.pool.clone();
        let asked = inner
            .runtime
            .spawn(async move { recado_postgres::pending(&pool).await });
        let answer = match asked.await {
            Ok(answer) => answer.map_err(Arc::new),
            Err(error) => Err(Arc::new(StoreError::Failed(Box::new(error)))),
        };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
