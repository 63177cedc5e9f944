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
            &[
                131_008, 131_009, 131_051, 131_052, 132_005, 132_007, 132_012, 132_018, 135_000,
            ],
        ),
        (ErrorClass::MediaFailed, &[131_053]),
        // The sender itself, an experiment of WhatsApp, no message within 24 hours.
        (ErrorClass::RecipientRefused, &[131_021, 130_472, 131_047]),
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
    fn error_codes_of_checks_have_their_class() {
        let token = ErrorClass::Blocked(BlockCause::Token);
        let table: [(ErrorClass, &[i64]); 8] = [
            (token, &[0, 3, 10, 190, 200, 250, 299]),
            (ErrorClass::NotFound, &[33, 100]),
            (ErrorClass::ServiceFailed, &[1, 2]),
            (ErrorClass::Throttled(ThrottleScope::Account), &[4, 80_007]),
            (ErrorClass::Throttled(ThrottleScope::Management), &[80_008]),
            (ErrorClass::WrongPin, &[133_005]),
            (ErrorClass::Blocked(BlockCause::RegistrationLocked), &[133_016]),
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
}
