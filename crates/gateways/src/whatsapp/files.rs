//! Files on their way to the platform: as the example of a template's header by a resumable upload, or for the messages
//! of a number. They are passed on as they are read from the store, never held whole.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use recado_domain::media::MediaFile;
use recado_domain::shared::GatewayError;
use recado_domain::whatsapp::WhatsappCredentials;
use secrecy::SecretString;
use serde_json::Value;
use uuid::Uuid;

use super::answer::is_passing;
use super::graph::{self, GraphError};
use super::{CloudApi, NAME, segment};
use crate::http::{BoxedPieces, CallError, GatewayRequest, GatewayResponse};

/// The slowest that a file may go out, in bytes a second: an upload may take the longer the larger the file is.
const SLOWEST: u64 = 256 * 1024;

const FILE_OFFSET: HeaderName = HeaderName::from_static("file_offset");

/// Where an upload stands after an attempt.
enum Attempt {
    Handle(String),
    /// Broken, or not understood: it may go on.
    Broken(GatewayError),
    Refused(GatewayError),
}

impl CloudApi {
    /// `POST /{app_id}/uploads`, then the bytes; once more from where the platform has them when that breaks.
    pub(super) async fn header_handle(
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
        let open = format!("{base}/{app}/uploads?file_name={name}&file_length={size}&file_type={mime}");
        let answer = self.ask(GatewayRequest::post_nothing(open), &credentials.token).await?;
        let id = graph::id(read(&answer, &credentials.token)?.get("id"));
        let id = id.ok_or_else(|| GatewayError::Unavailable("an upload without an id".into()))?;
        let url = format!("{base}/{}", upload_segment(&id));
        let fault = match self.send_from(&url, credentials, file, 0).await {
            Attempt::Handle(handle) => return Ok(handle),
            Attempt::Refused(error) => return Err(error),
            Attempt::Broken(error) => error,
        };
        tracing::info!(%fault, "an upload broke and goes on where it stopped");
        let answer = self.ask(GatewayRequest::get(url.clone()), &credentials.token).await?;
        let offset = read(&answer, &credentials.token)?
            .get("file_offset")
            .and_then(Value::as_u64);
        let offset = offset.filter(|offset| *offset <= size).ok_or(fault)?;
        match self.send_from(&url, credentials, file, offset).await {
            Attempt::Handle(handle) => Ok(handle),
            Attempt::Broken(error) | Attempt::Refused(error) => Err(error),
        }
    }

    async fn send_from(&self, url: &str, credentials: &WhatsappCredentials, file: &MediaFile, from: u64) -> Attempt {
        let sent = async {
            let length = file.size.saturating_sub(from);
            let pieces = pieces(file, from).await?;
            let request = GatewayRequest::post_stream(url, length, pieces)
                .header(FILE_OFFSET, HeaderValue::from(from))
                .timeout(self.time_for(length))
                .oauth(&credentials.token)?;
            self.http.call(request).await
        };
        let answer = match sent.await {
            Ok(answer) => answer,
            Err(error) => return Attempt::Broken(GatewayError::Unavailable(error.to_string())),
        };
        match read(&answer, &credentials.token) {
            Ok(body) => match graph::id(body.get("h")) {
                Some(handle) => Attempt::Handle(handle),
                None => Attempt::Broken(GatewayError::Unavailable("an upload without a handle".into())),
            },
            Err(error @ GatewayError::Refused { .. }) if answer.status < 500 => Attempt::Refused(error),
            Err(error) => Attempt::Broken(error),
        }
    }

