//! Optimistic locking: every change of a row increments its version. A change that depends on the stored row reads it,
//! decides, and writes only if the version is unchanged. Otherwise it starts again.

use thiserror::Error;

use super::{StoreError, WriteOutcome};

/// How often a change is attempted before it fails with [`Conflict`]. Every lost attempt means that another change of
/// the row was committed.
pub const WRITE_ATTEMPTS: usize = 16;

/// Every attempt lost to a concurrent change of the same row. The caller may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("It is being changed by other requests; try again")]
pub struct Conflict;

/// How an update that the row's version guards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome<T> {
    Done(T),
    /// The row has another version. Nothing was written.
    Stale,
    /// The row does not exist.
    Missing,
}

impl<T> UpdateOutcome<T> {
    /// Returns `None` for a stale update, so that [`retry_on_conflict`] runs it again.
    pub fn or_missing<E>(self, missing: E) -> Result<Option<T>, E> {
        match self {
            Self::Done(value) => Ok(Some(value)),
            Self::Stale => Ok(None),
            Self::Missing => Err(missing),
        }
    }
}

impl<S> WriteOutcome<S> {
    /// Returns `None` for a stale write, so that [`retry_on_conflict`] runs it again.
    pub fn or_missing<E>(self, missing: E) -> Result<Option<()>, E> {
        match self {
            Self::Done => Ok(Some(())),
            Self::Stale(_) => Ok(None),
            Self::Missing => Err(missing),
        }
    }
}

/// A worker fails with the error and tries the whole step again later.
impl From<Conflict> for StoreError {
    fn from(conflict: Conflict) -> Self {
        Self::Unavailable(Box::new(conflict))
    }
}

impl StoreError {
    /// Whether it stands for a [`Conflict`].
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Unavailable(source) if source.is::<Conflict>())
    }
}

/// Runs `attempt`, which reads, decides and writes, until its guarded write succeeds. `attempt` MUST read the row again
/// after a stale write, which it reports as `None`.
///
/// The bound is not `AsyncFn`: the compiler cannot prove that the future of an async closure is `Send`, as the tasks of
/// workers must be.
pub async fn retry_on_conflict<T, E, F>(attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: From<Conflict>,
    F: Future<Output = Result<Option<T>, E>>,
{
    retry_up_to(WRITE_ATTEMPTS, attempt).await
}

/// [`retry_on_conflict`] for attempts that are too expensive to repeat [`WRITE_ATTEMPTS`] times.
pub async fn retry_up_to<T, E, F>(attempts: usize, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: From<Conflict>,
    F: Future<Output = Result<Option<T>, E>>,
{
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

    /// Loses the first `lost` attempts. Returns the result and the number of attempts.
    async fn after_losing(lost: usize) -> (Result<usize, Conflict>, usize) {
        let attempt_count = Cell::new(0);
        let attempt = async || {
            attempt_count.set(attempt_count.get() + 1);
            Ok((attempt_count.get() > lost).then_some(attempt_count.get()))
        };
        let result = retry_on_conflict(attempt).await;
        (result, attempt_count.get())
    }

    #[tokio::test]
    async fn stale_write_is_retried_until_attempts_run_out() {
        assert_eq!(after_losing(0).await, (Ok(1), 1));
        assert_eq!(
            after_losing(WRITE_ATTEMPTS - 1).await,
            (Ok(WRITE_ATTEMPTS), WRITE_ATTEMPTS)
        );
        assert_eq!(after_losing(WRITE_ATTEMPTS).await, (Err(Conflict), WRITE_ATTEMPTS));
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
            let result = retry_on_conflict(async || outcome.or_missing(Refused::NotFound)).await;
            assert_eq!(result, expected);
        }
    }
}
