//! Connected numbers.

use secrecy::SecretString;
use thiserror::Error;
use time::OffsetDateTime;

use super::verification::{Check, NumberFacts, Verification, VerificationHistory, VerificationRecord};
use crate::shared::{Conflict, FieldErrors, ProfileId, Sealed, StoreError};

/// A connected WhatsApp number. The API never returns its access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub id: ProfileId,
    /// The account's own name for the number: 1 to 100 characters.
    pub name: String,
    /// WhatsApp's id of the number.
    pub phone_number_id: String,
    /// WhatsApp's id of the business account.
    pub waba_id: String,
    /// How many messages per second campaigns send from the number: 1 to 1000. Null: the server's default interval
    /// between two messages applies.
    pub messages_per_second: Option<i32>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// Whether WhatsApp has confirmed the number with the profile's token. Only a verified number sends and receives.
    pub verification: Verification,
    /// What WhatsApp says about the number.
    pub number: NumberFacts,
}

/// A number together with its token, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    pub profile: Profile,
    /// The access token, encrypted.
    pub token: Sealed,
    /// Every change increments it (optimistic locking).
    pub version: i64,
    /// Every change of the ids or the token increments it: a check with earlier ones records nothing.
    pub credentials_version: i64,
    /// Every change of the verification or of the number's values increments it (optimistic locking).
    pub verification_version: i64,
    /// The part of the verification that the API does not show.
    pub history: VerificationHistory,
}

impl StoredProfile {
    /// A verified number.
    #[cfg(any(test, feature = "mocks"))]
    pub fn for_tests(id: ProfileId, now: OffsetDateTime) -> Self {
        let VerificationRecord { verification, history } = VerificationRecord::verified(now);
        let profile = Profile {
            id,
            name: "Loja".into(),
            phone_number_id: "1065".into(),
            waba_id: "1022".into(),
            messages_per_second: None,
            created_at: now,
            updated_at: now,
            verification,
            number: NumberFacts::default(),
        };
        Self {
            profile,
            token: Sealed(vec![1]),
            version: 1,
            credentials_version: 1,
            verification_version: 1,
            history,
        }
    }

    /// The profile's verification with its history.
    pub fn verification_record(&self) -> VerificationRecord {
        VerificationRecord {
            verification: self.profile.verification.clone(),
            history: self.history.clone(),
        }
    }
}

/// Unchecked input. On update, an absent field is unchanged and an inner none clears the value.
#[derive(Clone, Debug, Default)]
pub struct ProfileInput {
    /// Required on create.
    pub name: Option<String>,
    /// Required on create.
    pub phone_number_id: Option<String>,
    /// Required on create.
    pub waba_id: Option<String>,
    /// Required on create.
    pub access_token: Option<SecretString>,
    /// 1 to 1000.
    pub messages_per_second: Option<Option<i32>>,
    /// Six digits, with which the number is registered once. Never stored.
    pub pin: Option<SecretString>,
}

impl ProfileInput {
    /// Whether the input restarts the verification.
    pub fn has_credentials(&self) -> bool {
        self.phone_number_id.is_some() || self.waba_id.is_some() || self.access_token.is_some() || self.pin.is_some()
    }
}

#[derive(Debug, Error)]
pub enum ProfileError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Concurrent changes of the profile won every attempt.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// WhatsApp could not be asked at least one of these checks.
    #[error("WhatsApp could not be asked; try again later")]
    Unanswered(Vec<Check>),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ProfileError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
