//! Progress of work on several campaigns.

use crate::shared::StoreError;

/// Progress of work on several campaigns, of which one must not stop the others.
#[derive(Default)]
pub(super) struct BatchProgress {
    done: usize,
    first_error: Option<StoreError>,
}

impl BatchProgress {
    /// Counts one campaign. Returns an error only if the store is unavailable, since the others would fail too.
    pub(super) fn add(&mut self, outcome: Result<bool, StoreError>) -> Result<(), StoreError> {
        match outcome {
            Ok(done) => self.done += usize::from(done),
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            Err(error) => {
                self.first_error.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// The number of campaigns done, or the first error if none was done.
    pub(super) fn into_result(self) -> Result<usize, StoreError> {
        match self.first_error {
            Some(error) if self.done == 0 => Err(error),
            _ => Ok(self.done),
        }
    }
}
