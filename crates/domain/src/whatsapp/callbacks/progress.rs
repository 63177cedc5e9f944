//! How far the application of one callback has come.

use crate::shared::StoreError;

/// After so many errors the rest of a callback is left to the next attempt: each may have taken a time-out.
const MAX_ERRORS: usize = 8;

/// What was applied of a callback, and what was not.
pub(super) struct Progress {
    /// Whether all that was applied found its subject.
    pub(super) complete: bool,
    /// Whether the callback failed before. Then it goes on behind an error of a database that did not answer, too: that
    /// may be the item's fault.
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

    /// Takes in what became of an item. Its error ends the attempt where the others would fare no better.
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

    /// Whether all found its subject; the first error where there was one.
    pub(super) fn end(self) -> Result<bool, StoreError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.complete),
        }
    }

    fn continues_after(&self, error: &StoreError) -> bool {
        self.failed_before || !matches!(error, StoreError::Unavailable(_))
    }
}
