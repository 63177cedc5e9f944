//! Responses for errors of retention, archives, and exports and erasures of contacts.

use recado_domain::contact_exports::ContactExportError;
use recado_domain::erasures::ErasureError;
use recado_domain::retention::{ArchiveError, RetentionError};

use super::ApiError;

impl From<RetentionError> for ApiError {
    fn from(error: RetentionError) -> Self {
        match error {
            RetentionError::Invalid(errors) => errors.into(),
            RetentionError::Conflict(conflict) => conflict.into(),
            RetentionError::Store(error) => error.into(),
        }
    }
}

impl From<ContactExportError> for ApiError {
    fn from(error: ContactExportError) -> Self {
        match error {
            ContactExportError::NotFound => Self::not_found(),
            ContactExportError::Store(error) => error.into(),
        }
    }
}

impl From<ErasureError> for ApiError {
    fn from(error: ErasureError) -> Self {
        match error {
            ErasureError::NotFound => Self::not_found(),
            ErasureError::Invalid(errors) => errors.into(),
            ErasureError::Store(error) => error.into(),
        }
    }
}

impl From<ArchiveError> for ApiError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::NotFound => Self::not_found(),
            ArchiveError::Store(error) => error.into(),
        }
    }
}
