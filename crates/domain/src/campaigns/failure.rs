//! Retry rules of failed sends: whether and when one may be retried, by the class of WhatsApp's error code. The store
//! gets the same rules as parameters of its statements.

use schemars::JsonSchema;
use serde::Serialize;
use time::{Duration, OffsetDateTime};

use crate::messaging::{BlockCause, ErrorClass, ErrorCodes, ThrottleScope};
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

/// When a failure may be retried.
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

impl RetryRule {
    /// The rule of a class; `None` for a failure that may be retried at any time.
    pub fn of(class: ErrorClass) -> Option<Self> {
        Some(match class {
            ErrorClass::OptedOut => Self::OptIn,
            ErrorClass::PhoneRequired => Self::Phone,
            ErrorClass::RecipientRefused | ErrorClass::WindowClosed => Self::Never,
            ErrorClass::RecipientLimited => Self::Wait([DAY, Duration::days(2), WEEK]),
            ErrorClass::RecipientUnreachable => Self::Wait([AT_ONCE, AT_ONCE, WEEK]),
            ErrorClass::SpamLimited | ErrorClass::Blocked(BlockCause::Restricted) => Self::Wait([DAY; 3]),
            ErrorClass::Throttled(ThrottleScope::Management) => return None,
            ErrorClass::Throttled(_) | ErrorClass::MediaFailed => Self::Wait([SOON; 3]),
            ErrorClass::Blocked(_)
            | ErrorClass::NotFound
            | ErrorClass::InvalidMessage
            | ErrorClass::UnsupportedMessage
            | ErrorClass::ParameterFormat
            | ErrorClass::ParameterText
            | ErrorClass::ServiceFailed
            | ErrorClass::OutcomeUnknown
            | ErrorClass::WrongPin
            | ErrorClass::NumberUnverified
            | ErrorClass::RegistrationTooEarly
            | ErrorClass::Other => return None,
        })
    }
}

/// The retry rule of each code that has one. Every other failure may be retried at any time. No class of a range of
/// codes has a rule.
pub fn retry_rules(codes: &ErrorCodes) -> Vec<(i64, RetryRule)> {
    let with_rule = |(class, codes): &(ErrorClass, &'static [i64])| Some((*codes, RetryRule::of(*class)?));
    let rules = codes.codes.iter().filter_map(with_rule);
    rules
        .flat_map(|(codes, rule)| codes.iter().map(move |code| (*code, rule)))
        .collect()
}

/// The properties of a failed send on which its retry depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class of WhatsApp's error code, if it returned one.
    pub error: Option<ErrorClass>,
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
        match self.error.and_then(RetryRule::of) {
            Some(RetryRule::Never) => (FailureClass::Never, None),
            Some(RetryRule::OptIn) if !self.opted_in_since => (FailureClass::Never, None),
            Some(RetryRule::Phone) if !self.has_phone => (FailureClass::Never, None),
            Some(RetryRule::Wait([first, second, further])) => {
                let wait = match self.times {
                    0 | 1 => first,
                    2 => second,
                    _ => further,
                };
                (FailureClass::Later, self.failed_at.checked_add(wait))
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

    #[test]
    fn failure_class_never_ends_with_an_opt_in_or_a_phone() {
        let failure = |class, opted_in_since, has_phone| Failure {
            error: Some(class),
            times: 1,
            failed_at: NOW,
            opted_in_since,
            has_phone,
        };
        for (failure, class) in [
            (failure(ErrorClass::OptedOut, true, true), FailureClass::Again),
            (failure(ErrorClass::OptedOut, false, true), FailureClass::Never),
            (failure(ErrorClass::PhoneRequired, false, true), FailureClass::Again),
            (failure(ErrorClass::PhoneRequired, true, false), FailureClass::Never),
            (failure(ErrorClass::RecipientRefused, true, true), FailureClass::Never),
        ] {
            assert_eq!(failure.class(), (class, None), "{failure:?}");
        }
    }
}
