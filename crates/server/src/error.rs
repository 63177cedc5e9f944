//! Maps every error to one HTTP response: status, code, message and details. The internal cause is logged once, here,
//! with the request's id. The response contains only what the caller can act on.

use std::fmt;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use recado_domain::audit::AuditError;
use recado_domain::billing::{Description, PaymentGatewayError};
use recado_domain::brand::ExtractError;
use recado_domain::campaigns::{CampaignError, CampaignRefusal, TestSendError};
use recado_domain::contacts::ContactError;
use recado_domain::conversations::{ConversationError, ReplyRefusal};
use recado_domain::folders::FolderError;
use recado_domain::limits::RateLimitDecision;
use recado_domain::media::{MediaError, MediaStoreError};
use recado_domain::notifications::NotificationError;
use recado_domain::segments::SegmentError;
use recado_domain::shared::{Conflict, FieldErrors, GatewayError, RouteScope, StoreError};
use recado_domain::team::TeamError;
use recado_domain::templates::TemplateError;
use recado_domain::whatsapp::ProfileError;
use recado_domain::whatsapp::verification::Check;
use serde_json::{Value, json};

use crate::streams::ListenError;

mod administration;
mod billing;
mod brand;
mod identity;
mod limits;
mod recorded;
mod refusal;
mod webhooks;

pub use limits::ReachedLimit;
pub use refusal::RefusalReason;

