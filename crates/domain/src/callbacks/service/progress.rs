//! The progress of applying one callback.

use crate::shared::StoreError;

/// After so many errors the rest of the callback waits for the next attempt: each error may have taken a timeout.
const MAX_ERRORS: usize = 8;

/// What was applied of a callback, and the first error.
pub(super) struct Progress {
    /// Whether every change found the message or template that it concerns.
    pub(super) complete: bool,
    /// Whether the callback failed before. If so, processing continues even after `Unavailable`, because the item
    /// itself may cause that error.
    failed_before: bool,
    error: Option<StoreError>,
    errors: usize,
}

impl Progress {
    pub(super) fn new(failed_before: bool) -> Self {
        Self {
            complete: true,
            failed_before,
            error: None,
            errors: 0,
        }
    }

    /// Whether a failed batch of `items` is applied again one by one.
    pub(super) fn should_split<T>(&self, result: &Result<T, StoreError>, items: usize) -> bool {
        match result {
            Ok(_) => false,
            Err(error) => items > 1 && self.continues_after(error),
        }
    }

    /// Records an item's result. Returns the error if it ends the attempt, because the remaining items would fail too.
    pub(super) fn note<T>(&mut self, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.continues_after(&error) && self.errors + 1 < MAX_ERRORS => {
                self.errors += 1;
                if self.error.is_none() {
                    self.error = Some(error);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the first error, or whether every change found its message or template.
    pub(super) fn end(self) -> Result<bool, StoreError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.complete),
        }
    }

    fn continues_after(&self, error: &StoreError) -> bool {
        // A conflict concerns one item, not the whole store.
        self.failed_before || error.is_conflict() || !matches!(error, StoreError::Unavailable(_))
    }
}
