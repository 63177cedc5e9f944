//! Template files: streaming upload and public download by URL. Files of messages: upload and authenticated download.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use recado_domain::media::{
    Media, MediaError, MediaPath, MediaType, MessageFile, MessageFileType, MessageMedia, MessageUpload, StoredMedia,
    Upload,
};
use recado_domain::shared::{FieldErrors, MediaId};
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::multipart::{Form, FormEvent, Malformed};
use crate::web::operation::{Body, OpenApiTag, Operation, created, custom, custom_with, data, id, path_id, text};
use crate::web::paced::PacedBody;
use crate::web::private_file::{PrivateFile, respond, returns_private_file};
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
    let form = upload_form(&request, MediaType::largest())?;
    let _share = shares.upload(&tenant)?;
    let body = PacedBody::new(&request, payload.into_inner());
    let begin = |name: Option<&str>| media.upload(&tenant, name);
    let stored = store_form(form, body, MediaType::largest(), begin).await?;
    Ok(responses::ok(MediaResponse::from(stored)))
}

/// The form of an upload. Rejects other bodies, and a declared length above the largest form.
fn upload_form(request: &HttpRequest, largest: u64) -> Result<Form, ApiError> {
    body::check_media_type(request, FORM)?;
    reject_declared_length(request, largest)?;
    let content_type = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let form = Form::new(content_type.unwrap_or_default());
    Ok(form.ok_or_else(|| FieldErrors::one("body", "must have a Content-Type with a boundary"))?)
}

/// A file of a form on its way to the file store.
trait FormFile: Sized {
    type Stored;

    async fn feed(&mut self, chunk: Bytes) -> Result<(), MediaError>;

    async fn finish(self) -> Result<Self::Stored, MediaError>;

    async fn discard(self);
}

impl FormFile for Upload {
    type Stored = StoredMedia;

    async fn feed(&mut self, chunk: Bytes) -> Result<(), MediaError> {
        Self::feed(self, chunk).await
    }

    async fn finish(self) -> Result<StoredMedia, MediaError> {
        Self::finish(self).await
    }

    async fn discard(self) {
        Self::discard(self).await;
    }
}

impl FormFile for MessageUpload {
    type Stored = MessageFile;

    async fn feed(&mut self, chunk: Bytes) -> Result<(), MediaError> {
        Self::feed(self, chunk).await
    }

    async fn finish(self) -> Result<MessageFile, MediaError> {
        Self::finish(self).await
    }

    async fn discard(self) {
        Self::discard(self).await;
    }
}

/// Stores the file of a form. After an error, nothing of the file is stored.
async fn store_form<U: FormFile>(
    form: Form,
    body: PacedBody,
    largest: u64,
    begin: impl Fn(Option<&str>) -> U,
) -> Result<U::Stored, ApiError> {
    let mut parts = Parts {
        count: 0,
        file: None,
        in_file: false,
    };
    let stored = store_file(begin, form, body, largest.saturating_add(OVERHEAD_BYTES), &mut parts).await;
    if let Some(refused) = parts.file.take() {
        refused.discard().await;
    }
    stored
}

