//! Uploads files to WhatsApp: the example of a template's header by Meta's resumable upload, or a media file for the
//! messages of a phone number. Files are streamed from the store and never held in memory as a whole.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use recado_domain::media::MediaFile;
use recado_domain::messaging::{UploadFile, WhatsappCredentials};
use recado_domain::shared::GatewayError;
use secrecy::SecretString;
use serde_json::Value;
use uuid::Uuid;

use super::graph::{self, GraphError};
use super::response::is_transient;
use super::{CloudApi, NAME, segment};
use crate::http::{ByteStream, CallError, GatewayRequest, GatewayResponse};

/// Slowest accepted upload in bytes per second. It makes the timeout of an upload grow with the file.
const MIN_BYTES_PER_SECOND: u64 = 256 * 1024;

const FILE_OFFSET: HeaderName = HeaderName::from_static("file_offset");

enum UploadOutcome {
    Handle(String),
    /// The connection broke or the response is unreadable: the upload may be resumed.
    Broken(GatewayError),
    Refused(GatewayError),
}

impl CloudApi {
    /// `POST /{app_id}/uploads`, then the bytes. A broken upload is resumed once, at the offset that WhatsApp reports.
    pub(super) async fn upload_header_handle(
        &self,
        credentials: &WhatsappCredentials,
        file: &MediaFile,
    ) -> Result<String, GatewayError> {
        let base = self.base.as_ref().ok_or(GatewayError::NotConfigured(NAME))?;
        let app = self
            .app_id
            .as_deref()
            .ok_or(GatewayError::NotConfigured("WHATSAPP_APP_ID"))?;
        let kind = file.path.kind;
        let (app, size, mime) = (segment(app), file.size, segment(kind.as_str()));
        let name = format!("{}.{}", file.path.id, kind.extension());
        let session_url = format!("{base}/{app}/uploads?file_name={name}&file_length={size}&file_type={mime}");
        let request = GatewayRequest::post_empty(session_url);
        let response = self.call_api(request, &credentials.token).await?;
        let id = graph::id(read_success(&response, &credentials.token)?.get("id"));
        let id = id.ok_or_else(|| GatewayError::Unavailable("WhatsApp opened an upload without an id".into()))?;
        let url = format!("{base}/{}", upload_segment(&id));
        let error = match self.upload_from(&url, credentials, file, 0).await {
            UploadOutcome::Handle(handle) => return Ok(handle),
            UploadOutcome::Refused(error) => return Err(error),
            UploadOutcome::Broken(error) => error,
        };
        tracing::info!(%error, "an upload broke and is resumed");
        let response = self
            .call_api(GatewayRequest::get(url.clone()), &credentials.token)
            .await?;
        let offset = read_success(&response, &credentials.token)?
            .get("file_offset")
            .and_then(Value::as_u64);
        let offset = offset.filter(|offset| *offset <= size).ok_or(error)?;
        match self.upload_from(&url, credentials, file, offset).await {
            UploadOutcome::Handle(handle) => Ok(handle),
            UploadOutcome::Broken(error) | UploadOutcome::Refused(error) => Err(error),
        }
    }

    async fn upload_from(
        &self,
        url: &str,
        credentials: &WhatsappCredentials,
        file: &MediaFile,
        offset: u64,
    ) -> UploadOutcome {
        let call = async {
            let length = file.size.saturating_sub(offset);
            let content = read_from(file, offset).await?;
            let request = GatewayRequest::post_stream(url, length, content)
                .header(FILE_OFFSET, HeaderValue::from(offset))
                .timeout(self.upload_timeout(length))
                .oauth(&credentials.token)?;
            self.http.call(request).await
        };
        let response = match call.await {
            Ok(response) => response,
            Err(error) => return UploadOutcome::Broken(GatewayError::Unavailable(error.to_string())),
        };
        match read_success(&response, &credentials.token) {
            Ok(body) => match graph::id(body.get("h")) {
                Some(handle) => UploadOutcome::Handle(handle),
                None => UploadOutcome::Broken(GatewayError::Unavailable(
                    "WhatsApp completed an upload without a handle".into(),
                )),
            },
            Err(error @ GatewayError::Refused { .. }) if response.status < 500 => UploadOutcome::Refused(error),
            Err(error) => UploadOutcome::Broken(error),
        }
    }