/// The error of a request. Each variant is one response.
#[derive(Debug)]
pub enum ApiError {
    /// 401 `AUTH_ERROR`: the caller is not authenticated or not permitted.
    Auth(RefusalReason, String),
    /// 403 `FORBIDDEN`.
    Forbidden(&'static str),
    /// 403 `FORBIDDEN`: the API key lacks this scope.
    MissingScope(RouteScope),
    /// 403 `FORBIDDEN`, as a security event.
    Denied(RefusalReason, &'static str),
    /// 404 `NOT_FOUND`.
    NotFound,
    /// 405 `METHOD_NOT_ALLOWED`, with the value of the `Allow` header.
    MethodNotAllowed(String),
    /// 409 `CONFLICT`: a concurrent request or an existing resource prevents this one.
    Conflict(String),
    /// 408 `REQUEST_TIMEOUT`: the body did not arrive in time.
    SlowBody,
    /// 413 `PAYLOAD_TOO_LARGE`.
    TooLarge,
    /// 415 `UNSUPPORTED_MEDIA_TYPE`, with the accepted media type.
    MediaType(&'static str),
    /// 422 `VALIDATION_ERROR`.
    Invalid(FieldErrors),
    /// 400 `VALIDATION_ERROR`: the resource's current state does not allow the operation.
    Precondition(String),
    /// 400 `VALIDATION_ERROR`, with a message and the published reason.
    StateRefused(String, &'static str),
    /// 400 `VALIDATION_ERROR`: a precondition of the campaign failed.
    Refused(CampaignRefusal),
    /// 429 `RATE_LIMIT`.
    RateLimited(RateLimitDecision),
    /// 429 `RATE_LIMIT`: a limit that counts things is reached.
    LimitReached(ReachedLimit),
    /// 502 `WHATSAPP_ERROR`.
    Whatsapp(GatewayError),
    /// 502 `WHATSAPP_ERROR`: WhatsApp could not be asked at least one of these checks.
    UnansweredChecks(Vec<Check>),
    /// 502 `WHATSAPP_ERROR`: the outcome of the call to WhatsApp is unknown; it may have succeeded.
    Unconfirmed(String),
    /// 422 `VALIDATION_ERROR`: the payment gateway rejected the input, with the gateway's messages.
    RefusedPayment(Vec<Description>),
    /// 502 `PAYMENT_ERROR`.
    Payment(PaymentGatewayError),
    /// 502 `VPS_ERROR`: the AI service.
    Extraction(ExtractError),
    /// 502 `STORAGE_ERROR`: the media store.
    Storage(MediaStoreError),
    /// 503 `UNAVAILABLE`: the database or this server cannot serve the request now.
    Unavailable(Cause),
    /// 500 `INTERNAL_ERROR`
    Internal(Cause),
}

/// The cause of a 5xx. It has no `Display`, so that it can only be logged, never returned to the caller.
#[derive(Debug)]
pub struct Cause(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Cause {
    fn chain(&self) -> String {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(error) = next {
            text.push_str(": ");
            text.push_str(&error.to_string());
            next = error.source();
        }
        text
    }
}

impl ApiError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Auth(..) => "AUTH_ERROR",
            Self::Forbidden(_) | Self::MissingScope(_) | Self::Denied(..) => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed(_) => "METHOD_NOT_ALLOWED",
            Self::Conflict(_) => "CONFLICT",
            Self::SlowBody => "REQUEST_TIMEOUT",
            Self::TooLarge => "PAYLOAD_TOO_LARGE",
            Self::MediaType(_) => "UNSUPPORTED_MEDIA_TYPE",
            Self::Invalid(_)
            | Self::Precondition(_)
            | Self::StateRefused(..)
            | Self::Refused(_)
            | Self::RefusedPayment(_) => "VALIDATION_ERROR",
            Self::Payment(_) => "PAYMENT_ERROR",
            Self::RateLimited(_) | Self::LimitReached(_) => "RATE_LIMIT",
            Self::Whatsapp(_) | Self::Unconfirmed(_) | Self::UnansweredChecks(_) => "WHATSAPP_ERROR",
            Self::Extraction(_) => "VPS_ERROR",
            Self::Storage(_) => "STORAGE_ERROR",
            Self::Unavailable(_) => "UNAVAILABLE",
            Self::Internal(_) => "INTERNAL_ERROR",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Auth(_, message)
            | Self::Precondition(message)
            | Self::Conflict(message)
            | Self::StateRefused(message, _)
            | Self::Unconfirmed(message) => message.clone(),
            Self::MissingScope(scope) => format!("The API key does not have the scope {scope}"),
            Self::Refused(refusal) => refusal.to_string(),
            Self::Forbidden(message) | Self::Denied(_, message) => (*message).to_owned(),
            Self::LimitReached(reached) => reached.message.clone(),
            Self::NotFound => "Not found".to_owned(),
            Self::MethodNotAllowed(allowed) => format!("Method not allowed; this path accepts {allowed}"),
            Self::SlowBody => "The request body did not arrive in time".to_owned(),
            Self::TooLarge => "The request body is too large".to_owned(),
            Self::MediaType(accepted) => format!("The request body must be {accepted}"),
            Self::Invalid(_) => "Invalid data".to_owned(),
            Self::RateLimited(_) => "Too many requests".to_owned(),
            Self::Whatsapp(error) => match error {
                GatewayError::Refused { message, .. } => message.clone(),
                GatewayError::Unavailable(_) => "WhatsApp is unavailable; try again later".to_owned(),
                GatewayError::NotConfigured(service) => format!("{service} is not configured"),
            },
            Self::UnansweredChecks(_) => "WhatsApp could not be asked; try again later".to_owned(),
            Self::RefusedPayment(texts) => {
                let texts: Vec<&str> = texts.iter().map(|text| text.description.as_str()).collect();
                format!("The payment gateway rejected the request: {}", texts.join(" "))
            }
            Self::Payment(PaymentGatewayError::NotConfigured) => "The payment gateway is not configured".to_owned(),
            Self::Payment(_) => "The payment gateway is unavailable".to_owned(),
            Self::Extraction(error) => brand::message(error).to_owned(),
            Self::Storage(MediaStoreError::NotConfigured) => "The media store is not configured".to_owned(),
            Self::Storage(MediaStoreError::Failed(_)) => "The media store is unavailable".to_owned(),
            Self::Unavailable(_) => "The service is temporarily unavailable".to_owned(),
            Self::Internal(_) => "Internal error".to_owned(),
        }
    }

    fn details(&self) -> Value {
        match self {
            Self::Invalid(FieldErrors(fields)) => json!({ "fields": fields }),
            Self::Refused(refusal) => refusal.details(),
            Self::StateRefused(_, reason) => json!({ "reason": reason }),
            Self::MissingScope(scope) => json!({ "required_scope": scope.to_string() }),
            Self::Whatsapp(GatewayError::Refused { code, message }) => json!({ "code": code, "message": message }),
            Self::UnansweredChecks(checks) => json!({ "checks": checks }),
            Self::RefusedPayment(texts) => json!({ "fields": billing::messages_by_field(texts), "errors": texts }),
            Self::Auth(..)
            | Self::Forbidden(_)
            | Self::Denied(..)
            | Self::NotFound
            | Self::MethodNotAllowed(_)
            | Self::Conflict(_)
            | Self::SlowBody
            | Self::TooLarge
            | Self::MediaType(_)
            | Self::Precondition(_)
            | Self::RateLimited(_)
            | Self::LimitReached(_)
            | Self::Whatsapp(GatewayError::Unavailable(_) | GatewayError::NotConfigured(_))
            | Self::Unconfirmed(_)
            | Self::Payment(_)
            | Self::Extraction(_)
            | Self::Storage(_)
            | Self::Unavailable(_)
            | Self::Internal(_) => json!({}),
        }
    }

    /// Why the caller was refused, if this is a security event.
    pub fn refusal(&self) -> Option<RefusalReason> {
        match self {
            Self::Auth(reason, _) | Self::Denied(reason, _) => Some(*reason),
            Self::MissingScope(_) => Some(RefusalReason::Scope),
            _ => None,
        }
    }

    fn log(&self) {
        match self {
            Self::Internal(cause) => tracing::error!(cause = cause.chain(), "request failed"),
            Self::Unavailable(cause) => tracing::warn!(cause = cause.chain(), "request failed: service unavailable"),
            Self::Storage(MediaStoreError::Failed(cause)) => tracing::warn!(%cause, "request failed: media store"),
            Self::Whatsapp(error) => tracing::warn!(cause = %error, "request failed: WhatsApp"),
            Self::Extraction(error) => tracing::warn!(cause = %error, "request failed: AI service"),
            Self::Payment(error) => tracing::warn!(cause = %error, "request failed: payment gateway"),
            _ => {}
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Auth(..) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) | Self::MissingScope(_) | Self::Denied(..) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid(_) | Self::RefusedPayment(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Precondition(_) | Self::StateRefused(..) | Self::Refused(_) => StatusCode::BAD_REQUEST,
            Self::RateLimited(_) | Self::LimitReached(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Whatsapp(_) | Self::Unconfirmed(_) | Self::Payment(_) | Self::Storage(_) => StatusCode::BAD_GATEWAY,
            Self::Extraction(_) | Self::UnansweredChecks(_) => StatusCode::BAD_GATEWAY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        self.log();
        let mut response = HttpResponse::build(self.status_code());
        match self {
            Self::MethodNotAllowed(allowed) => {
                response.insert_header((header::ALLOW, allowed.as_str()));
            }
            Self::RateLimited(decision) => {
                response.insert_header((header::RETRY_AFTER, (decision.wait_ms.max(1) + 999) / 1000));
            }
            Self::LimitReached(reached) => reached.write_headers(&mut response),
            Self::Unavailable(_) => {
                response.insert_header((header::RETRY_AFTER, 1));
            }
            _ => {}
        }
        if let Some(reason) = self.refusal() {
            // The outermost middleware counts and logs it with the caller and the route.
            response.extensions_mut().insert(reason);
        }
        let error = json!({ "code": self.code(), "message": self.message(), "details": self.details() });
        response.json(json!({ "error": error }))
    }
}

impl From<FieldErrors> for ApiError {
    fn from(errors: FieldErrors) -> Self {
        Self::Invalid(errors)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Unavailable(error.into()),
            StoreError::Duplicate { .. } | StoreError::UnknownReference { .. } => match error.into_field_errors() {
                Ok(errors) => Self::Invalid(errors),
                Err(error) => Self::Internal(error.into()),
            },
            StoreError::Corrupt(_) | StoreError::Failed(_) => Self::Internal(error.into()),
        }
    }
}

impl From<AuditError> for ApiError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Store(error) => error.into(),
        }
    }
}

