//! The errors of accounts, sessions and API keys.

use recado_domain::accounts::{AccountError, SessionError};
use recado_domain::api_keys::ApiKeyError;

use super::{ApiError, RefusalReason};

impl From<AccountError> for ApiError {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::NotMember | AccountError::NoAccount => {
                Self::auth(RefusalReason::NotMember, error.to_string())
            }
            AccountError::SessionEnded => {
                Self::auth(RefusalReason::InvalidSession, "The session has ended; sign in again")
            }
            AccountError::NotAdministrator => {
                Self::auth(RefusalReason::Administrator, "Requires a platform administrator")
            }
            AccountError::SignInTooOld => Self::auth(
                RefusalReason::Administrator,
                "The sign-in is too long ago for this operation; sign in again",
            ),
            AccountError::Suspended => Self::auth(RefusalReason::Suspended, error.to_string()),
            AccountError::Invalid(errors) => errors.into(),
            AccountError::Store(error) => error.into(),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Invalid => Self::auth(
                RefusalReason::InvalidSession,
                "The session is missing, expired or invalid",
            ),
            SessionError::Unavailable(_) => Self::unavailable(error),
        }
    }
}

impl From<ApiKeyError> for ApiError {
    fn from(error: ApiKeyError) -> Self {
        match error {
            ApiKeyError::Unknown => Self::auth(RefusalReason::UnknownKey, error.to_string()),
            ApiKeyError::Suspended => Self::auth(RefusalReason::Suspended, error.to_string()),
            ApiKeyError::NotFound => Self::not_found(),
            ApiKeyError::Expired => Self::state_refused(error.to_string(), "expired"),
            ApiKeyError::Conflict(conflict) => conflict.into(),
            ApiKeyError::Invalid(errors) => errors.into(),
            ApiKeyError::Store(error) => error.into(),
        }
    }
}
