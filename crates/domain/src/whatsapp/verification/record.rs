//! The stored verification of a profile, and how finished checks change it.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Check, CheckName, Verification, VerificationState};
use crate::shared::ProfileId;

/// How long two checks of a verified profile that fail in the same way must lie apart before it fails.
pub const CONFIRM_AFTER: Duration = Duration::minutes(10);

/// How long the checks of a failed profile are repeated.
pub const FAILED_FOR: Duration = Duration::days(30);

/// When a pending profile is checked, from the time at which it became pending. After the last one: hourly.
const PENDING_CHECKS: [Duration; 3] = [Duration::seconds(30), Duration::minutes(2), Duration::minutes(10)];

const DAILY: Duration = Duration::hours(24);
const HOURLY: Duration = Duration::hours(1);

/// The largest deviation from a daily check: 10 %, so that profiles that were made together are not checked together.
const DAILY_SPREAD: Duration = Duration::minutes(144);

/// A failure of a verified profile that a second check has not confirmed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspectedFailure {
    pub check: CheckName,
    pub since: OffsetDateTime,
}

/// What the next decision needs and the API does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerificationHistory {
    /// Since when the profile is pending. None in any other state.
    pub pending_since: Option<OffsetDateTime>,
    /// Since when the profile is failed. None in any other state.
    pub failed_since: Option<OffsetDateTime>,
    pub suspected: Option<SuspectedFailure>,
    /// Inbound messages of the number that came since then are held for the profile. A verified profile keeps it until
    /// the held messages were given to it.
    pub held_since: Option<OffsetDateTime>,
}

/// The verification of a profile and its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRecord {
    pub verification: Verification,
    pub history: VerificationHistory,
}

impl VerificationRecord {
    /// The record of a profile that was made now.
    pub fn new(now: OffsetDateTime) -> Self {
        let history = VerificationHistory {
            pending_since: Some(now),
            held_since: Some(now),
            ..VerificationHistory::default()
        };
        let verification = Verification {
            state: VerificationState::Pending,
            checked_at: None,
            next_check_at: Some(next_pending_check(now, now)),
            checks: vec![],
        };
        Self { verification, history }
    }

    /// The record of a profile whose checks passed now and that waits for no held messages.
    pub fn verified(now: OffsetDateTime) -> Self {
        let checks = CheckName::ALL.iter().copied().map(Check::passed).collect();
        let mut record = Self::new(now).after(checks, ProfileId(Uuid::nil()), now);
        record.history.held_since = None;
        record
    }

    /// The record after the profile's ids, token or PIN were entered again. `is_other_number`: the phone number id
    /// changed, so nothing that was held before is for the profile.
    #[must_use]
    pub fn restarted(&self, is_other_number: bool, now: OffsetDateTime) -> Self {
        let mut restarted = Self::new(now);
        if !is_other_number {
            restarted.history.held_since = self.history.held_since.or(Some(now));
        }
        restarted
    }

    /// The record after these checks of the profile. A pending profile takes the state that follows from the checks. A
    /// verified profile fails at once if the number is not its own, and otherwise when a second check confirms the
    /// failure. WhatsApp's outages change neither a verified nor a failed profile.
    #[must_use]
    pub fn after(&self, checks: Vec<Check>, profile: ProfileId, now: OffsetDateTime) -> Self {
        let outcome = VerificationState::of(&checks);
        let suspected = self.suspected_after(&checks, outcome, now);
        let state = self.state_after(&checks, outcome, suspected, now);
        let is_kept = outcome == VerificationState::Pending && state != VerificationState::Pending;
        let since = |wanted: VerificationState, earlier: Option<OffsetDateTime>| {
            (state == wanted).then(|| earlier.unwrap_or(now))
        };
        let history = VerificationHistory {
            pending_since: since(VerificationState::Pending, self.history.pending_since),
            failed_since: since(VerificationState::Failed, self.history.failed_since),
            suspected: suspected.filter(|_| state == VerificationState::Verified),
            held_since: match state {
                VerificationState::Verified => self.history.held_since,
                VerificationState::Pending | VerificationState::Failed => self.history.held_since.or(Some(now)),
            },
        };
        let next_check_at = history.next_check(state, outcome, profile, now);
        let verification = Verification {
            state,
            checked_at: match outcome {
                VerificationState::Pending => self.verification.checked_at,
                VerificationState::Verified | VerificationState::Failed => Some(now),
            },
            next_check_at,
            checks: if is_kept {
                self.verification.checks.clone()
            } else {
                checks
            },
        };
        Self { verification, history }
    }

