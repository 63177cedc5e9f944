//! Replies: whether one may be sent, from which number and to which address, and the result of its call.

use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::messaging::{Addressee, ErrorClass, SendOutcome, WINDOW, WhatsappCredentials};
use crate::shared::{AccountId, Cipher, GatewayError, MessageId, redacted_debug};
use crate::whatsapp::StoredProfile;

use super::Conversation;

/// A contact is asked for the phone number at most once within this time.
pub const REQUEST_INTERVAL: Duration = Duration::hours(24);

/// How long after a contact request a card counts as its answer.
pub const ANSWERED_WITHIN: Duration = Duration::days(7);

/// The message that a reply quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotedMessage {
    pub id: MessageId,
    /// None: WhatsApp has not accepted it.
    pub wa_message_id: Option<String>,
}

/// What decides whether a reply may be sent, read at one time.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplyFacts {
    pub conversation: Conversation,
    /// When the contact last wrote.
    pub last_inbound_at: Option<OffsetDateTime>,
    /// The contact's number, E.164.
    pub phone: Option<String>,
    /// The contact's number as WhatsApp writes it.
    pub wa_id: Option<String>,
    /// WhatsApp's user id of the contact.
    pub wa_user_id: Option<String>,
    /// The number that the contact wrote to, otherwise the account's default number.
    pub profile: Option<StoredProfile>,
    /// The message of the conversation that the reply quotes, if it exists.
    pub quoted: Option<QuotedMessage>,
    /// The database's current time.
    pub now: OffsetDateTime,
}

redacted_debug!(ReplyFacts {
    conversation,
    last_inbound_at
});

/// Why a reply may not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyRefusal {
    /// Outside the service window only templates may be sent.
    #[error("The 24 hours after the contact's last message are over: only a template message can be sent")]
    WindowClosed,
    #[error("No WhatsApp number is connected")]
    NoNumber,
    /// WhatsApp has not confirmed the number.
    #[error("The WhatsApp number is not verified; read its checks, correct what they name, and verify it again")]
    NumberUnverified,
    #[error("The contact has neither a phone nor a WhatsApp user id")]
    NoAddress,
    /// Of a contact request.
    #[error("The contact's phone number is known")]
    PhoneKnown,
    /// Of a contact request.
    #[error("The contact was asked for the phone number within the last 24 hours")]
    AskedAlready,
}

/// Checks whether a free-form reply may be sent. Returns the credentials and the recipient.
pub fn prepare(
    account: AccountId,
    facts: &ReplyFacts,
    cipher: &dyn Cipher,
) -> Result<(WhatsappCredentials, Addressee), ReplyRefusal> {
    let ends = facts.last_inbound_at.and_then(|at| at.checked_add(WINDOW));
    if ends.is_none_or(|ends| facts.now >= ends) {
        return Err(ReplyRefusal::WindowClosed);
    }
    let credentials = sender(account, facts, cipher)?;
    let to = Addressee::first_of(facts.phone.clone(), facts.wa_id.as_deref(), facts.wa_user_id.clone());
    Ok((credentials, to.ok_or(ReplyRefusal::NoAddress)?))
}

/// The credentials of the number that sends the reply.
pub fn sender(
    account: AccountId,
    facts: &ReplyFacts,
    cipher: &dyn Cipher,
) -> Result<WhatsappCredentials, ReplyRefusal> {
    if facts.profile.as_ref().is_some_and(|stored| !stored.is_verified()) {
        return Err(ReplyRefusal::NumberUnverified);
    }
    facts
        .profile
        .as_ref()
        .and_then(|profile| profile.credentials(account, cipher))
        .ok_or(ReplyRefusal::NoNumber)
}

/// The recorded result of a reply's call.
#[derive(Clone, PartialEq, Eq)]
pub enum ReplyResult {
    Sent {
        /// WhatsApp's id of the message.
        message_id: String,
        /// WhatsApp's id of the contact, if the response has it.
        wa_id: Option<String>,
    },
    /// The reply was not sent, or WhatsApp rejected it. It is never sent again.
    Failed {
        message: String,
        /// WhatsApp says that the contact has opted out.
        opted_out: bool,
    },
    /// The reply may have reached WhatsApp. It stays pending until a status update or a time limit resolves it.
    Unknown,
}

redacted_debug!(
    enum ReplyResult {
        Sent,
        Failed,
        Unknown,
    }
);

/// Maps the outcome of a call to the reply's recorded result, and to the error for the caller.
pub fn to_result(outcome: SendOutcome) -> (ReplyResult, Option<GatewayError>) {
    let refusal = outcome.refusal();
    let result = match outcome {
        SendOutcome::Accepted { message_id, wa_id } => ReplyResult::Sent { message_id, wa_id },
        SendOutcome::Failed { message, class, .. } => ReplyResult::Failed {
            message,
            opted_out: class == ErrorClass::OptedOut,
        },
        SendOutcome::RunBlocked { message, .. } | SendOutcome::Throttled { message, .. } => ReplyResult::Failed {
            message,
            opted_out: false,
        },
        SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => ReplyResult::Unknown,
    };
    (result, refusal)
}