impl From<ContactError> for ApiError {
    fn from(error: ContactError) -> Self {
        match error {
            ContactError::NotFound => Self::NotFound,
            ContactError::Invalid(errors) => errors.into(),
            ContactError::Conflict(conflict) => conflict.into(),
            ContactError::Store(error) => error.into(),
        }
    }
}

impl From<SegmentError> for ApiError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::NotFound => Self::NotFound,
            SegmentError::Invalid(errors) => errors.into(),
            SegmentError::Store(error) => error.into(),
        }
    }
}

impl From<ConversationError> for ApiError {
    fn from(error: ConversationError) -> Self {
        match error {
            ConversationError::NotFound => Self::NotFound,
            ConversationError::Invalid(errors) => errors.into(),
            ConversationError::Refused(refusal @ ReplyRefusal::NumberUnverified) => {
                Self::StateRefused(refusal.to_string(), "number_unverified")
            }
            ConversationError::Refused(refusal) => Self::Precondition(refusal.to_string()),
            ConversationError::Gateway(error) => Self::Whatsapp(error),
            ConversationError::Store(error) => error.into(),
        }
    }
}

impl From<FolderError> for ApiError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::NotFound => Self::NotFound,
            FolderError::Invalid(errors) => errors.into(),
            FolderError::Store(error) => error.into(),
        }
    }
}