    fn state_after(
        &self,
        checks: &[Check],
        outcome: VerificationState,
        suspected: Option<SuspectedFailure>,
        now: OffsetDateTime,
    ) -> VerificationState {
        use VerificationState::{Failed, Pending, Verified};
        match (self.verification.state, outcome) {
            (_, Verified) | (Verified, Pending) => Verified,
            (Pending, Pending) => Pending,
            (Failed, Pending) | (Pending | Failed, Failed) => Failed,
            (Verified, Failed) => {
                let disproved = failed(checks).any(CheckName::disproves);
                let confirmed = suspected.is_some_and(|suspected| now - suspected.since >= CONFIRM_AFTER);
                if disproved || confirmed { Failed } else { Verified }
            }
        }
    }

    /// The failure that a later check may confirm. An outage neither confirms nor clears it.
    fn suspected_after(
        &self,
        checks: &[Check],
        outcome: VerificationState,
        now: OffsetDateTime,
    ) -> Option<SuspectedFailure> {
        match outcome {
            VerificationState::Verified => None,
            VerificationState::Pending => self.history.suspected,
            VerificationState::Failed => {
                let same = |suspected: &SuspectedFailure| failed(checks).any(|check| check == suspected.check);
                let new = || {
                    failed(checks)
                        .next()
                        .map(|check| SuspectedFailure { check, since: now })
                };
                self.history.suspected.filter(same).or_else(new)
            }
        }
    }
}

impl VerificationHistory {
    fn next_check(
        &self,
        state: VerificationState,
        outcome: VerificationState,
        profile: ProfileId,
        now: OffsetDateTime,
    ) -> Option<OffsetDateTime> {
        let next = match (state, outcome) {
            (VerificationState::Pending, _) => return Some(next_pending_check(self.pending_since.unwrap_or(now), now)),
            (_, VerificationState::Pending) => now + HOURLY,
            (VerificationState::Verified, _) => match self.suspected {
                Some(suspected) => (suspected.since + CONFIRM_AFTER).max(now + PENDING_CHECKS[0]),
                None => next_daily_check(profile, now),
            },
            (VerificationState::Failed, _) => next_daily_check(profile, now),
        };
        let is_over = self.failed_since.is_some_and(|since| next - since > FAILED_FOR);
        (!is_over).then_some(next)
    }
}

fn failed(checks: &[Check]) -> impl Iterator<Item = CheckName> + '_ {
    let failed = checks.iter().filter(|check| check.state == super::CheckState::Failed);
    failed.map(|check| check.name)
}

/// The first check after `now` of a profile that is pending since `since`.
fn next_pending_check(since: OffsetDateTime, now: OffsetDateTime) -> OffsetDateTime {
    let first = PENDING_CHECKS.iter().map(|delay| since + *delay).find(|at| *at > now);
    first.unwrap_or(now + HOURLY)
}

