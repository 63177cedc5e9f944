//! Template files: streaming upload and public download by URL.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use recado_domain::media::{MediaPath, MediaType, StoredMedia, Upload};
use recado_domain::shared::{FieldErrors, Tenant};

use crate::error::ApiError;
use crate::web::body;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::multipart::{Form, FormEvent, Malformed};
use crate::web::paced::PacedBody;
use crate::web::responses;
use crate::wiring::Services;

/// The maximum bytes of a form in addition to its file, and the maximum number of parts.
const OVERHEAD_BYTES: u64 = 64 * 1024;
const PARTS: usize = 20;

const FORM: &str = "multipart/form-data";

/// `POST /api/templates/media/upload`
pub(super) async fn upload(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    body::check_media_type(&request, FORM)?;
    let max_bytes = MediaType::largest().saturating_add(OVERHEAD_BYTES);
    reject_declared_length(&request, max_bytes)?;
    let content_type = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let form = Form::new(content_type.unwrap_or_default());
    let form = form.ok_or_else(|| FieldErrors::one("body", "must have a Content-Type with a boundary"))?;
    let _share = services.shared.shares.upload(&tenant)?;
    let body = PacedBody::new(&request, payload.into_inner());
    let mut parts = Parts::default();
    let stored = store_file(&services, &tenant, form, body, max_bytes, &mut parts).await;
    if let Some(refused) = parts.file.take() {
        refused.discard().await;
    }
    Ok(responses::ok(stored?))
}

/// Rejects a declared length above the largest form, before the body is read: the file must exceed its type's limit.
fn reject_declared_length(request: &HttpRequest, max_bytes: u64) -> Result<(), FieldErrors> {
    if body::declared_length(request).is_none_or(|length| length <= max_bytes) {
        return Ok(());
    }
    let message = format!("must have at most {} bytes", MediaType::largest());
    Err(FieldErrors::one("file", message))
}

/// Streams the file of a form to the media store, chunk by chunk. On an error, the unfinished upload stays in `parts`.
/// The upload checks the file's own limit; this function limits the whole form.
async fn store_file(
    services: &Services,
    tenant: &Tenant,
    mut form: Form,
    mut body: PacedBody,
    max_bytes: u64,
    parts: &mut Parts,
) -> Result<StoredMedia, ApiError> {
    let mut received = 0_u64;
    while let Some(chunk) = body.next().await? {
        received = received.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if received > max_bytes {
            return Err(ApiError::too_large());
        }
        form.feed(chunk);
        if parts.read(services, tenant, &mut form).await? {
            let file = parts
                .file
                .take()
                .ok_or_else(|| FieldErrors::one("file", "is required"))?;
            return Ok(file.finish().await?);
        }
    }
    Err(FieldErrors::one("body", "is incomplete").into())
}

fn malformed(Malformed(message): Malformed) -> FieldErrors {
    FieldErrors::one("body", message)
}

/// The parts of a form that have been received so far.
#[derive(Default)]
struct Parts {
    count: usize,
    file: Option<Upload>,
    in_file: bool,
}

impl Parts {
    /// Applies the parsed form events; returns true when the form is complete.
    async fn read(&mut self, services: &Services, tenant: &Tenant, form: &mut Form) -> Result<bool, ApiError> {
        while let Some(event) = form.next_event().map_err(malformed)? {
            match event {
                FormEvent::Part(head) if head.name == "file" => {
                    self.begin_file(services.media.upload(tenant, head.file_name.as_deref()))?;
                }
                FormEvent::Part(_) => self.begin_part()?,
                FormEvent::Content(content) => self.content(content).await?,
                FormEvent::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn begin_file(&mut self, upload: Upload) -> Result<(), FieldErrors> {
        self.begin_part()?;
        if self.file.is_some() {
            return Err(FieldErrors::one("file", "must be sent only once"));
        }
        self.file = Some(upload);
        self.in_file = true;
        Ok(())
    }

    fn begin_part(&mut self) -> Result<(), FieldErrors> {
        self.in_file = false;
        self.count = self.count.saturating_add(1);
        if self.count > PARTS {
            return Err(FieldErrors::one("body", format!("must have at most {PARTS} parts")));
        }
        Ok(())
    }

    async fn content(&mut self, content: Bytes) -> Result<(), ApiError> {
        if let Some(file) = self.file.as_mut().filter(|_| self.in_file) {
            file.feed(content).await?;
        }
        Ok(())
    }
}

/// `GET /media/<account id>/<file>`: a stored file with its exact media type. Headers prevent that a browser
/// interprets it as another type or executes it.
pub(super) async fn fetch(services: Data<Services>, path: Path<(String, String)>) -> Result<HttpResponse, ApiError> {
    let (account, file) = path.into_inner();
    let path: MediaPath = format!("{account}/{file}").parse().map_err(|_| ApiError::not_found())?;
    let file = services.media.fetch(path).await.map_err(ApiError::from)?;
    let file = file.ok_or_else(ApiError::not_found)?;
    let content = file.read(0).await.map_err(ApiError::from)?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, path.kind.as_str()))
        .insert_header((CONTENT_DISPOSITION, "inline"))
        .insert_header((CACHE_CONTROL, "public, max-age=31536000, immutable"))
        .insert_header((CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"))
        .insert_header((CONTENT_LENGTH, file.size))
        .no_chunking(file.size)
        .streaming(content))
}
