//! The checks of a number: which answer of WhatsApp passes, fails or leaves a check unknown.

use super::{Check, CheckName, CheckState, GraphError, NumberFacts, ReadNumber};
use crate::messaging::{BlockCause, ErrorClass, ThrottleScope};

/// The checks that ran so far, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport(Vec<Check>);

impl CheckReport {
    /// Adds the next check.
    pub fn add(&mut self, check: Check) {
        self.0.push(check);
    }

    /// Whether the checks that did not run are skipped: one on which they depend did not pass.
    pub fn is_over(&self) -> bool {
        self.0.iter().any(|check| {
            check.name.is_required_by_later() && matches!(check.state, CheckState::Failed | CheckState::Unknown)
        })
    }

    /// Every check, the missing ones as skipped.
    #[must_use]
    pub fn finish(self) -> Vec<Check> {
        let missing = CheckName::ALL
            .iter()
            .skip(self.0.len())
            .map(|name| Check::skipped(*name));
        let missing: Vec<Check> = missing.collect();
        self.0.into_iter().chain(missing).collect()
    }

    /// The checks of a server without a URL of WhatsApp.
    pub fn not_configured() -> Vec<Check> {
        let unknown = |name: &CheckName| {
            let remedy = "Ask the operator of this server to set WHATSAPP_API_URL.";
            Check::with_remedy(
                *name,
                CheckState::Unknown,
                "This server is not connected to WhatsApp",
                remedy,
            )
        };
        CheckName::ALL.iter().map(unknown).collect()
    }
}

/// Whether the checks prove that the token's owner has the number. Nothing that WhatsApp says about the number may be
/// stored otherwise.
pub fn proves_ownership(checks: &[Check]) -> bool {
    let passed = |name: CheckName| {
        checks
            .iter()
            .any(|check| check.name == name && check.state == CheckState::Passed)
    };
    passed(CheckName::Token) && passed(CheckName::Number) && passed(CheckName::BusinessAccount)
}

/// Whether `GET /{phone_number_id}` was not refused for the token.
pub fn token_check(answer: &Result<ReadNumber, GraphError>) -> Check {
    let name = CheckName::Token;
    match answer {
        Err(GraphError::Refused { code, class, message }) if is_token_refusal(*class) => Check::with_remedy(
            name,
            CheckState::Failed,
            &refusal("WhatsApp refused the token", *code, message),
            "Enter a new access token of a system user that has the number's business account, with the permissions \
             whatsapp_business_messaging and whatsapp_business_management.",
        ),
        Err(GraphError::Refused { class, .. }) if !is_busy(*class) => Check::passed(name),
        Err(error) => unknown(name, error),
        Ok(_) => Check::passed(name),
    }
}

/// Whether the answer to `GET /{phone_number_id}` is of the profile's number.
pub fn number_check(answer: &Result<ReadNumber, GraphError>, phone_number_id: &str) -> Check {
    let name = CheckName::Number;
    let remedy = "Copy the phone number ID from WhatsApp Manager, API setup. It is not the phone number itself.";
    match answer {
        Ok(number) if number.id == phone_number_id => Check::passed(name),
        Ok(_) => Check::with_remedy(
            name,
            CheckState::Failed,
            "WhatsApp answered with another number",
            remedy,
        ),
        Err(GraphError::Refused {
            code,
            class: ErrorClass::NotFound,
            message,
        }) => {
            let found = refusal("WhatsApp knows no such number for this token", *code, message);
            Check::with_remedy(name, CheckState::Failed, &found, remedy)
        }
        Err(error) => unknown(name, error),
    }
}

/// How the search for a number in the lists of its business account ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusinessNumbers {
    /// A page names the number.
    Listed,
    /// The lists were read to their end.
    NotListed,
    /// There are more pages than are read.
    TooMany,
    Refused(GraphError),
}

