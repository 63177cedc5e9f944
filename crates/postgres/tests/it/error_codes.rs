//! Error codes for the tests of stores, at least one for each class with a retry rule. The gateway's own table is
//! tested in `crates/gateways`.

use recado_domain::messaging::{BlockCause, ErrorClass, ErrorCodes, ThrottleScope};

/// The code for a message to a contact who stopped marketing messages.
pub(crate) const STOPPED_MARKETING: i64 = 131_050;

pub(crate) const ERROR_CODES: ErrorCodes = ErrorCodes {
    codes: &[
        (ErrorClass::OptedOut, &[STOPPED_MARKETING]),
        (ErrorClass::PhoneRequired, &[131_062]),
        (ErrorClass::RecipientRefused, &[131_021, 130_472]),
        (ErrorClass::WindowClosed, &[131_047]),
        (ErrorClass::RecipientLimited, &[131_049]),
        (ErrorClass::RecipientUnreachable, &[131_026]),
        (ErrorClass::SpamLimited, &[131_048]),
        (
            ErrorClass::Blocked(BlockCause::Restricted),
            &[368, 130_497, 131_031, 131_064],
        ),
        (ErrorClass::Throttled(ThrottleScope::Account), &[4, 80_007]),
        (ErrorClass::Throttled(ThrottleScope::PhoneNumber), &[130_429]),
        (ErrorClass::Throttled(ThrottleScope::Recipient), &[131_056]),
        (ErrorClass::MediaFailed, &[131_053]),
    ],
    ranges: &[],
};
