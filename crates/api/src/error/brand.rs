//! Responses for errors of the brand context.

use recado_domain::brand::BrandError;

use super::ApiError;

impl From<BrandError> for ApiError {
    fn from(error: BrandError) -> Self {
        match error {
            BrandError::Invalid(errors) => errors.into(),
            BrandError::Extractor(error) => error.into(),
            BrandError::Store(error) => error.into(),
        }
    }
}