/// Whether the business account has the number.
pub fn business_account_check(search: &BusinessNumbers) -> Check {
    let name = CheckName::BusinessAccount;
    let remedy = "Enter the id of the WhatsApp business account that has the number as waba_id, and a token that may \
                  manage this account.";
    match search {
        BusinessNumbers::Listed => Check::passed(name),
        BusinessNumbers::NotListed => {
            let found = "The WhatsApp business account does not have the number";
            Check::with_remedy(name, CheckState::Failed, found, remedy)
        }
        BusinessNumbers::TooMany => {
            let found = "The WhatsApp business account has more numbers than can be read";
            Check::with_remedy(name, CheckState::Unknown, found, remedy)
        }
        BusinessNumbers::Refused(GraphError::Refused { code, class, message }) if is_access_refusal(*class) => {
            let found = refusal(
                "WhatsApp does not show the business account to this token",
                *code,
                message,
            );
            Check::with_remedy(name, CheckState::Failed, &found, remedy)
        }
        BusinessNumbers::Refused(error) => unknown(name, error),
    }
}

/// Whether the token's app receives the callbacks of the business account.
pub fn subscription_check(answer: &Result<(), GraphError>) -> Check {
    let name = CheckName::Subscription;
    match answer {
        Ok(()) => Check::passed(name),
        Err(GraphError::Refused { code, class, message }) if is_access_refusal(*class) => Check::with_remedy(
            name,
            CheckState::Failed,
            &refusal(
                "WhatsApp refused to send callbacks of the business account",
                *code,
                message,
            ),
            "Give the token the permission whatsapp_business_management for this business account.",
        ),
        Err(error) => unknown(name, error),
    }
}

/// Whether the number must be registered with the given PIN before [`registration_check`]. A number in the WhatsApp
/// Business app is registered by its phone, and repeated tries lock a number.
pub fn should_register(number: &NumberFacts, has_pin: bool) -> bool {
    has_pin && !number.is_connected() && number.on_business_app != Some(true)
}

/// Whether the number is registered. `registration` is the answer of the registration, if it was asked for.
pub fn registration_check(number: &NumberFacts, registration: Option<&Result<(), GraphError>>) -> Check {
    let name = CheckName::Registration;
    match (registration, number.status.as_deref()) {
        (Some(Ok(())), _) | (None, None | Some("connected")) => Check::passed(name),
        (None, Some(status)) => {
            let found = format!("The number's status is {status}");
            let remedy = "Register the number: verify it again with its six-digit PIN as pin.";
            Check::with_remedy(name, CheckState::Failed, &found, remedy)
        }
        (Some(Err(GraphError::Refused { code, class, message })), _) if !is_busy(*class) => Check::with_remedy(
            name,
            CheckState::Failed,
            &refusal("WhatsApp refused the registration", *code, message),
            registration_remedy(*class),
        ),
        (Some(Err(error)), _) => unknown(name, error),
    }
}

fn registration_remedy(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::WrongPin => {
            "Verify the number again with the right six-digit PIN, or reset the PIN in WhatsApp Manager."
        }
        ErrorClass::NumberUnverified => {
            "Verify the phone number in WhatsApp Manager, then register it with the six-digit PIN."
        }
        ErrorClass::RegistrationTooEarly => "Wait some minutes, then register the number with the six-digit PIN.",
        ErrorClass::Blocked(BlockCause::NotRegistered) => {
            "Add the phone number in WhatsApp Manager, then register it with the six-digit PIN."
        }
        ErrorClass::Blocked(BlockCause::RegistrationLocked) => {
            "WhatsApp allows no more tries for now. Register the number with the six-digit PIN after 72 hours."
        }
        _ => "Register the number with its six-digit PIN.",
    }
}

/// Red quality is a warning.
pub fn quality_check(number: &NumberFacts) -> Check {
    match number.quality_rating.as_deref() {
        Some("red") => Check::with_remedy(
            CheckName::Quality,
            CheckState::Warning,
            "WhatsApp rates the quality of the number's messages as low",
            "Write only to people who expect it: blocked and reported messages lower the quality.",
        ),
        _ => Check::passed(CheckName::Quality),
    }
}

/// A rate above the number's is a warning.
pub fn pace_check(messages_per_second: Option<i32>, number: &NumberFacts) -> Check {
    match (messages_per_second, number.max_messages_per_second) {
        (Some(rate), Some(max)) if rate > max => Check::with_remedy(
            CheckName::Pace,
            CheckState::Warning,
            &format!("messages_per_second is {rate}; WhatsApp accepts {max} from this number"),
            &format!("Lower messages_per_second to {max} or less."),
        ),
        _ => Check::passed(CheckName::Pace),
    }
}

