//! The errors of direct messages.

use recado_domain::direct_messages::DirectMessageError;
use recado_domain::shared::{RouteScope, ScopeArea, ScopeVerb};
use serde_json::json;

use super::{ApiError, ErrorCode};

impl From<DirectMessageError> for ApiError {
    fn from(error: DirectMessageError) -> Self {
        match error {
            DirectMessageError::NotFound => Self::not_found(),
            DirectMessageError::Invalid(errors) => errors.into(),
            DirectMessageError::Forbidden => match RouteScope::new(ScopeArea::Messages, ScopeVerb::Write) {
                Some(scope) => Self::missing_scope(scope),
                None => Self::internal("messages have no scope for writing"),
            },
            DirectMessageError::Refused(refusal) => {
                Self::new(ErrorCode::Precondition, refusal.to_string()).details(refusal.details())
            }
            DirectMessageError::ReferenceTaken(id) => {
                Self::new(ErrorCode::Conflict, error.to_string()).details(json!({ "id": id }))
            }
            DirectMessageError::AlreadyLeft => Self::state_refused(error.to_string(), "already_left"),
            DirectMessageError::Conflict(conflict) => conflict.into(),
            DirectMessageError::Store(error) => error.into(),
        }
    }
}
