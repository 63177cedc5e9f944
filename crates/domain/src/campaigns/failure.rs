//! Retry rules of failed sends: whether and when one may be retried, by WhatsApp's error code. The store gets the same
//! table as parameters of its statements.

use schemars::JsonSchema;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::messaging::STOPPED_MARKETING;
use crate::shared::schema::Timestamp;
use crate::shared::string_enum;
use crate::shared::timestamp;

string_enum! {
    /// Whether a retry of a failed send can succeed.
    FailureClass {
        /// A retry may succeed at any time.
        Again = "again",
        /// A retry may succeed from `retry_after` on.
        Later = "later",
        /// A retry would fail again.
        Never = "never",
    }
}

string_enum! {
    /// Why a failed send is not retried now.
    LeftOutReason {
        /// A retry would fail again.
        Never = "never",
        /// The time of `retry_after` has not been reached.
        Later = "later",
        /// The error code is not one of the requested codes.
        NotChosen = "not_chosen",
        /// The contact has opted out.
        OptedOut = "opted_out",
        /// The contact was deleted, or has no phone number.
        Unreachable = "unreachable",
    }
}

/// The code that stands for failures without a code.
pub const NO_CODE: i64 = 0;

/// When a failure with an error code may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryRule {
    /// Never: a retry would fail again.
    Never,
    /// Only if the contact opted in after the send failed.
    OptIn,
    /// Only while the contact has a phone number.
    Phone,
    /// After a wait that begins at the failure. The three waits are for the first, second and every further consecutive
    /// failure with the code.
    Wait([Duration; 3]),
}

const AT_ONCE: Duration = Duration::ZERO;
const SOON: Duration = Duration::minutes(10);
const DAY: Duration = Duration::DAY;
const WEEK: Duration = Duration::WEEK;

/// The retry rule of each code that has one. Every other failure may be retried at any time.
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

/// The properties of a failed send on which its retry depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// WhatsApp's error code, if it returned one.
    pub code: Option<i64>,
    /// The number of consecutive failures with this code: at least 1.
    pub times: u32,
    /// The time of the last failure.
    pub failed_at: OffsetDateTime,
    /// Whether the contact opted in after `failed_at` and is not opted out now.
    pub opted_in_since: bool,
    pub has_phone: bool,
}

impl Failure {
    /// The class, and for [`FailureClass::Later`] the earliest time of a retry.
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

/// Failed sends with one error code that are not retried for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Why they are left out.
    pub reason: LeftOutReason,
    /// WhatsApp's error code; 0 for failures without one.
    #[schemars(example = 131_049)]
    pub code: i64,
    /// The number of these sends.
    #[schemars(example = 3)]
    pub count: i64,
    /// For `later`: when the first of these sends may be retried. Null for every other reason.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub earliest: Option<OffsetDateTime>,
}

/// The failed sends of a campaign that a retry sends again, and those that it leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RetryReport {
    /// The number of failed sends that are retried. Together with the counts of `left_out`, it equals the number of
    /// failed sends before the retry.
    #[schemars(example = 8)]
    pub tried: i64,
    /// The failed sends that are not retried, by reason and code.
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