fn refusal(what: &str, code: i64, message: &str) -> String {
    format!("{what} (code {code}): {message}")
}

fn unknown(name: CheckName, error: &GraphError) -> Check {
    let remedy = "Nothing to do: the check runs again by itself. If this lasts, see the status page of WhatsApp.";
    Check::with_remedy(name, CheckState::Unknown, &error.to_string(), remedy)
}

/// Whether the token is not valid or lacks a permission.
fn is_token_refusal(class: ErrorClass) -> bool {
    class == ErrorClass::Blocked(BlockCause::Token)
}

/// Whether the token may not use the object, or the object does not exist.
fn is_access_refusal(class: ErrorClass) -> bool {
    is_token_refusal(class) || class == ErrorClass::NotFound
}

/// Whether WhatsApp says nothing about the number: it is busy, or failed itself.
fn is_busy(class: ErrorClass) -> bool {
    use ThrottleScope::{Account, Management};
    matches!(
        class,
        ErrorClass::ServiceFailed | ErrorClass::Throttled(Account | Management)
    )
}

#[cfg(test)]
mod tests {
    use super::super::VerificationState;
    use super::CheckState::{Failed, Passed, Skipped, Unknown, Warning};
    use super::*;

    fn refused(class: ErrorClass) -> GraphError {
        GraphError::Refused {
            code: 133_005,
            class,
            message: "m".into(),
        }
    }

    fn read(id: &str) -> Result<ReadNumber, GraphError> {
        Ok(ReadNumber {
            id: id.into(),
            facts: NumberFacts::default(),
        })
    }

    fn number(status: Option<&str>) -> NumberFacts {
        NumberFacts {
            status: status.map(str::to_owned),
            ..NumberFacts::default()
        }
    }

    fn assert_explained(check: &Check) {
        let needs_remedy = matches!(check.state, Failed | Unknown | Warning);
        assert_eq!(check.remedy.is_some(), needs_remedy, "{check:?}");
        assert_eq!(check.found.is_some(), needs_remedy, "{check:?}");
        let fits = |text: &Option<String>| text.as_ref().is_none_or(|text| text.chars().count() <= 300);
        assert!(fits(&check.found) && fits(&check.remedy));
    }

    /// The outcome of each check by class: token, number, business account, subscription, registration.
    #[test]
    fn error_classes_decide_each_check() {
        use BlockCause::{Access, RegistrationLocked, Token};
        use ErrorClass::{Blocked, NotFound, Other, OutcomeUnknown, ServiceFailed, Throttled, WrongPin};
        let table = [
            (Blocked(Token), [Failed, Unknown, Failed, Failed, Failed]),
            (NotFound, [Passed, Failed, Failed, Failed, Failed]),
            (ServiceFailed, [Unknown; 5]),
            (Throttled(ThrottleScope::Account), [Unknown; 5]),
            (Throttled(ThrottleScope::Management), [Unknown; 5]),
            (Other, [Passed, Unknown, Unknown, Unknown, Failed]),
            (WrongPin, [Passed, Unknown, Unknown, Unknown, Failed]),
            (Blocked(Access), [Passed, Unknown, Unknown, Unknown, Failed]),
            (Blocked(RegistrationLocked), [Passed, Unknown, Unknown, Unknown, Failed]),
            (OutcomeUnknown, [Passed, Unknown, Unknown, Unknown, Failed]),
            (
                Throttled(ThrottleScope::PhoneNumber),
                [Passed, Unknown, Unknown, Unknown, Failed],
            ),
        ];
        for (class, expected) in table {
            let checks = [
                token_check(&Err(refused(class))),
                number_check(&Err(refused(class)), "7"),
                business_account_check(&BusinessNumbers::Refused(refused(class))),
                subscription_check(&Err(refused(class))),
                registration_check(&number(Some("pending")), Some(&Err(refused(class)))),
            ];
            assert_eq!(checks.each_ref().map(|check| check.state), expected, "{class:?}");
            checks.iter().for_each(assert_explained);
        }
    }

