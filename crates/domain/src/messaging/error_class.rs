//! What WhatsApp's error codes mean. The gateway owns the table of codes; Recado decides by class.

use std::ops::RangeInclusive;

use super::MetaStatus;

/// What an error code of WhatsApp means for a message, a number or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Rejected before it was processed, because of too many calls or messages.
    Throttled(ThrottleScope),
    /// Every message of a run would fail.
    Blocked(BlockCause),
    /// The object does not exist for this token, or a field of the request is unknown.
    NotFound,
    /// The message or its parameters are invalid.
    InvalidMessage,
    /// WhatsApp does not support the type of the message, or cannot download its media for this recipient.
    UnsupportedMessage,
    /// The format of a parameter does not fit the template.
    ParameterFormat,
    /// WhatsApp does not accept the text of a parameter.
    ParameterText,
    /// WhatsApp could not take in the file of the message.
    MediaFailed,
    /// WhatsApp does not deliver messages of this kind to the recipient.
    RecipientRefused,
    /// The recipient has not written within 24 hours.
    WindowClosed,
    /// The recipient cannot be reached on WhatsApp.
    RecipientUnreachable,
    /// The recipient gets too many marketing messages.
    RecipientLimited,
    /// The recipient stopped marketing messages.
    OptedOut,
    /// The message needs the recipient's phone number.
    PhoneRequired,
    /// Too many recipients blocked the number or reported it as spam.
    SpamLimited,
    /// WhatsApp's API failed.
    ServiceFailed,
    /// WhatsApp failed while it processed the message, which may have been sent.
    OutcomeUnknown,
    /// The PIN is not the number's.
    WrongPin,
    /// The phone number is not verified.
    NumberUnverified,
    /// The number may be registered some minutes later.
    RegistrationTooEarly,
    /// Any other code.
    Other,
}

/// What sends too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleScope {
    /// The app or the business account.
    Account,
    /// The number sends faster than its throughput limit.
    PhoneNumber,
    /// One recipient gets too many messages from the number.
    Recipient,
    /// The management of the business account. Concerns no message.
    Management,
}

/// Why every message of a run would fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCause {
    /// The token is not valid, or lacks a permission.
    Token,
    /// The token's owner may not send from the number.
    Access,
    /// WhatsApp restricts the account.
    Restricted,
    /// The account has not paid.
    Unpaid,
    /// The number is not registered.
    NotRegistered,
    /// The number had too many registration attempts.
    RegistrationLocked,
    /// The template does not exist, or has another number of parameters.
    Template,
    TemplatePaused,
    TemplateDisabled,
}

impl BlockCause {
    /// The review status of the template that the cause implies.
    pub fn template_status(self) -> Option<MetaStatus> {
        match self {
            Self::TemplatePaused => Some(MetaStatus::Paused),
            Self::TemplateDisabled => Some(MetaStatus::Disabled),
            Self::Token
            | Self::Access
            | Self::Restricted
            | Self::Unpaid
            | Self::NotRegistered
            | Self::RegistrationLocked
            | Self::Template => None,
        }
    }
}

/// WhatsApp's error codes by class.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCodes {
    pub codes: &'static [(ErrorClass, &'static [i64])],
    /// Classes that have every code of a range.
    pub ranges: &'static [(ErrorClass, RangeInclusive<i64>)],
}

impl ErrorCodes {
    /// The class of a code; [`ErrorClass::Other`] for an unknown one.
    pub fn class(&self, code: i64) -> ErrorClass {
        let listed = self.codes.iter().find(|(_, codes)| codes.contains(&code));
        let in_range = || self.ranges.iter().find(|(_, range)| range.contains(&code));
        listed
            .map(|(class, _)| *class)
            .or_else(|| in_range().map(|(class, _)| *class))
            .unwrap_or(ErrorClass::Other)
    }

    /// Whether every message of a run would fail with this code.
    pub fn pauses_runs(&self, code: i64) -> bool {
        matches!(self.class(code), ErrorClass::Blocked(_))
    }
}
