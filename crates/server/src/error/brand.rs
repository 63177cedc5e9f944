//! How the brand context refuses.

use recado_domain::brand::{BrandError, ExtractError};

use super::ApiError;

impl From<BrandError> for ApiError {
    fn from(error: BrandError) -> Self {
        match error {
            BrandError::Invalid(errors) => errors.into(),
            BrandError::Extractor(fault) => Self::Extraction(fault),
            BrandError::Store(error) => error.into(),
        }
    }
}

/// What the caller is told of the AI service.
pub(super) fn told(fault: &ExtractError) -> &'static str {
    match fault {
        ExtractError::NotConfigured => "The AI service is not configured",
        ExtractError::Failed(_) => "The AI service is unavailable",
    }
}