    #[test]
    fn unreachable_platform_leaves_each_check_unknown() {
        let down = || GraphError::Unavailable("timed out".into());
        for check in [
            token_check(&Err(down())),
            number_check(&Err(down()), "7"),
            business_account_check(&BusinessNumbers::Refused(down())),
            business_account_check(&BusinessNumbers::TooMany),
            subscription_check(&Err(down())),
            registration_check(&number(Some("pending")), Some(&Err(down()))),
        ] {
            assert_eq!(check.state, Unknown);
            assert_explained(&check);
        }
        assert_eq!(
            VerificationState::of(&CheckReport::not_configured()),
            VerificationState::Pending
        );
    }

    #[test]
    fn number_and_business_account_need_the_own_number() {
        assert_eq!(token_check(&read("8")).state, Passed);
        assert_eq!(number_check(&read("7"), "7").state, Passed);
        assert_eq!(number_check(&read("8"), "7").state, Failed);
        assert_eq!(business_account_check(&BusinessNumbers::Listed).state, Passed);
        assert_eq!(business_account_check(&BusinessNumbers::NotListed).state, Failed);
        assert_eq!(subscription_check(&Ok(())).state, Passed);
    }

    #[test]
    fn registration_needs_a_connected_number_or_a_pin() {
        let by_status = |status| registration_check(&number(status), None).state;
        assert_eq!(
            [None, Some("connected"), Some("pending")].map(by_status),
            [Passed, Passed, Failed]
        );
        assert_eq!(
            registration_check(&number(Some("pending")), Some(&Ok(()))).state,
            Passed
        );
        let wrong_pin = registration_check(&number(Some("pending")), Some(&Err(refused(ErrorClass::WrongPin))));
        assert!(wrong_pin.found.unwrap().contains("133005"));
        let coexisting = NumberFacts {
            on_business_app: Some(true),
            ..number(Some("pending"))
        };
        for (facts, has_pin, expected) in [
            (number(Some("pending")), true, true),
            (number(None), true, true),
            (number(Some("pending")), false, false),
            (number(Some("connected")), true, false),
            (coexisting, true, false),
        ] {
            assert_eq!(should_register(&facts, has_pin), expected, "{facts:?}");
        }
    }

    #[test]
    fn quality_and_pace_only_warn() {
        let facts = |quality: &str, max| NumberFacts {
            quality_rating: Some(quality.into()),
            max_messages_per_second: max,
            ..NumberFacts::default()
        };
        assert_eq!(
            ["green", "yellow", "red", "x"].map(|quality| quality_check(&facts(quality, None)).state),
            [Passed, Passed, Warning, Passed]
        );
        for (rate, max, expected) in [
            (None, Some(80), Passed),
            (Some(80), Some(80), Passed),
            (Some(81), Some(80), Warning),
            (Some(1000), None, Passed),
        ] {
            let check = pace_check(rate, &facts("green", max));
            assert_eq!(check.state, expected, "{rate:?} {max:?}");
            assert_explained(&check);
        }
    }

    #[test]
    fn checks_after_a_required_one_are_skipped() {
        for (at, name) in CheckName::ALL.iter().enumerate() {
            for state in [Failed, Unknown] {
                let mut report = CheckReport::default();
                CheckName::ALL[..at]
                    .iter()
                    .for_each(|name| report.add(Check::passed(*name)));
                report.add(Check::with_remedy(*name, state, "f", "r"));
                assert_eq!(report.is_over(), at < 3, "{name}");
                let checks = report.finish();
                assert_eq!(checks.len(), 7);
                assert!(checks[at + 1..].iter().all(|check| check.state == Skipped));
                assert_eq!(proves_ownership(&checks), at > 2);
                let expected = if state == Failed {
                    VerificationState::Failed
                } else {
                    VerificationState::Pending
                };
                assert_eq!(VerificationState::of(&checks), expected);
            }
        }
        let mut report = CheckReport::default();
        CheckName::ALL.iter().for_each(|name| report.add(Check::passed(*name)));
        let mut checks = report.finish();
        assert_eq!(VerificationState::of(&checks), VerificationState::Verified);
        checks[5].state = Warning;
        assert_eq!(VerificationState::of(&checks), VerificationState::Verified);
        assert_eq!(VerificationState::of(&[]), VerificationState::Pending);
    }
}