#[cfg(test)]
pub(super) mod tests {
    use time::Duration;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::ConversationStatus;
    use super::*;
    use crate::messaging::BlockCause;
    use crate::shared::{MockCipher, Sealed};
    use crate::whatsapp::Profile;
    use crate::whatsapp::verification::{NumberFacts, VerificationRecord};

    pub(crate) const NOW: OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(7));

    pub(crate) fn cipher() -> MockCipher {
        let mut cipher = MockCipher::new();
        cipher
            .expect_open()
            .returning(|sealed, _| (sealed.0 != [0]).then(|| "token".into()));
        cipher
    }

    pub(crate) fn facts() -> ReplyFacts {
        let profile = Profile {
            id: Uuid::from_u128(5).into(),
            name: "Loja".into(),
            phone_number_id: "1065".into(),
            waba_id: "102".into(),
            messages_per_second: None,
            created_at: NOW,
            updated_at: NOW,
            verification: VerificationRecord::verified(NOW).verification,
            number: NumberFacts::default(),
        };
        ReplyFacts {
            conversation: Conversation {
                id: Uuid::from_u128(1).into(),
                contact_id: Uuid::from_u128(2).into(),
                status: ConversationStatus::Closed,
                last_message_at: NOW,
                created_at: NOW,
            },
            last_inbound_at: Some(NOW - Duration::hours(1)),
            phone: Some("+5511961234567".into()),
            wa_id: Some("5511961234567".into()),
            wa_user_id: Some("BR.1".into()),
            profile: Some(StoredProfile {
                profile,
                token: Sealed(vec![1]),
                version: 1,
                credentials_version: 1,
                verification_version: 1,
                history: VerificationRecord::verified(NOW).history,
            }),
            quoted: None,
            now: NOW,
        }
    }

    #[test]
    fn service_window_closes_exactly_after_24_hours() {
        let at = |since: Option<Duration>| {
            let last_inbound_at = since.map(|since| NOW - since);
            prepare(
                ACCOUNT,
                &ReplyFacts {
                    last_inbound_at,
                    ..facts()
                },
                &cipher(),
            )
            .err()
        };
        assert_eq!(at(Some(Duration::ZERO)), None);
        assert_eq!(at(Some(-Duration::HOUR)), None, "a clock that is ahead");
        assert_eq!(at(Some(WINDOW - Duration::MICROSECOND)), None);
        assert_eq!(at(Some(WINDOW)), Some(ReplyRefusal::WindowClosed));
        assert_eq!(at(None), Some(ReplyRefusal::WindowClosed));
    }

    #[test]
    fn reply_prefers_phone_then_wa_id_then_user_id() {
        let to = |facts| prepare(ACCOUNT, &facts, &cipher()).map(|(_, to)| to);
        assert_eq!(to(facts()), Ok(Addressee::Phone("+5511961234567".into())));
        let raw = ReplyFacts {
            phone: None,
            wa_id: Some("99".into()),
            ..facts()
        };
        assert_eq!(to(raw.clone()), Ok(Addressee::Phone("+99".into())));
        let user = ReplyFacts { wa_id: None, ..raw };
        assert_eq!(to(user.clone()), Ok(Addressee::User("BR.1".into())));
        assert_eq!(
            to(ReplyFacts {
                wa_user_id: None,
                ..user
            }),
            Err(ReplyRefusal::NoAddress)
        );
    }

    #[test]
    fn reply_without_number_or_token_is_refused() {
        let profile = facts().profile.map(|profile| StoredProfile {
            token: Sealed(vec![0]),
            ..profile
        });
        for profile in [None, profile] {
            let refused = prepare(ACCOUNT, &ReplyFacts { profile, ..facts() }, &cipher());
            assert_eq!(refused.err(), Some(ReplyRefusal::NoNumber));
        }
    }

    #[test]
    fn every_outcome_maps_to_a_reply_result() {
        let text = || "m".to_owned();
        let refused = [
            SendOutcome::Failed {
                code: 131_047,
                class: ErrorClass::WindowClosed,
                message: text(),
            },
            SendOutcome::RunBlocked {
                code: 131_047,
                cause: BlockCause::Token,
                message: text(),
            },
            SendOutcome::Throttled {
                code: Some(131_047),
                scope: None,
                message: text(),
                retry_after: None,
            },
        ];
        for outcome in refused {
            let (result, error) = to_result(outcome);
            assert_eq!(
                result,
                ReplyResult::Failed {
                    message: text(),
                    opted_out: false
                }
            );
            assert!(matches!(error, Some(GatewayError::Refused { code: 131_047, .. })));
        }
        let (result, error) = to_result(SendOutcome::Throttled {
            code: None,
            scope: None,
            message: text(),
            retry_after: None,
        });
        assert_eq!(
            result,
            ReplyResult::Failed {
                message: text(),
                opted_out: false
            }
        );
        assert!(matches!(error, Some(GatewayError::Unavailable(_))));
        let (result, error) = to_result(SendOutcome::Unknown { detail: text() });
        assert!(result == ReplyResult::Unknown && error.is_none());
        let (result, error) = to_result(SendOutcome::Accepted {
            message_id: text(),
            wa_id: None,
        });
        assert!(
            result
                == ReplyResult::Sent {
                    message_id: text(),
                    wa_id: None
                }
                && error.is_none()
        );
    }
}
