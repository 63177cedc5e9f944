//! The errors of accounts, sessions and API keys.

use recado_domain::accounts::{AccountError, SessionError};
use recado_domain::api_keys::ApiKeyError;

use super::{ApiError, RefusalReason};

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::NotMember | AccountError::NoAccount => {
                Self::Auth(RefusalReason::NotMember, error.to_string())
            }
            AccountError::SessionEnded => Self::Auth(
                RefusalReason::InvalidSession,
                "The session has ended; sign in again".to_owned(),
            ),
            AccountError::NotAdministrator => Self::Auth(
                RefusalReason::Administrator,
                "Requires a platform administrator".to_owned(),
            ),
            AccountError::SignInTooOld => Self::Auth(
                RefusalReason::Administrator,
                "The sign-in is too long ago for this operation; sign in again".to_owned(),
            ),
            AccountError::Suspended => Self::Auth(RefusalReason::Suspended, error.to_string()),
            AccountError::Invalid(errors) => errors.into(),
            AccountError::Store(error) => error.into(),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Invalid => Self::Auth(
                RefusalReason::InvalidSession,
                "The session is missing, expired or invalid".to_owned(),
            ),
            SessionError::Unavailable(_) => Self::Unavailable(error.into()),
        }
    }
}

impl From<ApiKeyError> for ApiError {
    fn from(error: ApiKeyError) -> Self {
        match error {
            ApiKeyError::Unknown => Self::Auth(RefusalReason::UnknownKey, error.to_string()),
            ApiKeyError::Suspended => Self::Auth(RefusalReason::Suspended, error.to_string()),
            ApiKeyError::NotFound => Self::NotFound,
            ApiKeyError::Expired => Self::StateRefused(error.to_string(), "expired"),
            ApiKeyError::Conflict(conflict) => conflict.into(),
            ApiKeyError::Invalid(errors) => errors.into(),
            ApiKeyError::Store(error) => error.into(),
        }
    }
}
