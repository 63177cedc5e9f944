//! Maps every error to one HTTP response: status, code, message and details. The internal cause is logged once, here,
//! with the request's id. The response contains only what the caller can act on.

use std::borrow::Cow;
use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use recado_domain::audit::AuditError;
use recado_domain::campaigns::{CampaignError, CampaignRefusal, TestSendError};
use recado_domain::contacts::ContactError;
use recado_domain::conversations::{ConversationError, ReplyRefusal};
use recado_domain::direct_messages::DirectMessageError;
use recado_domain::folders::FolderError;
use recado_domain::limits::RateLimitDecision;
use recado_domain::media::{FileAccessError, FileState, MediaError};
use recado_domain::notifications::NotificationError;
use recado_domain::segments::SegmentError;
use recado_domain::shared::{Conflict, FieldErrors, RouteScope, StoreError};
use recado_domain::team::TeamError;
use recado_domain::templates::TemplateError;
use recado_domain::whatsapp::ProfileError;
use serde_json::{Value, json};

use crate::error_chain::chain;

mod administration;
mod billing;
mod brand;
mod codes;
mod costs;
mod direct_messages;
mod gateways;
mod identity;
mod limits;
mod recorded;
mod refusal;
mod retention;
mod settings;
mod webhooks;

pub use codes::ErrorCode;
pub use limits::ReachedLimit;
pub use refusal::RefusalReason;

/// How a caller authenticates (RFC 6750).
const CHALLENGE: &str = "Bearer realm=\"recado\"";
/// The caller's token or key is not valid.
const INVALID_TOKEN_CHALLENGE: &str = "Bearer realm=\"recado\", error=\"invalid_token\"";

/// The error of a request.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    message: Cow<'static, str>,
    details: Details,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Why the caller was refused, if this is a security event.
    refusal: Option<RefusalReason>,
    /// What the log contains and the response does not.
    cause: Option<Cause>,
}

/// `error.details` of a response.
#[derive(Debug)]
enum Details {
    Empty,
    Fields(FieldErrors),
    Other(Value),
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
        chain(self.0.as_ref())
    }
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Details::Empty,
            headers: vec![],
            refusal: None,
            cause: None,
        }
    }

    /// With the message of the code.
    fn of(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }

    /// 401: the caller is not authenticated or not permitted.
    pub fn auth(reason: RefusalReason, message: impl Into<Cow<'static, str>>) -> Self {
        let challenge = match reason {
            RefusalReason::InvalidSession | RefusalReason::UnknownKey => INVALID_TOKEN_CHALLENGE,
            _ => CHALLENGE,
        };
        let error = Self::new(ErrorCode::Auth, message).refused(reason);
        error.header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// 403, as a security event.
    pub fn denied(reason: RefusalReason, message: &'static str) -> Self {
        Self::new(ErrorCode::Forbidden, message).refused(reason)
    }

    /// 403: the API key lacks this scope.
    pub fn missing_scope(scope: RouteScope) -> Self {
        let message = format!("The API key does not have the scope {scope}");
        Self::new(ErrorCode::Forbidden, message)
            .details(json!({ "required_scope": scope.to_string() }))
            .refused(RefusalReason::Scope)
    }

    pub fn not_found() -> Self {
        Self::of(ErrorCode::NotFound)
    }

    /// `allowed` is the value of the `Allow` header.
    pub fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("Method not allowed; this path accepts {allowed}");
        let error = Self::new(ErrorCode::MethodNotAllowed, message);
        match HeaderValue::from_str(allowed) {
            Ok(value) => error.header(header::ALLOW, value),
            Err(_) => error,
        }
    }

    /// The body did not arrive in time.
    pub fn slow_body() -> Self {
        Self::of(ErrorCode::SlowBody)
    }

    pub fn too_large() -> Self {
        Self::of(ErrorCode::TooLarge)
    }

    /// `accepted` is the accepted media type.
    pub fn media_type(accepted: &'static str) -> Self {
        Self::new(ErrorCode::MediaType, format!("The request body must be {accepted}"))
    }

    /// The resource's current state does not allow the operation, for a published reason.
    /// `error` of the response.
    pub fn published(&self) -> Value {
        let details = match &self.details {
            Details::Empty => json!({}),
            Details::Fields(FieldErrors(fields)) => json!({ "fields": fields }),
            Details::Other(details) => details.clone(),
        };
        json!({ "code": self.code.as_str(), "message": self.message, "details": details })
    }

    fn state_refused(message: String, reason: &'static str) -> Self {
        Self::new(ErrorCode::Precondition, message).details(json!({ "reason": reason }))
    }

    /// The row has another entity tag than the request expects.
    pub fn changed(etag: &str) -> Self {
        let header_value = HeaderValue::from_str(etag);
        let error = Self::of(ErrorCode::Changed).details(json!({ "etag": etag }));
        header_value
            .into_iter()
            .fold(error, |error, value| error.header(header::ETAG, value))
    }

    pub fn rate_limited(decision: RateLimitDecision) -> Self {
        let seconds = (decision.wait_ms.max(1) + 999) / 1000;
        Self::of(ErrorCode::RateLimited).header(header::RETRY_AFTER, seconds.into())
    }

    /// The database or this server cannot serve the request now.
    pub fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::of(ErrorCode::Unavailable)
            .header(header::RETRY_AFTER, 1.into())
            .caused_by(cause)
    }

    pub fn internal(cause: impl Into<Cause>) -> Self {
        Self::of(ErrorCode::Internal).caused_by(cause)
    }

    fn details(self, details: Value) -> Self {
        Self {
            details: Details::Other(details),
            ..self
        }
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn refused(self, reason: RefusalReason) -> Self {
        Self {
            refusal: Some(reason),
            ..self
        }
    }

    fn caused_by(self, cause: impl Into<Cause>) -> Self {
        Self {
            cause: Some(cause.into()),
            ..self
        }
    }

    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Why the caller was refused, if this is a security event.
    pub fn refusal(&self) -> Option<RefusalReason> {
        self.refusal
    }

    /// The errors of the caller's input.
    pub fn field_errors(&self) -> Option<&FieldErrors> {
        match &self.details {
            Details::Fields(errors) => Some(errors),
            Details::Empty | Details::Other(_) => None,
        }
    }

    fn log(&self) {
        let Some(cause) = &self.cause else { return };
        match self.code {
            ErrorCode::Internal => tracing::error!(cause = cause.chain(), "request failed"),
            ErrorCode::Unavailable => tracing::warn!(cause = cause.chain(), "request failed: service unavailable"),
            code => tracing::warn!(cause = %cause.0, "request failed: {}", code.system()),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.as_str())
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        self.log();
        let mut response = HttpResponse::build(self.status_code());
        for (name, value) in &self.headers {
            response.insert_header((name, value));
        }
        if let Some(reason) = self.refusal {
            // The outermost middleware counts and logs it with the caller and the route.
            response.extensions_mut().insert(reason);
        }
        response.json(json!({ "error": self.published() }))
    }
}

