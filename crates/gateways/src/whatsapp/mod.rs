//! `WhatsappGateway` on Meta's Cloud API (`developers.facebook.com/documentation/business-messaging/whatsapp`): sends
//! messages, submits and lists templates, and uploads the files of both.

mod callback;
mod codes;
mod file_fetch;
mod files;
mod graph;
mod list;
mod message;
mod response;
mod review_status;
mod send_metrics;
mod template;
mod verification;

use std::time::Duration;

use async_trait::async_trait;
use hyper::Uri;
use recado_domain::media::MediaFile;
use recado_domain::messaging::{
    BlockCause, OutboundMessage, OutboundTemplate, RemotePage, SendOutcome, SubmittedTemplate, TemplateSubmission,
    UploadFile, WhatsappCredentials, WhatsappGateway,
};
use recado_domain::shared::GatewayError;
use secrecy::SecretString;
use serde_json::Value;

pub use self::callback::CloudCallbackReader;
pub use self::codes::ERROR_CODES;
use self::codes::TOKEN_INVALID;
pub use self::file_fetch::WhatsappFiles;
use self::send_metrics::SendMetrics;
use crate::http::{CallError, GatewayRequest, Http};

/// Default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

const NAME: &str = "WhatsApp";

/// Client of the Cloud API at one base URL.
#[derive(Clone)]
pub struct CloudApi {
    http: Http,
    base: Option<String>,
    app_id: Option<String>,
    timeout: Duration,
    templates: SendMetrics,
    free_form: SendMetrics,
}

impl CloudApi {
    /// `base_url` is origin and version, for example `https://graph.facebook.com/v25.0`. Without it every call fails as
    /// not configured. Fails if `base_url` is not an http or https URL.
    pub fn new(http: Http, base_url: Option<&str>) -> Result<Self, String> {
        let base = base_url.map(|url| url.trim_end_matches('/').to_owned());
        if let Some(base) = &base {
            let url = base
                .parse::<Uri>()
                .map_err(|error| format!("{base} is not a URL: {error}"))?;
            if !matches!(url.scheme_str(), Some("http" | "https")) || url.query().is_some() {
                return Err(format!("{base} must be an http or https URL without a query"));
            }
        }
        Ok(Self {
            http,
            base,
            app_id: None,
            timeout: TIMEOUT,
            templates: SendMetrics::new("template"),
            free_form: SendMetrics::new("text"),
        })
    }

    /// Sets the Meta app that uploads files of templates. Without it these uploads fail as not configured.
    #[must_use]
    pub fn app(self, app_id: Option<String>) -> Self {
        Self { app_id, ..self }
    }

    /// Sets the time limit of a call. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Builds an authorized POST. Fails if the token is not a valid header value.
    fn post(&self, url: String, token: &SecretString, body: &Value) -> Result<GatewayRequest, CallError> {
        GatewayRequest::post(url, body).timeout(self.timeout).bearer(token)
    }

    /// Sends one message without a retry and counts its outcome.
    async fn send(&self, credentials: &WhatsappCredentials, body: &Value, metrics: &SendMetrics) -> SendOutcome {
        let outcome = self.attempt(credentials, body).await;
        metrics.count(&outcome);
        outcome
    }

    async fn attempt(&self, credentials: &WhatsappCredentials, body: &Value) -> SendOutcome {
        let Some(base) = &self.base else {
            return SendOutcome::RunBlocked {
                code: 0,
                cause: BlockCause::Token,
                message: format!("{NAME} is not configured"),
            };
        };
        let url = format!("{base}/{}/messages", segment(&credentials.phone_number_id));
        match self.post(url, &credentials.token, body) {
            Ok(request) => response::outcome(self.http.call(request).await, &credentials.token),
            Err(error) => SendOutcome::RunBlocked {
                code: TOKEN_INVALID,
                cause: BlockCause::Token,
                message: error.to_string(),
            },
        }
    }
}

#[async_trait]
impl WhatsappGateway for CloudApi {
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome {
        self.send(credentials, &message::body(message), &self.templates).await
    }

    async fn send_message(&self, credentials: &WhatsappCredentials, message: &OutboundMessage) -> SendOutcome {
        self.send(credentials, &message::free_form(message), &self.free_form)
            .await
    }

    async fn submit_template<'a>(
        &self,
        credentials: &WhatsappCredentials,
        submission: &TemplateSubmission,
        meta_template_id: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError> {
        let base = self.base.as_ref().ok_or(GatewayError::NotConfigured(NAME))?;
        let (url, body) = match meta_template_id {
            Some(id) => (format!("{base}/{}", segment(id)), template::edit_body(submission)),
            None => {
                let waba = segment(&credentials.waba_id);
                (
                    format!("{base}/{waba}/message_templates"),
                    template::creation_body(submission),
                )
            }
        };
        let unavailable = |error: CallError| GatewayError::Unavailable(error.to_string());
        let request = self.post(url, &credentials.token, &body).map_err(unavailable)?;
        let response = self.http.call(request).await.map_err(unavailable)?;
        template::parse_submission(&response, submission, meta_template_id, &credentials.token)
    }

    async fn upload_header(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError> {
        self.upload_header_handle(credentials, file).await
    }

    async fn upload_file(&self, credentials: &WhatsappCredentials, file: &UploadFile) -> Result<String, GatewayError> {
        self.upload_media(credentials, file).await
    }

    async fn list_templates<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError> {
        self.fetch_page(credentials, after).await
    }
}

/// Percent-encodes an id as one path segment, so that it cannot change the rest of the URL.
pub(crate) fn segment(id: &str) -> String {
    let mut segment = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_encoded_as_one_path_segment() {
        assert_eq!(segment("1065_a-B"), "1065_a-B");
        assert_eq!(segment("1/../2?x#é"), "1%2F%2E%2E%2F2%3Fx%23%C3%A9");
    }

    #[tokio::test]
    async fn cloud_api_rejects_invalid_base_url() {
        let base_of = |url| CloudApi::new(Http::new().unwrap(), url).map(|api| api.base);
        assert_eq!(
            base_of(Some("https://graph.facebook.com/v25.0/")).unwrap().unwrap(),
            "https://graph.facebook.com/v25.0"
        );
        assert_eq!(base_of(None), Ok(None));
        for bad in [
            "graph.facebook.com/v25.0",
            "ftp://h/v25.0",
            "https://h/v25.0?x=1",
            "",
            "http://a b",
        ] {
            assert!(base_of(Some(bad)).is_err(), "{bad}");
        }
    }
}
