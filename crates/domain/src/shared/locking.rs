//! Optimistic locking: a row has a version that every change of it raises. A change that depends on what is stored reads
//! the row, decides, and writes only if the version is still the one that was read; otherwise it begins again.

use thiserror::Error;

use super::WriteOutcome;

/// How often a change is decided on before its caller is refused. Each attempt that fails lost to a change that was
/// written, so that this many changes of one row have to come in between.
pub const WRITE_ATTEMPTS: usize = 16;

/// Other changes of the same row came first, in every attempt. The caller may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("It is being changed by other requests; try again")]
pub struct Conflict;

/// How an update ended that was guarded by the version of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome<T> {
    /// Written.
    Done(T),
    /// The row has another version by now: nothing was written.
    Stale,
    /// No such row.
    Missing,
}

impl<T> UpdateOutcome<T> {
    /// None for an update that has to be decided on again, as [`retry_on_conflict`] takes it.
    pub fn or_missing<E>(self, missing: E) -> Result<Option<T>, E> {
        match self {
            Self::Done(value) => Ok(Some(value)),
            Self::Stale => Ok(None),
            Self::Missing => Err(missing),
        }
    }
}

impl<S> WriteOutcome<S> {
    /// None for a write that has to be decided on again, as [`retry_on_conflict`] takes it.
    pub fn or_missing<E>(self, missing: E) -> Result<Option<()>, E> {
        match self {
            Self::Done => Ok(Some(())),
            Self::Stale(_) => Ok(None),
            Self::Missing => Err(missing),
        }
    }
}

/// Runs `attempt`, which reads, decides and writes, until its write meets the row as it was read. `attempt` MUST read
/// anew each time, and returns none when another change came in between.
pub async fn retry_on_conflict<T, E: From<Conflict>>(
    attempts: usize,
    attempt: impl AsyncFn() -> Result<Option<T>, E>,
) -> Result<T, E> {
    for _ in 0..attempts {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
    }
    Err(Conflict.into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Loses the first `lost` attempts; the result, and how many attempts there were.
    async fn after_losing(lost: usize, attempts: usize) -> (Result<usize, Conflict>, usize) {
        let attempt_count = Cell::new(0);
        let attempt = async || {
            attempt_count.set(attempt_count.get() + 1);
            Ok((attempt_count.get() > lost).then_some(attempt_count.get()))
        };
        let result = retry_on_conflict(attempts, attempt).await;
        (result, attempt_count.get())
    }

    #[tokio::test]
    async fn stale_write_is_retried_until_attempts_run_out() {
        assert_eq!(after_losing(0, 3).await, (Ok(1), 1));
        assert_eq!(after_losing(2, 3).await, (Ok(3), 3));
        assert_eq!(after_losing(3, 3).await, (Err(Conflict), 3));
    }

    #[tokio::test]
    async fn error_ends_the_attempts() {
        #[derive(Debug, PartialEq)]
        enum Refused {
            NotFound,
            Conflict,
        }
        impl From<Conflict> for Refused {
            fn from(Conflict: Conflict) -> Self {
                Self::Conflict
            }
        }
        for (outcome, expected) in [
            (UpdateOutcome::Done(7), Ok(7)),
            (UpdateOutcome::Missing, Err(Refused::NotFound)),
            (UpdateOutcome::Stale, Err(Refused::Conflict)),
        ] {
            let result = retry_on_conflict(2, async || outcome.or_missing(Refused::NotFound)).await;
            assert_eq!(result, expected);
        }
    }
}