    /// `POST /{phone_number_id}/media`, a multipart form with three fields.
    pub(super) async fn upload_media(
        &self,
        credentials: &WhatsappCredentials,
        file: &UploadFile,
    ) -> Result<String, GatewayError> {
        let base = self.base.as_ref().ok_or(GatewayError::NotConfigured(NAME))?;
        let url = format!("{base}/{}/media", segment(&credentials.phone_number_id));
        let boundary = format!("recado-{}", Uuid::from_u128(file.id.as_u128().rotate_left(64)).simple());
        let (head, tail) = form_head_and_tail(&boundary, file);
        let overhead = head.len().saturating_add(tail.len());
        let length = file.size.saturating_add(u64::try_from(overhead).unwrap_or_default());
        let content = file.content.read(0).await;
        let content = content.map_err(|error| GatewayError::Unavailable(error.to_string()))?;
        let content = content.map(|chunk| chunk.map_err(Into::into));
        let form = stream::iter([Ok(Bytes::from(head))])
            .chain(content)
            .chain(stream::iter([Ok(Bytes::from(tail))]));
        let media_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"))
            .map_err(|error| GatewayError::Unavailable(error.to_string()))?;
        let request = GatewayRequest::post_stream(url, length, form.boxed())
            .header(CONTENT_TYPE, media_type)
            .timeout(self.upload_timeout(length));
        let request = request.bearer(&credentials.token).map_err(unavailable)?;
        let response = self.http.call(request).await.map_err(unavailable)?;
        let body =
            read_success(&response, &credentials.token).map_err(|error| transient_as_unavailable(&response, error))?;
        let id = graph::id(body.get("id"));
        id.ok_or_else(|| GatewayError::Unavailable("WhatsApp stored a file without an id".into()))
    }

    async fn call_api(&self, request: GatewayRequest, token: &SecretString) -> Result<GatewayResponse, GatewayError> {
        let request = request.timeout(self.timeout).bearer(token).map_err(unavailable)?;
        self.http.call(request).await.map_err(unavailable)
    }

    fn upload_timeout(&self, length: u64) -> Duration {
        self.timeout + Duration::from_secs(length / MIN_BYTES_PER_SECOND)
    }
}

fn unavailable(error: CallError) -> GatewayError {
    GatewayError::Unavailable(error.to_string())
}

/// Turns a refusal that does not concern the file into `Unavailable`: WhatsApp is overloaded, throttles or failed.
fn transient_as_unavailable(response: &GatewayResponse, error: GatewayError) -> GatewayError {
    match error {
        GatewayError::Refused { code, message }
            if response.status >= 500 || response.status == 429 || is_transient(code) =>
        {
            GatewayError::Unavailable(format!("{message} (code {code})"))
        }
        error => error,
    }
}

/// The JSON body of a successful response.
pub(super) fn read_success(response: &GatewayResponse, token: &SecretString) -> Result<Value, GatewayError> {
    let unreadable = || GatewayError::Unavailable(format!("HTTP {} without a readable body", response.status));
    let body = response.json::<Value>().ok_or_else(unreadable)?;
    if let Some(GraphError { code, message }) = graph::error(&body, graph::TEMPLATE_ERROR_TEXTS, token) {
        return Err(GatewayError::Refused { code, message });
    }
    if response.is_success() {
        Ok(body)
    } else {
        Err(unreadable())
    }
}

/// An upload id as one path segment. The colon of `upload:` stays unescaped, as Meta requires.
fn upload_segment(id: &str) -> String {
    match id.strip_prefix("upload:") {
        Some(rest) => format!("upload:{}", segment(rest)),
        None => segment(id),
    }
}

/// Reads the file from an offset.
async fn read_from(file: &MediaFile, offset: u64) -> Result<ByteStream, CallError> {
    if offset >= file.size {
        return Ok(stream::empty().boxed());
    }
    let content = file
        .read(offset)
        .await
        .map_err(|error| CallError::NotSent(error.to_string()))?;
    Ok(content.map(|chunk| chunk.map_err(Into::into)).boxed())
}

/// The parts of the multipart form before and after the file.
fn form_head_and_tail(boundary: &str, file: &UploadFile) -> (String, String) {
    let kind = &file.media_type;
    let field = |name: &str, value: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let head = format!(
        "{}{}--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}.{}\"\r\nContent-Type: {kind}\r\n\r\n",
        field("messaging_product", "whatsapp"),
        field("type", kind),
        file.id,
        file.extension,
    );
    (head, format!("\r\n--{boundary}--\r\n"))
}