impl From<NotificationError> for ApiError {
    fn from(error: NotificationError) -> Self {
        match error {
            NotificationError::NotFound => Self::NotFound,
            NotificationError::Store(error) => error.into(),
        }
    }
}

impl From<ListenError> for ApiError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Full => Self::Unavailable("the limit of open notification streams is reached".into()),
            ListenError::Store(error) => error.into(),
        }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::NotFound => Self::NotFound,
            TemplateError::Invalid(errors) => errors.into(),
            TemplateError::Gateway(error) => Self::Whatsapp(error),
            TemplateError::Media(error) => Self::Storage(error),
            TemplateError::ChangedDuringSubmission => Self::Conflict(error.to_string()),
            TemplateError::Conflict(conflict) => conflict.into(),
            TemplateError::Store(error) => error.into(),
        }
    }
}

impl From<MediaError> for ApiError {
    fn from(error: MediaError) -> Self {
        match error {
            MediaError::Invalid(errors) => errors.into(),
            MediaError::Store(error) => Self::Storage(error),
        }
    }
}

impl From<ProfileError> for ApiError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::NotFound => Self::NotFound,
            ProfileError::Invalid(errors) => errors.into(),
            ProfileError::Conflict(conflict) => conflict.into(),
            ProfileError::Unanswered(checks) => Self::UnansweredChecks(checks),
            ProfileError::Store(error) => error.into(),
        }
    }
}

impl From<Conflict> for ApiError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict.to_string())
    }
}

impl From<TeamError> for ApiError {
    fn from(error: TeamError) -> Self {
        match error {
            TeamError::NotFound => Self::NotFound,
            TeamError::NotPermitted => Self::Auth(RefusalReason::Role, error.to_string()),
            TeamError::OtherAddress => Self::Forbidden("This invite was sent to another e-mail address"),
            TeamError::Invalid(errors) => errors.into(),
            TeamError::Conflict(conflict) => conflict.into(),
            TeamError::Store(error) => error.into(),
        }
    }
}

impl From<TestSendError> for ApiError {
    fn from(error: TestSendError) -> Self {
        match error {
            TestSendError::NotFound => Self::NotFound,
            TestSendError::Invalid(errors) => errors.into(),
            TestSendError::Refused(refusal) => Self::Refused(refusal),
            TestSendError::Unready(message) => Self::Precondition(message),
            TestSendError::Media(error) => Self::Storage(error),
            TestSendError::Gateway(error) => Self::Whatsapp(error),
            TestSendError::Unknown => Self::Unconfirmed(error.to_string()),
            TestSendError::Store(error) => error.into(),
        }
    }
}

impl From<CampaignError> for ApiError {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::NotFound => Self::NotFound,
            CampaignError::Invalid(errors) => errors.into(),
            CampaignError::Refused(refusal) => Self::Refused(refusal),
            CampaignError::Interrupted => Self::Unavailable(error.into()),
            CampaignError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
