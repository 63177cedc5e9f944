//! Responses for errors of the webhooks context.

use recado_domain::webhooks::{InboundCallError, WebhookError};

use super::{ApiError, ErrorCode, RefusalReason};

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::NotFound => Self::not_found(),
            WebhookError::Invalid(errors) => errors.into(),
            WebhookError::Refused(refusal) => Self::new(ErrorCode::Precondition, refusal.to_string()),
            WebhookError::Conflict(conflict) => conflict.into(),
            WebhookError::Store(error) => error.into(),
        }
    }
}

impl From<InboundCallError> for ApiError {
    fn from(error: InboundCallError) -> Self {
        match error {
            InboundCallError::NotFound => Self::not_found(),
            InboundCallError::Unverified(error) => Self::auth(RefusalReason::CallbackSignature, error.to_string()),
            InboundCallError::Invalid(errors) => errors.into(),
            InboundCallError::Webhook(error) => error.into(),
        }
    }
}