impl From<FieldErrors> for ApiError {
    fn from(errors: FieldErrors) -> Self {
        Self {
            details: Details::Fields(errors),
            ..Self::of(ErrorCode::Invalid)
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::unavailable(error),
            StoreError::Duplicate { .. } | StoreError::UnknownReference { .. } => match error.into_field_errors() {
                Ok(errors) => errors.into(),
                Err(error) => Self::internal(error),
            },
            StoreError::Corrupt(_) | StoreError::Failed(_) => Self::internal(error),
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
            ContactError::NotFound => Self::not_found(),
            ContactError::Invalid(errors) => errors.into(),
            ContactError::Conflict(conflict) => conflict.into(),
            ContactError::Store(error) => error.into(),
        }
    }
}

impl From<SegmentError> for ApiError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::NotFound => Self::not_found(),
            SegmentError::Invalid(errors) => errors.into(),
            SegmentError::Store(error) => error.into(),
        }
    }
}

impl From<ConversationError> for ApiError {
    fn from(error: ConversationError) -> Self {
        match error {
            ConversationError::NotFound => Self::not_found(),
            ConversationError::Invalid(errors) => errors.into(),
            ConversationError::Refused(refusal @ ReplyRefusal::NumberUnverified) => {
                Self::state_refused(refusal.to_string(), "number_unverified")
            }
            ConversationError::Refused(refusal @ ReplyRefusal::NoNumber) => {
                Self::state_refused(refusal.to_string(), "number_unverified")
            }
            ConversationError::Refused(refusal @ ReplyRefusal::NoAddress) => {
                Self::state_refused(refusal.to_string(), "no_address")
            }
            ConversationError::Refused(refusal @ ReplyRefusal::WindowClosed) => {
                Self::state_refused(refusal.to_string(), "outside_window")
            }
            ConversationError::Refused(refusal @ ReplyRefusal::PhoneKnown) => {
                Self::state_refused(refusal.to_string(), "phone_known")
            }
            ConversationError::Refused(refusal @ ReplyRefusal::AskedAlready) => {
                Self::state_refused(refusal.to_string(), "asked_already")
            }
            ConversationError::NotAllowed(refusal) => DirectMessageError::from(refusal).into(),
            ConversationError::Gateway(error) => error.into(),
            ConversationError::Media(error) => error.into(),
            ConversationError::Store(error) => error.into(),
        }
    }
}

