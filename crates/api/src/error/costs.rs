//! Responses for errors of the costs context.

use recado_domain::costs::RateCardError;
use serde_json::json;

use super::{ApiError, ErrorCode};

impl From<RateCardError> for ApiError {
    fn from(error: RateCardError) -> Self {
        match error {
            RateCardError::NotFound => Self::not_found(),
            RateCardError::Invalid(errors) => errors.into(),
            RateCardError::InvalidLines(errors) => Self::of(ErrorCode::Invalid).details(json!({ "errors": errors })),
            refusal @ RateCardError::InUse => Self::state_refused(refusal.to_string(), "in_use"),
            RateCardError::Store(error) => error.into(),
        }
    }
}
