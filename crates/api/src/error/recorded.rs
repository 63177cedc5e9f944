//! Responses for errors of ingestion, links, automations and analytics.

use recado_domain::analytics::AnalyticsError;
use recado_domain::automations::AutomationError;
use recado_domain::ingestion::IngestionError;
use recado_domain::links::LinkError;

use super::ApiError;

impl From<IngestionError> for ApiError {
    fn from(error: IngestionError) -> Self {
        match error {
            IngestionError::Invalid(errors) => errors.into(),
            IngestionError::Store(error) => error.into(),
        }
    }
}

impl From<LinkError> for ApiError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::NotFound => Self::not_found(),
            LinkError::Invalid(errors) => errors.into(),
            LinkError::Store(error) => error.into(),
        }
    }
}

impl From<AutomationError> for ApiError {
    fn from(error: AutomationError) -> Self {
        match error {
            AutomationError::NotFound => Self::not_found(),
            AutomationError::Invalid(errors) => errors.into(),
            AutomationError::Store(error) => error.into(),
        }
    }
}

impl From<AnalyticsError> for ApiError {
    fn from(error: AnalyticsError) -> Self {
        match error {
            AnalyticsError::NotFound => Self::not_found(),
            AnalyticsError::Invalid(errors) => errors.into(),
            AnalyticsError::Store(error) => error.into(),
        }
    }
}
