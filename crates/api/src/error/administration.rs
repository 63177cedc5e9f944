//! Responses for errors of the administration context.

use recado_domain::administration::AdministrationError;

use super::ApiError;

impl From<AdministrationError> for ApiError {
    fn from(error: AdministrationError) -> Self {
        match error {
            AdministrationError::NotFound => Self::not_found(),
            AdministrationError::Invalid(errors) => errors.into(),
            AdministrationError::Conflict(conflict) => conflict.into(),
            AdministrationError::Gateway(error) => error.into(),
            AdministrationError::Media(error) => error.into(),
            AdministrationError::Store(error) => error.into(),
        }
    }
}
