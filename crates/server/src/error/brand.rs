//! Responses for errors of the brand context.

use recado_domain::brand::{BrandError, ExtractError};

use super::ApiError;

impl From<BrandError> for ApiError {
    fn from(error: BrandError) -> Self {
        match error {
            BrandError::Invalid(errors) => errors.into(),
            BrandError::Extractor(error) => Self::Extraction(error),
            BrandError::Store(error) => error.into(),
        }
    }
}

/// The published message for an error of the AI service. The cause is only logged.
pub(super) fn message(error: &ExtractError) -> &'static str {
    match error {
        ExtractError::NotConfigured => "The AI service is not configured",
        ExtractError::Failed(_) => "The AI service is unavailable",
    }
}
