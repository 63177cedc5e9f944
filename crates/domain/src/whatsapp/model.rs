//! Connected numbers.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{Conflict, FieldErrors, ProfileId, Sealed, StoreError, timestamp};

/// The platform's code of a message to somebody who stopped marketing messages.
pub const STOPPED_MARKETING: i64 = 131_050;

/// A connected WhatsApp number. Its access token is never part of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Profile {
    /// The profile's id.
    pub id: ProfileId,
    /// What the account calls it: 1 to 100 characters.
    #[schemars(example = "Loja Exemplo")]
    pub name: String,
    /// WhatsApp's id of the number.
    #[schemars(example = "106540352242922")]
    pub phone_number_id: String,
    /// WhatsApp's id of the business account.
    #[schemars(example = "102290129340398")]
    pub waba_id: String,
    /// How many messages a second campaigns send from it, 1 to 1000; null for the server's default pause between two
    /// messages.
    #[schemars(range(min = 1, max = 1000), example = 20)]
    pub messages_per_second: Option<i32>,
    /// When the number was connected.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When the profile was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

/// A number together with its token, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    /// What is published.
    pub profile: Profile,
    /// The access token, encrypted.
    pub token: Sealed,
    /// Raised by every change.
    pub version: i64,
}

/// What a call to the platform is made with.
#[derive(Clone, Debug)]
pub struct WhatsappCredentials {
    /// The platform's id of the number.
    pub phone_number_id: String,
    /// The platform's id of the business account.
    pub waba_id: String,
    /// The access token, in clear: memory only.
    pub token: SecretString,
}

/// What a caller wrote, unchecked. Absent fields are kept on update; an inner none clears.
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
}

/// Why a profile operation did not happen.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// No such profile in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Other changes of the profile came first, again and again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ProfileError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