pub(super) const UPLOAD: Endpoint = endpoint!(upload, {
    let description = "Stores a file for the header of a template. The first bytes of the file decide its type: \
                `image/jpeg`, `image/png` and `image/webp` of at most 5 MB, `video/mp4` of at most 16 MB, \
                `application/pdf` of at most 100 MB. WhatsApp does not accept WebP as a header.";
    let form = form_schema();
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

/// A form with one file.
fn form_schema() -> serde_json::Value {
    json!({
        "type": "object",
        "required": ["file"],
        "properties": { "file": {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": "The file: one part with a file name.",
            "examples": ["(the bytes of bolo.png)"],
        } },
    })
}

/// Rejects a declared length above the largest form, before the body is read: the file must exceed its type's limit.
fn reject_declared_length(request: &HttpRequest, largest: u64) -> Result<(), FieldErrors> {
    let max_bytes = largest.saturating_add(OVERHEAD_BYTES);
    if body::declared_length(request).is_none_or(|length| length <= max_bytes) {
        return Ok(());
    }
    let message = format!("must have at most {largest} bytes");
    Err(FieldErrors::one("file", message))
}

/// Streams the file of a form to the media store, chunk by chunk. On an error, the unfinished upload stays in `parts`.
/// The upload checks the file's own limit; this function limits the whole form.
async fn store_file<U: FormFile>(
    begin: impl Fn(Option<&str>) -> U,
    mut form: Form,
    mut body: PacedBody,
    max_bytes: u64,
    parts: &mut Parts<U>,
) -> Result<U::Stored, ApiError> {
    let mut received = 0_u64;
    while let Some(chunk) = body.next().await? {
        received = received.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if received > max_bytes {
            return Err(ApiError::too_large());
        }
        form.feed(chunk);
        if parts.read(&begin, &mut form).await? {
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
struct Parts<U> {
    count: usize,
    file: Option<U>,
    in_file: bool,
}

impl<U: FormFile> Parts<U> {
    /// Applies the parsed form events; returns true when the form is complete.
    async fn read(&mut self, begin: &impl Fn(Option<&str>) -> U, form: &mut Form) -> Result<bool, ApiError> {
        while let Some(event) = form.next_event().map_err(malformed)? {
            match event {
                FormEvent::Part(head) if head.name == "file" => {
                    self.begin_file(begin(head.file_name.as_deref()))?;
                }
                FormEvent::Part(_) => self.begin_part()?,
                FormEvent::Content(content) => self.content(content).await?,
                FormEvent::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn begin_file(&mut self, upload: U) -> Result<(), FieldErrors> {
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

/// `POST /api/media`
async fn upload_file(
    shares: Data<Shares>,
    media: Data<MessageMedia>,
    Authenticated(tenant): TenantContext,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let largest = MessageFileType::largest();
    let form = upload_form(&request, largest)?;
    let _share = shares.upload(&tenant)?;
    let body = PacedBody::new(&request, payload.into_inner());
    let stored = store_form(form, body, largest, |name| media.upload(&tenant, name)).await?;
    Ok(responses::created(stored))
}

pub(super) const UPLOAD_FILE: Endpoint = endpoint!(upload_file, {
    let description = "Stores a file to send with `media_id`, until 30 days after its last use in a message. The \
                content decides its type: JPEG or PNG of at most 5 MB; MP4 or 3GPP video, and AAC, AMR, MPEG, MP4 or \
                Ogg (Opus) audio, of at most 16 MB; PDF, plain text and office documents of at most 100 MB; WebP \
                (a sticker) of at most 500 KB.";
    Operation::new("Upload a message file", description)
        .body(
            Body::custom("multipart/form-data", form_schema())
                .example(json!({ "file": "(the bytes of bolo.png)" }))
                .described("A form with one file and at most 20 parts. Other parts are ignored."),
        )
        .responds(created::<MessageFile>("The stored file."))
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

/// `GET /api/media/<id>`
async fn get(
    media: Data<MessageMedia>,
    Authenticated(tenant): TenantContext,
    Id(file_id): Id<MediaId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let open = media.open(&tenant, file_id).await?;
    let content_type = open.file.content_type;
    let file = PrivateFile {
        sha256: open.file.sha256.clone(),
        size: open.file.size,
        content_type: content_type.map_or("application/octet-stream", MessageFileType::as_str),
    };
    respond(&request, &file, async |range| Ok(open.read(range).await?)).await
}

pub(super) const GET: Endpoint = endpoint!(get, {
    let description = "Returns the bytes of a file: of a message, or of an upload.";
    let operation = Operation::new("Get a message file", description)
        .takes(path_id("The file's id."))
        .refuses(
            ErrorCode::Conflict,
            "The file is not fetched yet: `details.state` is `pending`. Try again after `Retry-After`.",
        );
    returns_private_file(operation, message_file_bytes)
});

/// A response with bytes of any media type that a message's file may have.
fn message_file_bytes(status: u16, description: &'static str) -> crate::web::operation::ResponseDoc {
    let of = |media_type: &'static str| {
        let bytes = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
        custom_with(status, media_type, description, bytes).example(json!("(bytes)"))
    };
    let types = MessageFileType::ALL.iter().map(|kind| kind.as_str());
    types.fold(of("application/octet-stream"), |response, kind| response.or(of(kind)))
}
