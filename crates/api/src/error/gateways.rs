//! Responses for errors of other systems. The cause is logged; only WhatsApp's own error is published.

use recado_domain::billing::PaymentGatewayError;
use recado_domain::brand::ExtractError;
use recado_domain::media::MediaStoreError;
use recado_domain::shared::GatewayError;
use serde_json::json;

use super::{ApiError, ErrorCode};

impl From<GatewayError> for ApiError {
    fn from(error: GatewayError) -> Self {
        let response = match &error {
            GatewayError::Refused { code, message } => {
                Self::new(ErrorCode::Whatsapp, message.clone()).details(json!({ "code": code, "message": message }))
            }
            GatewayError::Unavailable(_) => Self::of(ErrorCode::Whatsapp),
            GatewayError::NotConfigured(service) => {
                Self::new(ErrorCode::Whatsapp, format!("{service} is not configured"))
            }
        };
        response.caused_by(error)
    }
}

impl From<PaymentGatewayError> for ApiError {
    fn from(error: PaymentGatewayError) -> Self {
        let response = match error {
            PaymentGatewayError::NotConfigured => {
                Self::new(ErrorCode::Payment, "The payment gateway is not configured")
            }
            _ => Self::of(ErrorCode::Payment),
        };
        response.caused_by(error)
    }
}

impl From<ExtractError> for ApiError {
    fn from(error: ExtractError) -> Self {
        let response = match error {
            ExtractError::NotConfigured => Self::new(ErrorCode::Extraction, "The AI service is not configured"),
            ExtractError::Failed(_) => Self::of(ErrorCode::Extraction),
        };
        response.caused_by(error)
    }
}

impl From<MediaStoreError> for ApiError {
    fn from(error: MediaStoreError) -> Self {
        match error {
            MediaStoreError::NotConfigured => Self::new(ErrorCode::Storage, "The media store is not configured"),
            MediaStoreError::Failed(cause) => Self::of(ErrorCode::Storage).caused_by(cause),
        }
    }
}
