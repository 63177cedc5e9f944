//! Failed sends: whether one may be tried again, and from when on. One table by WhatsApp's error code decides; the store
//! gets the same table as parameters of its statements.

use schemars::JsonSchema;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::timestamp;
use crate::whatsapp::STOPPED_MARKETING;

string_enum! {
    /// What trying a failed send again would come to.
    FailureClass {
        /// It may succeed at any time.
        Again = "again",
        /// It may succeed from `retry_after` on.
        Later = "later",
        /// It would fail again.
        Never = "never",
    }
}

string_enum! {
    /// Why a failed send is not tried again now.
    LeftOutReason {
        /// It would fail again.
        Never = "never",
        /// Its time has not come.
        Later = "later",
        /// Its code is not among those that were asked for.
        NotChosen = "not_chosen",
        /// The contact has opted out.
        OptedOut = "opted_out",
        /// The contact was deleted, or has no phone number.
        Unreachable = "unreachable",
    }
}

/// The code under which failures without a code are named.
pub const NO_CODE: i64 = 0;

/// What a code says of trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryRule {
    /// It is of no use.
    Never,
    /// Only once the contact opted in, later than the send failed.
    OptIn,
    /// Only while the contact has a phone number.
    Phone,
    /// After a wait from the failure on: the first time in a row that a send fails with the code, the second time, and
    /// each further time.
    Wait([Duration; 3]),
}

const AT_ONCE: Duration = Duration::ZERO;
const SOON: Duration = Duration::minutes(10);
const DAY: Duration = Duration::DAY;
const WEEK: Duration = Duration::WEEK;

/// The rules of all codes that have one. Every other failure may be tried again at any time.
pub const RETRY_RULES: [(i64, RetryRule); 17] = [
    (STOPPED_MARKETING, RetryRule::OptIn),
    (131_062, RetryRule::Phone),
    (131_021, RetryRule::Never),
    (130_472, RetryRule::Never),
    (131_047, RetryRule::Never),
    (131_049, RetryRule::Wait([DAY, Duration::days(2), WEEK])),
    (131_048, RetryRule::Wait([DAY; 3])),
    (131_064, RetryRule::Wait([DAY; 3])),
    (368, RetryRule::Wait([DAY; 3])),
    (131_031, RetryRule::Wait([DAY; 3])),
    (130_497, RetryRule::Wait([DAY; 3])),
    (131_026, RetryRule::Wait([AT_ONCE, AT_ONCE, WEEK])),
    (130_429, RetryRule::Wait([SOON; 3])),
    (131_056, RetryRule::Wait([SOON; 3])),
    (4, RetryRule::Wait([SOON; 3])),
    (80_007, RetryRule::Wait([SOON; 3])),
    (131_053, RetryRule::Wait([SOON; 3])),
];

/// A failed send, as far as its retry depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// WhatsApp's code, where it gave one.
    pub code: Option<i64>,
    /// How often in a row it failed with this code: at least once.
    pub times: u32,
    /// When it failed last.
    pub failed_at: OffsetDateTime,
    /// Whether the contact opted in since then, and is not opted out now.
    pub opted_in_since: bool,
    /// Whether the contact has a phone number.
    pub has_phone: bool,
}

impl Failure {
    /// The class, and for [`FailureClass::Later`] the time from which on it may be tried again.
    pub fn class(&self) -> (FailureClass, Option<OffsetDateTime>) {
        let rule = RETRY_RULES.iter().find(|(code, _)| Some(*code) == self.code);
        match rule.map(|(_, rule)| rule) {
            Some(RetryRule::Never) => (FailureClass::Never, None),
            Some(RetryRule::OptIn) if !self.opted_in_since => (FailureClass::Never, None),
            Some(RetryRule::Phone) if !self.has_phone => (FailureClass::Never, None),
            Some(RetryRule::Wait([first, second, further])) => {
                let wait = match self.times {
                    0 | 1 => first,
                    2 => second,
                    _ => further,
                };
                (FailureClass::Later, self.failed_at.checked_add(*wait))
            }
            None | Some(RetryRule::OptIn | RetryRule::Phone) => (FailureClass::Again, None),
        }
    }
}

/// Failed sends of one code that are not tried again, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Why they are left out.
    pub reason: LeftOutReason,
    /// WhatsApp's error code; 0 for failures without one.
    #[schemars(example = 131_049)]
    pub code: i64,
    /// How many they are.
    #[schemars(example = 3)]
    pub count: i64,
    /// When the first of them may be tried again, for `later`; else null.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub earliest: Option<OffsetDateTime>,
}

/// What a retry takes of a campaign's failed sends, and what it leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RetryReport {
    /// How many failed sends are tried again. With all counts of `left_out` they are the failed sends of before.
    #[schemars(example = 8)]
    pub tried: i64,
    /// The failed sends that are not tried again, by reason and code.
    pub left_out: Vec<LeftOut>,
}

#[cfg(test)]
mod tests {
    use super::super::service::tests::NOW;
    use super::*;

    fn class(code: Option<i64>, times: u32) -> (FailureClass, Option<Duration>) {
        let failure = Failure {
            code,
            times,
            failed_at: NOW,
            opted_in_since: false,
            has_phone: true,
        };
        let (class, after) = failure.class();
        (class, after.map(|after| after - NOW))
    }

    #[test]
    fn failure_class_matches_the_published_table() {
        let never = (FailureClass::Never, None);
        for code in [131_050, 131_021, 130_472, 131_047] {
            assert_eq!([class(Some(code), 1), class(Some(code), 9)], [never; 2], "{code}");
        }
        let later = |wait| (FailureClass::Later, Some(wait));
        let day = Duration::hours(24);
        for (code, waits) in [
            (131_049, [day, day * 2, day * 7, day * 7]),
            (131_026, [Duration::ZERO, Duration::ZERO, day * 7, day * 7]),
            (131_048, [day; 4]),
            (131_064, [day; 4]),
            (368, [day; 4]),
            (131_031, [day; 4]),
            (130_497, [day; 4]),
            (130_429, [Duration::minutes(10); 4]),
            (131_056, [Duration::minutes(10); 4]),
            (4, [Duration::minutes(10); 4]),
            (80_007, [Duration::minutes(10); 4]),
            (131_053, [Duration::minutes(10); 4]),
        ] {
            let found = [1, 2, 3, 4].map(|times| class(Some(code), times));
            assert_eq!(found, waits.map(later), "{code}");
        }
        for code in [None, Some(0), Some(131_000), Some(132_012), Some(131_062)] {
            assert_eq!(class(code, 1), (FailureClass::Again, None), "{code:?}");
        }
    }

    #[test]
    fn failure_class_never_ends_with_an_opt_in_or_a_phone() {
        let failure = |code, opted_in_since, has_phone| Failure {
            code: Some(code),
            times: 1,
            failed_at: NOW,
            opted_in_since,
            has_phone,
        };
        for (failure, class) in [
            (failure(131_050, true, true), FailureClass::Again),
            (failure(131_050, false, true), FailureClass::Never),
            (failure(131_062, false, true), FailureClass::Again),
            (failure(131_062, true, false), FailureClass::Never),
            (failure(131_047, true, true), FailureClass::Never),
        ] {
            assert_eq!(failure.class(), (class, None), "{failure:?}");
        }
    }

    #[test]
    fn retry_rules_name_each_code_once() {
        let codes: std::collections::BTreeSet<i64> = RETRY_RULES.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes.len(), RETRY_RULES.len());
        assert!(!codes.contains(&NO_CODE));
    }
}