impl From<FolderError> for ApiError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::NotFound => Self::not_found(),
            FolderError::Invalid(errors) => errors.into(),
            FolderError::Store(error) => error.into(),
        }
    }
}

impl From<NotificationError> for ApiError {
    fn from(error: NotificationError) -> Self {
        match error {
            NotificationError::NotFound => Self::not_found(),
            NotificationError::Store(error) => error.into(),
        }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::NotFound => Self::not_found(),
            TemplateError::Invalid(errors) => errors.into(),
            TemplateError::Gateway(error) => error.into(),
            TemplateError::Media(error) => error.into(),
            TemplateError::ChangedDuringSubmission => Self::new(ErrorCode::Conflict, error.to_string()),
            TemplateError::Conflict(conflict) => conflict.into(),
            TemplateError::Store(error) => error.into(),
        }
    }
}

impl From<MediaError> for ApiError {
    fn from(error: MediaError) -> Self {
        match error {
            MediaError::Invalid(errors) => errors.into(),
            MediaError::Store(error) => error.into(),
            MediaError::Row(error) => error.into(),
        }
    }
}

impl From<FileAccessError> for ApiError {
    fn from(error: FileAccessError) -> Self {
        match error {
            FileAccessError::NotFound(None) => Self::not_found(),
            FileAccessError::NotFound(Some(state)) => Self::not_found().details(json!({ "state": state })),
            FileAccessError::Pending => Self::new(ErrorCode::Conflict, "The file is not fetched yet".to_owned())
                .details(json!({ "state": FileState::Pending }))
                .header(header::RETRY_AFTER, 5.into()),
            FileAccessError::Media(error) => error.into(),
            FileAccessError::Store(error) => error.into(),
        }
    }
}

impl From<ProfileError> for ApiError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::NotFound => Self::not_found(),
            ProfileError::Invalid(errors) => errors.into(),
            ProfileError::Conflict(conflict) => conflict.into(),
            ProfileError::Unanswered(checks) => {
                Self::new(ErrorCode::Whatsapp, "WhatsApp could not be asked; try again later")
                    .details(json!({ "checks": checks }))
            }
            ProfileError::Store(error) => error.into(),
        }
    }
}

impl From<Conflict> for ApiError {
    fn from(conflict: Conflict) -> Self {
        Self::new(ErrorCode::Conflict, conflict.to_string())
    }
}

impl From<TeamError> for ApiError {
    fn from(error: TeamError) -> Self {
        match error {
            TeamError::NotFound => Self::not_found(),
            TeamError::NotPermitted => Self::auth(RefusalReason::Role, error.to_string()),
            TeamError::OtherAddress => {
                Self::new(ErrorCode::Forbidden, "This invite was sent to another e-mail address")
            }
            TeamError::Invalid(errors) => errors.into(),
            TeamError::Conflict(conflict) => conflict.into(),
            TeamError::Store(error) => error.into(),
        }
    }
}

impl From<TestSendError> for ApiError {
    fn from(error: TestSendError) -> Self {
        match error {
            TestSendError::NotFound => Self::not_found(),
            TestSendError::Invalid(errors) => errors.into(),
            TestSendError::Refused(refusal) => refusal.into(),
            TestSendError::Unready(message) => Self::new(ErrorCode::Precondition, message),
            TestSendError::Media(error) => error.into(),
            TestSendError::Gateway(error) => error.into(),
            TestSendError::Unknown => Self::new(ErrorCode::Whatsapp, error.to_string()),
            TestSendError::Store(error) => error.into(),
        }
    }
}

impl From<CampaignRefusal> for ApiError {
    fn from(refusal: CampaignRefusal) -> Self {
        Self::new(ErrorCode::Precondition, refusal.to_string()).details(refusal.details())
    }
}

impl From<CampaignError> for ApiError {
    fn from(error: CampaignError) -> Self {
        match error {
            CampaignError::NotFound => Self::not_found(),
            CampaignError::Invalid(errors) => errors.into(),
            CampaignError::Refused(refusal) => refusal.into(),
            CampaignError::Interrupted => Self::unavailable(error),
            CampaignError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
