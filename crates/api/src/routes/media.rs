//! Template files: streaming upload and public download by URL.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use recado_domain::media::{Media, MediaPath, MediaType, StoredMedia, Upload};
use recado_domain::shared::{FieldErrors, Tenant};
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::multipart::{Form, FormEvent, Malformed};
use crate::web::operation::{Body, OpenApiTag, Operation, custom, data, id, text};
use crate::web::paced::PacedBody;
use crate::web::responses::response_type;
use crate::web::route::{Endpoint, endpoint};
use crate::web::shares::Shares;
use crate::web::{body, responses};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Files",
    description: "Images, videos and documents for template headers.",
};

/// The maximum bytes of a form in addition to its file, and the maximum number of parts.
const OVERHEAD_BYTES: u64 = 64 * 1024;

const PARTS: usize = 20;

const FORM: &str = "multipart/form-data";

response_type! {
    /// An uploaded file.
    #[schemars(rename = "StoredMedia")]
    struct MediaResponse from media: StoredMedia {
        /// The public URL of the file.
        #[schemars(
            example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
        )]
        url: String,
        /// The file's type, detected from its first bytes. The name is not considered.
        #[serde(rename = "type")]
        kind: MediaType,
        /// The size of the file in bytes.
        #[schemars(example = 48213)]
        size: u64,
        /// The name that the caller gave, without its path: at most 255 characters.
        #[schemars(example = "bolo.png")]
        name: String,
    }
}

/// `POST /api/templates/media/upload`
async fn upload(
    shares: Data<Shares>,
    media: Data<Media>,
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
    let _share = shares.upload(&tenant)?;
    let body = PacedBody::new(&request, payload.into_inner());
    let mut parts = Parts::default();
    let stored = store_file(&media, &tenant, form, body, max_bytes, &mut parts).await;
    if let Some(refused) = parts.file.take() {
        refused.discard().await;
    }
    Ok(responses::ok(MediaResponse::from(stored?)))
}

pub(super) const UPLOAD: Endpoint = endpoint!(upload, {
    let description = "Stores a file for the header of a template. The first bytes of the file decide its type: \
                `image/jpeg`, `image/png` and `image/webp` of at most 5 MB, `video/mp4` of at most 16 MB, \
                `application/pdf` of at most 100 MB. WhatsApp does not accept WebP as a header.";
    let form = json!({
        "type": "object",
        "required": ["file"],
        "properties": { "file": {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": "The file: one part with a file name.",
            "examples": ["(the bytes of bolo.png)"],
        } },
    });
    Operation::new("Upload a file", description)
        .body(
            Body::custom("multipart/form-data", form)
                .example(json!({ "file": "(the bytes of bolo.png)" }))
                .described("A form with one file and at most 20 parts. Other parts are ignored."),
        )
        .responds(data::<MediaResponse>("The stored file."))
        .refuses(
            ErrorCode::Invalid,
            "The file type is not supported, or the file is too large for its type.",
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "An account can run at most 5 uploads at a time on one server.",
        )
        .refuses(ErrorCode::Storage, "")
});

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
    media: &Media,
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
        if parts.read(media, tenant, &mut form).await? {
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
    async fn read(&mut self, media: &Media, tenant: &Tenant, form: &mut Form) -> Result<bool, ApiError> {
        while let Some(event) = form.next_event().map_err(malformed)? {
            match event {
                FormEvent::Part(head) if head.name == "file" => {
                    self.begin_file(media.upload(tenant, head.file_name.as_deref()))?;
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
async fn fetch(media: Data<Media>, path: Path<(String, String)>) -> Result<HttpResponse, ApiError> {
    let (account, file) = path.into_inner();
    let path: MediaPath = format!("{account}/{file}").parse().map_err(|_| ApiError::not_found())?;
    let file = media.fetch(path).await.map_err(ApiError::from)?;
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

pub(super) const FETCH: Endpoint = endpoint!(fetch, {
    let description = "Returns an uploaded file. An upload returns this address as its URL.";
    let path = "The account's id.";
    let file = "The file's name: an id and the extension of its type.";
    let name = "0190a1b2-c3d4-7e5f-8a9b-000000000002.png";
    Operation::new("Get a file", description)
        .takes(id("account", path).in_path())
        .takes(text("file", file).in_path().example(name))
        .responds(files())
        .refuses(ErrorCode::Storage, "")
});

/// A response with the file in any of the supported media types.
fn files() -> crate::web::operation::ResponseDoc {
    let bytes = || json!({ "type": "string", "contentMediaType": "application/octet-stream" });
    let mut response = custom("image/png", "The file.", bytes()).example(json!("(bytes)"));
    for media_type in ["image/jpeg", "image/webp", "video/mp4", "application/pdf"] {
        let alternative = custom(media_type, "The file.", bytes()).example(json!("(bytes)"));
        response = response.or(alternative);
    }
    response.header(
        "Cache-Control",
        "The file never changes and can be cached for a year.",
        json!({ "type": "string", "examples": ["public, max-age=31536000, immutable"] }),
    )
}
