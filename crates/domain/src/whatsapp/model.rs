//! Connected numbers.

use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::{FieldErrors, ProfileId, Sealed, StoreError, timestamp};

/// The platform's code of a message to somebody who stopped marketing messages.
pub const STOPPED_MARKETING: i64 = 131_050;

/// A connected WhatsApp number, as published: the token is never part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Its id.
    pub id: ProfileId,
    /// 1 to 100 characters.
    pub name: String,
    /// The platform's id of the number, digits.
    pub phone_number_id: String,
    /// The platform's id of the business account, digits.
    pub waba_id: String,
    /// The number's own pace; none for the server's default delay between messages.
    pub messages_per_second: Option<i32>,
    /// When it was connected.
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
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
}

/// What a call to the platform is made with.
#[derive(Clone, Debug)]
pub struct Line {
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
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ProfileError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
