//! Exponential backoff of a run that waits for an unavailable external system.

use time::Duration;

use super::dispatch::{Dispatcher, RunEnd};
use super::{QueuedRun, RunInputs};
use crate::shared::StoreError;
use crate::whatsapp::MessageFileError;

const FIRST_DELAY: Duration = Duration::SECOND;
const LONGEST_DELAY: Duration = Duration::minutes(5);

/// The most consecutive delays. Together they exceed three hours: longer than an ordinary outage.
const MAX_DELAYS: u32 = 45;

/// The next delay of a run that was postponed `postponed` times in a row. None: `MAX_DELAYS` is reached.
pub(super) fn next_delay(postponed: u32) -> Option<Duration> {
    let delay = FIRST_DELAY.checked_mul(2_i32.saturating_pow(postponed));
    (postponed < MAX_DELAYS).then(|| delay.map_or(LONGEST_DELAY, |delay| delay.min(LONGEST_DELAY)))
}

impl Dispatcher {
    /// Exponential backoff: postpones a run whose files are temporarily unavailable. Pauses the run if a file is
    /// missing or rejected, or after the last delay.
    pub(super) async fn postpone_or_pause(
        &self,
        run: QueuedRun,
        inputs: &RunInputs,
        error: &MessageFileError,
    ) -> Result<RunEnd, StoreError> {
        let reason = error.to_string();
        let delay = match error.is_temporary() {
            true => next_delay(self.queue.postponements(run).await?),
            false => None,
        };
        let Some(delay) = delay else {
            self.pause(run, inputs, &reason).await?;
            return self.release_and_report(run).await;
        };
        self.queue.postpone(run, self.worker.id, delay).await?;
        Ok(RunEnd::Postponed { delay, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_delay_grows_to_five_minutes_and_ends_after_hours() {
        let delays: Vec<i64> = (0..).map_while(next_delay).map(Duration::whole_seconds).collect();
        assert_eq!(delays[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(delays.iter().max(), Some(&300));
        assert!(Duration::seconds(delays.iter().sum()) > Duration::hours(3));
        assert_eq!((next_delay(45), next_delay(u32::MAX)), (None, None));
    }
}
