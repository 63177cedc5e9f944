//! How webhooks refuse.

use recado_domain::webhooks::{CallError, WebhookError};

use super::ApiError;

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::NotFound => Self::NotFound,
            WebhookError::Invalid(errors) => errors.into(),
            WebhookError::Refused(refusal) => Self::Precondition(refusal.to_string()),
            WebhookError::Conflict(conflict) => conflict.into(),
            WebhookError::Store(error) => error.into(),
        }
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotFound => Self::NotFound,
            CallError::Unverified(error) => Self::Auth(error.to_string()),
            CallError::Invalid(errors) => errors.into(),
            CallError::Webhook(error) => error.into(),
        }
    }
}
