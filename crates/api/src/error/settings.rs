//! Responses for errors of settings.

use recado_domain::settings::SettingsError;

use super::ApiError;

impl From<SettingsError> for ApiError {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Invalid(errors) => errors.into(),
            SettingsError::Store(error) => error.into(),
        }
    }
}
