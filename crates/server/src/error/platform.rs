//! How the platform's administration refuses.

use recado_domain::platform::PlatformError;

use super::ApiError;

impl From<PlatformError> for ApiError {
    fn from(error: PlatformError) -> Self {
        match error {
            PlatformError::NotFound => Self::NotFound,
            PlatformError::Invalid(errors) => errors.into(),
            PlatformError::Contended => Self::Conflict(error.to_string()),
            PlatformError::Media(error) => Self::Storage(error),
            PlatformError::Store(error) => error.into(),
        }
    }
}
