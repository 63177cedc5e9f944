//! Runs whose number is not verified: they wait while WhatsApp is being asked, and pause if the number failed.

use time::{Duration, OffsetDateTime};

use super::dispatch::{Dispatcher, RunEnd};
use super::{QueuedRun, RunInputs};
use crate::shared::StoreError;
use crate::whatsapp::StoredProfile;
use crate::whatsapp::verification::VerificationState;

/// How long a run waits for the verification of its number before it is paused.
const LONGEST_WAIT: Duration = Duration::minutes(10);

/// How soon a waiting run reads the state of its number again.
const WAIT: Duration = Duration::seconds(5);

/// What a run may do with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NumberState {
    MaySend,
    Waits,
    /// The reason for the pause.
    Paused(String),
}

impl NumberState {
    fn of(stored: &StoredProfile, now: OffsetDateTime) -> Self {
        match stored.profile.verification.state {
            VerificationState::Verified => Self::MaySend,
            VerificationState::Failed => {
                let failed = stored.profile.verification.failed_check();
                let check = failed.map_or("verification", |check| check.name.as_str());
                Self::Paused(format!("the WhatsApp number failed its check: {check}"))
            }
            VerificationState::Pending => {
                let since = stored.history.pending_since.unwrap_or(now);
                match now - since < LONGEST_WAIT {
                    true => Self::Waits,
                    false => Self::Paused("the WhatsApp number could not be verified for 10 minutes".to_owned()),
                }
            }
        }
    }
}

impl Dispatcher {
    /// The end of the run's execution if its number is not verified.
    pub(super) async fn check_number(&self, run: QueuedRun, inputs: &RunInputs) -> Result<Option<RunEnd>, StoreError> {
        let Some(stored) = inputs.profile.as_ref().filter(|stored| !stored.is_verified()) else {
            return Ok(None);
        };
        let Some(facts) = self.starts.facts(run.account_id, run.campaign_id).await? else {
            return Ok(Some(RunEnd::Gone));
        };
        match NumberState::of(stored, facts.now) {
            NumberState::MaySend => Ok(None),
            NumberState::Waits => {
                self.queue.postpone(run, self.worker.id, WAIT).await?;
                let reason = "the WhatsApp number is not verified yet".to_owned();
                Ok(Some(RunEnd::Postponed { delay: WAIT, reason }))
            }
            NumberState::Paused(reason) => {
                self.pause(run, inputs, &reason).await?;
                self.release_and_report(run).await.map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::whatsapp::verification::{Check, CheckName, CheckState};

    const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    fn stored(state: VerificationState, pending_since: OffsetDateTime) -> StoredProfile {
        let mut stored = StoredProfile::for_tests(Uuid::from_u128(4).into(), NOW);
        stored.profile.verification.state = state;
        stored.history.pending_since = Some(pending_since);
        stored
    }

    #[test]
    fn run_waits_ten_minutes_for_a_pending_number() {
        let at = |age: Duration| NumberState::of(&stored(VerificationState::Pending, NOW - age), NOW);
        assert_eq!(at(Duration::ZERO), NumberState::Waits);
        assert_eq!(at(Duration::seconds(599)), NumberState::Waits);
        assert!(matches!(at(Duration::minutes(10)), NumberState::Paused(reason) if reason.contains("10 minutes")));
    }

    #[test]
    fn run_sends_from_a_verified_number_and_names_the_failed_check() {
        let verified = stored(VerificationState::Verified, NOW);
        assert_eq!(NumberState::of(&verified, NOW), NumberState::MaySend);
        let mut failed = stored(VerificationState::Failed, NOW);
        failed.profile.verification.checks = vec![Check {
            name: CheckName::BusinessAccount,
            state: CheckState::Failed,
            found: None,
            remedy: None,
        }];
        let NumberState::Paused(reason) = NumberState::of(&failed, NOW) else {
            panic!()
        };
        assert!(reason.ends_with("business_account"), "{reason}");
    }
}
