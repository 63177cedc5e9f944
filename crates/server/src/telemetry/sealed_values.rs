//! Counts the sealed values under the current key and under earlier ones, in the background.
//!
//! A count reads whole tables. So it has a connection of its own, and the pause after it is `PAUSE_FACTOR` times its
//! duration: however large the tables are, counting takes at most five percent of the time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use recado_postgres::{OwnerPool, PgSealedValues, PoolConfig};

const MIN_PAUSE: Duration = Duration::from_secs(5);
const PAUSE_FACTOR: u32 = 19;

/// The time that the count of one column may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of the last count.
#[derive(Debug, Default)]
pub(super) struct SealedValues(Mutex<Option<(i64, i64)>>);

impl SealedValues {
    /// The values under the current key, and those under earlier ones. None: the last count failed, or none is done.
    pub(super) fn latest(&self) -> Option<(i64, i64)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts again and again, until the task is aborted.
    pub(super) async fn count_forever(&self, config: PoolConfig, marker: &[u8]) {
        let config = PoolConfig {
            statement_timeout: STATEMENT_TIMEOUT,
            ..config
        };
        // The listener has reported an invalid URL.
        let Ok(pool) = OwnerPool::new(&config) else {
            return;
        };
        let values = PgSealedValues::new(pool);
        // The first count also opens the connection, so its duration says little.
        let mut is_connected = false;
        loop {
            let began = Instant::now();
            let counts = values.counts(marker).await;
            let sums = counts.map(|counts| {
                let current = counts.iter().map(|count| count.current).sum();
                (current, counts.iter().map(|count| count.earlier).sum())
            });
            if let Err(error) = &sums {
                tracing::debug!(cause = ?error, "the sealed values cannot be counted");
            }
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sums.ok();
            let pause = if is_connected {
                pause_after(began.elapsed())
            } else {
                MIN_PAUSE
            };
            tokio::time::sleep(pause).await;
            is_connected = true;
        }
    }
}

fn pause_after(count: Duration) -> Duration {
    count.saturating_mul(PAUSE_FACTOR).max(MIN_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_takes_at_most_five_percent_of_the_time() {
        assert_eq!(pause_after(Duration::from_millis(5)), MIN_PAUSE);
        assert_eq!(pause_after(Duration::from_secs(2)), Duration::from_secs(38));
    }
}
