//! Responses for errors of the administration context.

use recado_domain::administration::AdministrationError;

use super::ApiError;

impl From<AdministrationError> for ApiError {
    fn from(error: AdministrationError) -> Self {
        match error {
            AdministrationError::NotFound => Self::NotFound,
            AdministrationError::Invalid(errors) => errors.into(),
            AdministrationError::Conflict(conflict) => conflict.into(),
            AdministrationError::Gateway(error) => Self::Payment(error),
            AdministrationError::Media(error) => Self::Storage(error),
            AdministrationError::Store(error) => error.into(),
        }
    }
}