/// A day later, 10 % earlier or later by the profile's id.
fn next_daily_check(profile: ProfileId, now: OffsetDateTime) -> OffsetDateTime {
    let spread = DAILY_SPREAD.whole_seconds();
    let steps = u128::try_from(2 * spread + 1).unwrap_or(1);
    let offset = i64::try_from(profile.0.as_u128() % steps).unwrap_or_default() - spread;
    now + DAILY + Duration::seconds(offset)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::CheckState;
    use super::VerificationState::{Failed, Pending, Verified};
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-26 12:00 UTC);
    const PROFILE: ProfileId = ProfileId(Uuid::from_u128(8640));

    fn check(name: CheckName, state: CheckState) -> Check {
        Check::with_remedy(name, state, "f", "r")
    }

    fn passed() -> Vec<Check> {
        CheckName::ALL.iter().copied().map(Check::passed).collect()
    }

    fn with(name: CheckName, state: CheckState) -> Vec<Check> {
        let replace = |old: Check| if old.name == name { check(name, state) } else { old };
        passed().into_iter().map(replace).collect()
    }

    fn outage() -> Vec<Check> {
        with(CheckName::Token, CheckState::Unknown)
    }

    fn minutes(minutes: i64) -> OffsetDateTime {
        NOW + Duration::minutes(minutes)
    }

    fn verified() -> VerificationRecord {
        VerificationRecord::new(NOW).after(passed(), PROFILE, NOW)
    }

    fn failed_record() -> VerificationRecord {
        VerificationRecord::new(NOW).after(with(CheckName::Token, CheckState::Failed), PROFILE, NOW)
    }

    #[test]
    fn every_state_follows_from_every_outcome() {
        let pending = VerificationRecord::new(NOW);
        let token = || with(CheckName::Token, CheckState::Failed);
        let table = [
            (&pending, passed(), Verified),
            (&pending, outage(), Pending),
            (&pending, token(), Failed),
            (&verified(), passed(), Verified),
            (&verified(), outage(), Verified),
            (&verified(), token(), Verified),
            (&verified(), with(CheckName::Number, CheckState::Failed), Failed),
            (
                &verified(),
                with(CheckName::BusinessAccount, CheckState::Failed),
                Failed,
            ),
            (&verified(), with(CheckName::Quality, CheckState::Warning), Verified),
            (&failed_record(), passed(), Verified),
            (&failed_record(), outage(), Failed),
            (&failed_record(), token(), Failed),
        ];
        for (before, checks, expected) in table {
            let now = before.after(checks.clone(), PROFILE, minutes(1));
            assert_eq!(now.verification.state, expected, "{before:?} {checks:?}");
            assert_eq!(now.history.pending_since.is_some(), expected == Pending);
            assert_eq!(now.history.failed_since.is_some(), expected == Failed);
        }
    }

    #[test]
    fn second_failure_of_the_same_check_after_ten_minutes_counts() {
        use CheckName::{Subscription, Token};
        let first = verified().after(with(Token, CheckState::Failed), PROFILE, minutes(0));
        assert_eq!(first.verification.state, Verified);
        assert_eq!(first.verification.next_check_at, Some(minutes(10)));
        let second = |at: i64, checks| first.after(checks, PROFILE, minutes(at)).verification.state;
        assert_eq!(second(9, with(Token, CheckState::Failed)), Verified);
        assert_eq!(second(10, with(Token, CheckState::Failed)), Failed);
        assert_eq!(second(10, with(Subscription, CheckState::Failed)), Verified);
        let later = |between: Vec<Check>| {
            let between = first.after(between, PROFILE, minutes(5));
            between
                .after(with(Token, CheckState::Failed), PROFILE, minutes(11))
                .verification
                .state
        };
        assert_eq!(later(with(Token, CheckState::Failed)), Failed);
        assert_eq!(later(outage()), Failed);
        assert_eq!(later(passed()), Verified);
        assert_eq!(later(with(Subscription, CheckState::Failed)), Verified);
    }

    #[test]
    fn outage_keeps_checks_and_time_of_a_decided_profile() {
        let kept = verified().after(outage(), PROFILE, minutes(60));
        assert_eq!(kept.verification.checks, passed());
        assert_eq!(kept.verification.checked_at, Some(NOW));
        assert_eq!(kept.verification.next_check_at, Some(minutes(120)));
        let pending = VerificationRecord::new(NOW).after(outage(), PROFILE, minutes(1));
        assert_eq!(
            (pending.verification.checks, pending.verification.checked_at),
            (outage(), None)
        );
    }

    #[test]
    fn pending_profile_is_checked_after_30_s_2_min_10_min_then_hourly() {
        let mut record = VerificationRecord::new(NOW);
        let mut delays = Vec::new();
        for _ in 0..5 {
            let at = record.verification.next_check_at.unwrap();
            delays.push((at - NOW).whole_seconds());
            record = record.after(outage(), PROFILE, at);
        }
        assert_eq!(delays, [30, 120, 600, 4200, 7800]);
    }

    #[test]
    fn decided_profiles_are_checked_daily_within_ten_percent() {
        for id in [0, 8640, 17_280, u128::MAX] {
            let profile = ProfileId(Uuid::from_u128(id));
            for checks in [passed(), with(CheckName::Token, CheckState::Failed)] {
                let record = VerificationRecord::new(NOW).after(checks, profile, NOW);
                let delay = record.verification.next_check_at.unwrap() - NOW;
                assert!((21.6..=26.4).contains(&(delay.as_seconds_f64() / 3600.0)), "{delay}");
            }
        }
        assert_eq!(verified().verification.next_check_at, Some(NOW + DAILY));
    }

    #[test]
    fn failed_profile_is_checked_for_thirty_days() {
        let mut record = failed_record();
        let mut last = NOW;
        while let Some(at) = record.verification.next_check_at {
            last = at;
            record = record.after(with(CheckName::Token, CheckState::Failed), PROFILE, at);
        }
        assert_eq!(last, NOW + FAILED_FOR);
        assert_eq!(record.history.failed_since, Some(NOW));
        let entered_again = record.restarted(false, last);
        assert!(entered_again.verification.next_check_at.is_some());
    }

    #[test]
    fn messages_are_held_from_the_moment_a_profile_is_not_verified() {
        assert_eq!(failed_record().history.held_since, Some(NOW));
        // Verified: what was held has still to be given to it.
        assert_eq!(verified().history.held_since, Some(NOW));
        let mut given = verified();
        given.history.held_since = None;
        assert_eq!(given.after(passed(), PROFILE, minutes(1)).history.held_since, None);
        let lost = given.after(with(CheckName::Number, CheckState::Failed), PROFILE, minutes(2));
        assert_eq!(lost.history.held_since, Some(minutes(2)));
        assert_eq!(given.restarted(false, minutes(3)).history.held_since, Some(minutes(3)));
        assert_eq!(lost.restarted(false, minutes(4)).history.held_since, Some(minutes(2)));
        assert_eq!(lost.restarted(true, minutes(4)).history.held_since, Some(minutes(4)));
    }
}