    /// `POST /{phone_number_id}/media`, a form of three parts.
    pub(super) async fn file_id(
        &self,
        credentials: &WhatsappCredentials,
        file: &MediaFile,
    ) -> Result<String, GatewayError> {
        let base = self.base.as_ref().ok_or(GatewayError::NotConfigured(NAME))?;
        let url = format!("{base}/{}/media", segment(&credentials.phone_number_id));
        let boundary = format!(
            "recado-{}",
            Uuid::from_u128(file.path.id.as_u128().rotate_left(64)).simple()
        );
        let (head, tail) = form(&boundary, file);
        let around = head.len().saturating_add(tail.len());
        let length = file.size.saturating_add(u64::try_from(around).unwrap_or_default());
        let content = pieces(file, 0).await.map_err(unavailable)?;
        let whole = stream::iter([Ok(Bytes::from(head))])
            .chain(content)
            .chain(stream::iter([Ok(Bytes::from(tail))]));
        let media_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"))
            .map_err(|error| GatewayError::Unavailable(error.to_string()))?;
        let request = GatewayRequest::post_stream(url, length, whole.boxed())
            .header(CONTENT_TYPE, media_type)
            .timeout(self.time_for(length));
        let request = request.bearer(&credentials.token).map_err(unavailable)?;
        let answer = self.http.call(request).await.map_err(unavailable)?;
        let body = read(&answer, &credentials.token).map_err(|error| passing(&answer, error))?;
        graph::id(body.get("id")).ok_or_else(|| GatewayError::Unavailable("a file without an id".into()))
    }

    async fn ask(&self, request: GatewayRequest, token: &SecretString) -> Result<GatewayResponse, GatewayError> {
        let request = request.timeout(self.timeout).bearer(token).map_err(unavailable)?;
        self.http.call(request).await.map_err(unavailable)
    }

    fn time_for(&self, length: u64) -> Duration {
        self.timeout + Duration::from_secs(length / SLOWEST)
    }
}

fn unavailable(error: CallError) -> GatewayError {
    GatewayError::Unavailable(error.to_string())
}

/// A refusal that says nothing of the file: WhatsApp is overloaded, throttles, or has a fault of its own.
fn passing(answer: &GatewayResponse, error: GatewayError) -> GatewayError {
    match error {
        GatewayError::Refused { code, message } if answer.status >= 500 || answer.status == 429 || is_passing(code) => {
            GatewayError::Unavailable(format!("{message} (code {code})"))
        }
        error => error,
    }
}

/// The JSON of an answer that says yes.
pub(super) fn read(answer: &GatewayResponse, token: &SecretString) -> Result<Value, GatewayError> {
    let unreadable = || GatewayError::Unavailable(format!("HTTP {} without a readable body", answer.status));
    let body = answer.json::<Value>().ok_or_else(unreadable)?;
    if let Some(GraphError { code, message }) = graph::error(&body, graph::OF_TEMPLATE, token) {
        return Err(GatewayError::Refused { code, message });
    }
    if answer.is_success() {
        Ok(body)
    } else {
        Err(unreadable())
    }
}

/// `upload:...` as one segment of a path: its colon stands as the platform writes it.
fn upload_segment(id: &str) -> String {
    match id.strip_prefix("upload:") {
        Some(rest) => format!("upload:{}", segment(rest)),
        None => segment(id),
    }
}

/// The content from a position on.
async fn pieces(file: &MediaFile, from: u64) -> Result<BoxedPieces, CallError> {
    if from >= file.size {
        return Ok(stream::empty().boxed());
    }
    let content = file
        .read(from)
        .await
        .map_err(|error| CallError::NotSent(error.to_string()))?;
    Ok(content.map(|piece| piece.map_err(Into::into)).boxed())
}

/// What stands before and after the file in the form.
fn form(boundary: &str, file: &MediaFile) -> (String, String) {
    let kind = file.path.kind;
    let field = |name: &str, value: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let head = format!(
        "{}{}--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}.{}\"\r\nContent-Type: {kind}\r\n\r\n",
        field("messaging_product", "whatsapp"),
        field("type", kind.as_str()),
        file.path.id,
        kind.extension(),
    );
    (head, format!("\r\n--{boundary}--\r\n"))
}
