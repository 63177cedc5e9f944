//! Meta's error codes and their classes (Meta, "Cloud API error codes"): the only table of them.

use recado_domain::messaging::{BlockCause, ErrorClass, ErrorCodes, ThrottleScope};

/// Invalid access token.
pub(super) const TOKEN_INVALID: i64 = 190;

/// Invalid parameter, for example a field that the version of the API does not have.
pub(super) const INVALID_PARAMETER: i64 = 100;

/// Paused template.
pub(super) const TEMPLATE_PAUSED: i64 = 132_015;

/// Every code that Recado distinguishes.
pub const ERROR_CODES: ErrorCodes = ErrorCodes {
    codes: &[
        (ErrorClass::Throttled(ThrottleScope::Account), &[4, 80_007]),
        (ErrorClass::Throttled(ThrottleScope::PhoneNumber), &[130_429]),
        (ErrorClass::Throttled(ThrottleScope::Recipient), &[131_056]),
        (ErrorClass::Throttled(ThrottleScope::Management), &[80_008]),
        (ErrorClass::Blocked(BlockCause::Token), &[0, 3, 10, TOKEN_INVALID]),
        (ErrorClass::Blocked(BlockCause::Access), &[131_005]),
        // Locked, restricted, or with misclassified templates.
        (
            ErrorClass::Blocked(BlockCause::Restricted),
            &[368, 130_497, 131_031, 131_064],
        ),
        (ErrorClass::Blocked(BlockCause::Unpaid), &[131_042]),
        (ErrorClass::Blocked(BlockCause::NotRegistered), &[133_010]),
        (ErrorClass::Blocked(BlockCause::RegistrationLocked), &[133_016]),
        (ErrorClass::Blocked(BlockCause::Template), &[132_000, 132_001]),
        (ErrorClass::Blocked(BlockCause::TemplatePaused), &[TEMPLATE_PAUSED]),
        (ErrorClass::Blocked(BlockCause::TemplateDisabled), &[132_016]),
        (ErrorClass::NotFound, &[33, INVALID_PARAMETER]),
        (
            ErrorClass::InvalidMessage,
            &[131_008, 131_009, 132_005, 132_007, 135_000],
        ),
        (ErrorClass::UnsupportedMessage, &[131_051, 131_052]),
        (ErrorClass::ParameterFormat, &[132_012]),
        (ErrorClass::ParameterText, &[132_018]),
        (ErrorClass::MediaFailed, &[131_053]),
        // The sender itself, and an experiment of WhatsApp.
        (ErrorClass::RecipientRefused, &[131_021, 130_472]),
        (ErrorClass::WindowClosed, &[131_047]),
        (ErrorClass::RecipientUnreachable, &[131_026]),
        (ErrorClass::RecipientLimited, &[131_049]),
        (ErrorClass::OptedOut, &[131_050]),
        (ErrorClass::PhoneRequired, &[131_062]),
        (ErrorClass::SpamLimited, &[131_048]),
        (ErrorClass::ServiceFailed, &[1, 2]),
        (ErrorClass::OutcomeUnknown, &[131_000, 131_016, 131_057, 133_004]),
        (ErrorClass::WrongPin, &[133_005]),
        (ErrorClass::NumberUnverified, &[133_006]),
        (ErrorClass::RegistrationTooEarly, &[133_009, 133_015]),
    ],
    // Permissions of the token.
    ranges: &[(ErrorClass::Blocked(BlockCause::Token), 200..=299)],
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use recado_domain::campaigns::{Failure, FailureClass, NO_CODE, RetryRule, retry_rules};
    use time::{Duration, OffsetDateTime};

    use super::*;

    #[test]
    fn error_code_has_one_class() {
        let codes: Vec<i64> = ERROR_CODES
            .codes
            .iter()
            .flat_map(|(_, codes)| codes.iter().copied())
            .collect();
        assert_eq!(codes.len(), codes.iter().collect::<BTreeSet<_>>().len());
        assert!(codes.iter().all(|code| !(200..=299).contains(code)));
        for code in codes {
            assert_ne!(ERROR_CODES.class(code), ErrorClass::Other, "{code}");
        }
    }

    #[test]
    fn error_codes_have_their_class() {
        let token = ErrorClass::Blocked(BlockCause::Token);
        let table: [(ErrorClass, &[i64]); 24] = [
            (token, &[0, 3, 10, 190, 200, 250, 299]),
            (ErrorClass::NotFound, &[33, 100]),
            (ErrorClass::ServiceFailed, &[1, 2]),
            (ErrorClass::Throttled(ThrottleScope::Account), &[4, 80_007]),
            (ErrorClass::Throttled(ThrottleScope::Management), &[80_008]),
            (ErrorClass::WrongPin, &[133_005]),
            (ErrorClass::Blocked(BlockCause::RegistrationLocked), &[133_016]),
            (ErrorClass::ParameterFormat, &[132_012]),
            (ErrorClass::ParameterText, &[132_018]),
            (ErrorClass::UnsupportedMessage, &[131_051, 131_052]),
            (ErrorClass::RecipientUnreachable, &[131_026]),
            (ErrorClass::WindowClosed, &[131_047]),
            (ErrorClass::RecipientLimited, &[131_049]),
            (ErrorClass::OptedOut, &[131_050]),
            (ErrorClass::Throttled(ThrottleScope::PhoneNumber), &[130_429]),
            (ErrorClass::Throttled(ThrottleScope::Recipient), &[131_056]),
            (ErrorClass::Blocked(BlockCause::Template), &[132_000, 132_001]),
            (ErrorClass::Blocked(BlockCause::TemplatePaused), &[132_015]),
            (ErrorClass::Blocked(BlockCause::TemplateDisabled), &[132_016]),
            (ErrorClass::Blocked(BlockCause::NotRegistered), &[133_010]),
            (ErrorClass::Blocked(BlockCause::Unpaid), &[131_042]),
            (ErrorClass::NumberUnverified, &[133_006]),
            (ErrorClass::RegistrationTooEarly, &[133_009, 133_015]),
            (ErrorClass::Other, &[-1, 5, 199, 300, 131_001, 2_388_019]),
        ];
        for (class, codes) in table {
            for code in codes {
                assert_eq!(ERROR_CODES.class(*code), class, "{code}");
                assert_eq!(
                    ERROR_CODES.pauses_runs(*code),
                    matches!(class, ErrorClass::Blocked(_)),
                    "{code}"
                );
            }
        }
    }

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn failure_class(code: Option<i64>, times: u32) -> (FailureClass, Option<Duration>) {
        let failure = Failure {
            error: code.map(|code| ERROR_CODES.class(code)),
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
            assert_eq!(
                [failure_class(Some(code), 1), failure_class(Some(code), 9)],
                [never; 2],
                "{code}"
            );
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
            let found = [1, 2, 3, 4].map(|times| failure_class(Some(code), times));
            assert_eq!(found, waits.map(later), "{code}");
        }
        for code in [None, Some(0), Some(131_000), Some(132_012), Some(131_062)] {
            assert_eq!(failure_class(code, 1), (FailureClass::Again, None), "{code:?}");
        }
    }

    #[test]
    fn retry_rules_name_each_code_once() {
        let rules = retry_rules(&ERROR_CODES);
        let codes: BTreeSet<i64> = rules.iter().map(|(code, _)| *code).collect();
        assert_eq!((codes.len(), rules.len()), (17, 17));
        assert!(!codes.contains(&NO_CODE));
        for (class, _) in ERROR_CODES.ranges {
            assert_eq!(RetryRule::of(*class), None, "the store gets single codes only");
        }
    }
}
