//! A contact's consent to messages.

use time::{Duration, OffsetDateTime};

/// A contact's consent: the state machine of all writers. The latest change wins, in whatever order and however often
/// changes are reported. Of two changes in the same second, the opt-out wins. `opted_out_at` is the time of the
/// opt-out that was reported first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// When the contact opted out. None after an opt-in.
    pub opted_out_at: Option<OffsetDateTime>,
    /// When the consent last changed.
    pub changed_at: Option<OffsetDateTime>,
}

impl Consent {
    /// Applies an opt-out. A repeated opt-out does not change `opted_out_at`. An opt-out wins over an opt-in of the
    /// same time.
    #[must_use]
    pub fn with_opt_out(self, at: OffsetDateTime) -> Self {
        if self.last_change_at() > Some(at) {
            return self;
        }
        Self {
            opted_out_at: self.opted_out_at.or(Some(at)),
            changed_at: Some(at),
        }
    }

    /// Applies an opt-in.
    #[must_use]
    pub fn with_opt_in(self, at: OffsetDateTime) -> Self {
        if self.last_change_at() >= Some(at) {
            return self;
        }
        Self {
            opted_out_at: None,
            changed_at: Some(at),
        }
    }

    /// Applies a decision of the account by API, import or inbound webhook. It counts as now and as later than every
    /// recorded change, even if clocks disagree. The store does the same in SQL, with the database's clock.
    #[must_use]
    pub fn decided(self, opted_out: bool, now: OffsetDateTime) -> Self {
        let last_change_at = self.last_change_at();
        if opted_out {
            let at = last_change_at.map_or(now, |last_change_at| last_change_at.max(now));
            return Self {
                opted_out_at: self.opted_out_at.or(Some(at)),
                changed_at: Some(at),
            };
        }
        // WhatsApp's times are whole seconds. A recorded opt-out of this second is older; one that arrives later may
        // be newer.
        let second = now.replace_nanosecond(0).unwrap_or(now);
        let at = match last_change_at {
            Some(last_change_at) if self.opted_out_at.is_some() && last_change_at >= second => {
                now.max(last_change_at + Duration::MICROSECOND)
            }
            Some(last_change_at) => last_change_at.max(second),
            None => second,
        };
        Self {
            opted_out_at: None,
            changed_at: Some(at),
        }
    }

    fn last_change_at(self) -> Option<OffsetDateTime> {
        self.changed_at.max(self.opted_out_at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    const EPOCH: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn at(second: i64) -> OffsetDateTime {
        EPOCH + Duration::seconds(second)
    }

    /// A reported consent change: whether it is an opt-in, and its second.
    type ConsentChange = (bool, i64);

    fn reported(consent: Consent, (opted_in, second): ConsentChange) -> Consent {
        match opted_in {
            true => consent.with_opt_in(at(second)),
            false => consent.with_opt_out(at(second)),
        }
    }

    /// What is independent of the order of reports. `opted_out_at` itself depends on it.
    fn effective_state(consent: Consent) -> (bool, Option<OffsetDateTime>) {
        (consent.opted_out_at.is_some(), consent.changed_at)
    }

    #[test]
    fn decision_of_the_account_is_not_undone_by_older_events() {
        let now = at(10) + Duration::milliseconds(500);
        let out = Consent::default().with_opt_out(at(3));
        let back = out.decided(false, now);
        assert_eq!(back.opted_out_at, None);
        assert_eq!(back.with_opt_out(at(3)), back);
        assert_eq!(back.with_opt_out(at(9)), back);
        assert_eq!(back.with_opt_out(at(10)).opted_out_at, Some(at(10)), "it may be newer");
        // A recorded opt-out of the same second is older than the decision.
        let back = out.with_opt_out(at(10)).decided(false, now);
        assert_eq!((back.opted_out_at, back.with_opt_out(at(10))), (None, back));
        let out = Consent::default().with_opt_in(at(3)).decided(true, now);
        assert_eq!((out.opted_out_at, out.with_opt_in(at(10))), (Some(now), out));
        assert_eq!(out.with_opt_in(at(11)).opted_out_at, None);
        assert_eq!(
            out.decided(true, at(12)).opted_out_at,
            Some(now),
            "the first time counts"
        );
    }

    fn changes() -> impl Strategy<Value = Vec<ConsentChange>> {
        prop::collection::vec((any::<bool>(), 0_i64..6), 0..8)
    }

    proptest! {
        /// Whatever the order and number of reports, the latest consent change wins. In the same second the opt-out
        /// wins.
        #[test]
        fn latest_consent_change_wins(
            mut changes in prop::collection::vec((any::<bool>(), 0_i64..6), 1..8),
            seed in any::<prop::sample::Index>(),
        ) {
            let copied = changes[seed.index(changes.len())];
            changes.push(copied);
            let consent = changes.iter().copied().fold(Consent::default(), reported);
            let latest = |which: bool| {
                let changes = changes.iter().filter(|(opted_in, _)| *opted_in == which);
                changes.map(|(_, second)| *second).max()
            };
            let (opt_out, opt_in) = (latest(false), latest(true));
            let expected = (opt_out >= opt_in && opt_out.is_some(), opt_out.max(opt_in).map(at));
            prop_assert_eq!(effective_state(consent), expected, "{:?}", changes);
        }

        /// Events before and after a decision of the account may arrive in any order and any number of times.
        /// Decisions count in their own order, even if the account's clock is behind.
        #[test]
        fn consent_is_independent_of_event_order(
            rounds in prop::collection::vec((changes(), any::<bool>(), 0_i64..60), 1..4),
            last in changes(),
            reverse in any::<bool>(),
        ) {
            let run = |shuffled: bool| {
                let with_changes = |consent: Consent, changes: &[ConsentChange]| {
                    let mut changes = changes.to_vec();
                    if shuffled {
                        changes.sort_unstable();
                        changes.extend(changes.clone());
                    }
                    if shuffled && reverse {
                        changes.reverse();
                    }
                    changes.into_iter().fold(consent, reported)
                };
                let decided = rounds.iter().fold(Consent::default(), |consent, (changes, opted_out, tenths)| {
                    with_changes(consent, changes).decided(*opted_out, EPOCH + Duration::milliseconds(tenths * 100))
                });
                (decided, with_changes(decided, &last))
            };
            let (decided, end) = run(false);
            prop_assert_eq!(effective_state(end), effective_state(run(true).1));
            let (_, opted_out, _) = &rounds[rounds.len() - 1];
            prop_assert_eq!(decided.opted_out_at.is_some(), *opted_out, "a decision counts at once");
            // A repeated report of a change from before the decision does not undo it.
            let past: Vec<ConsentChange> = rounds.iter().flat_map(|(changes, ..)| changes.clone()).collect();
            let newest = past.iter().map(|(_, second)| at(*second)).max();
            if newest < decided.changed_at {
                prop_assert_eq!(past.iter().copied().fold(decided, reported), decided, "{:?}", past);
            }
        }
    }
}
