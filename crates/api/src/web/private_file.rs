//! Responses with a file of an account: whole, a range of it, or that the client has it.

use std::ops::Range;

use actix_web::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use futures_util::StreamExt as _;
use futures_util::stream;
use recado_domain::media::MediaStream;
use serde_json::json;

use super::ranges::{Selection, select};
use crate::error::{ApiError, ErrorCode};
use crate::web::operation::{Operation, ResponseDoc, custom_with, empty, text};

/// The media type of files of rows.
const GZIP: &str = "application/gzip";

/// A stored file.
pub struct PrivateFile {
    /// Lower-case hex, the entity tag.
    pub sha256: String,
    pub size: u64,
    pub content_type: &'static str,
}

impl PrivateFile {
    /// A file of gzip.
    pub fn gzip(size: u64, sha256: [u8; 32]) -> Self {
        Self {
            sha256: hex::encode(sha256),
            size,
            content_type: GZIP,
        }
    }
}

/// Responds with what the request selects. `read` gets a range that is not empty.
pub async fn respond(
    request: &HttpRequest,
    file: &PrivateFile,
    read: impl AsyncFnOnce(Range<u64>) -> Result<MediaStream, ApiError>,
) -> Result<HttpResponse, ApiError> {
    let (etag, size) = (format!("\"{}\"", file.sha256), file.size);
    let (mut response, range) = match select(request.headers(), &etag, size) {
        Selection::NotModified => return Ok(about(HttpResponse::NotModified(), &etag).finish()),
        Selection::Unsatisfiable => {
            return Ok(about(HttpResponse::RangeNotSatisfiable(), &etag)
                .insert_header((CONTENT_RANGE, format!("bytes */{size}")))
                .finish());
        }
        Selection::Whole => (about(HttpResponse::Ok(), &etag), 0..size),
        Selection::Part(range) => {
            let content_range = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
            let mut response = about(HttpResponse::PartialContent(), &etag);
            response.insert_header((CONTENT_RANGE, content_range));
            (response, range)
        }
    };
    let length = range.end.saturating_sub(range.start);
    let content = match length {
        0 => stream::empty().boxed(),
        _ => read(range).await?,
    };
    Ok(response
        .insert_header((CONTENT_TYPE, file.content_type))
        .insert_header((CONTENT_LENGTH, length))
        .no_chunking(length)
        .streaming(content))
}

/// Adds what [`respond`] takes and returns. `bytes` documents a response with bytes of the file.
pub(crate) fn returns_private_file(
    operation: Operation,
    bytes: impl Fn(u16, &'static str) -> ResponseDoc,
) -> Operation {
    let header = |name, description, example| text(name, description).in_header().example(example);
    let out_of_range = "The range is outside the file; `Content-Range` has its size.";
    operation
        .takes(header(
            "Range",
            "One range of bytes. Several return the whole file.",
            "bytes=0-1023",
        ))
        .takes(header(
            "If-Range",
            "The `ETag` for which `Range` is meant.",
            "\"9f86d0\"",
        ))
        .takes(header(
            "If-None-Match",
            "Entity tags that the client has.",
            "\"9f86d0\"",
        ))
        .responds(bytes(200, "The file."))
        .responds(bytes(206, "The requested part of the file."))
        .responds(empty(304, "The client has the file."))
        .responds(empty(416, out_of_range))
        .refuses(ErrorCode::Storage, "")
}

/// A response with bytes of gzip.
pub(crate) fn gzip_bytes(status: u16, description: &'static str) -> ResponseDoc {
    let schema = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
    custom_with(status, GZIP, description, schema).example(json!("(bytes)"))
}

/// A response about a file. The headers prevent that a browser interprets or executes it.
fn about(mut response: HttpResponseBuilder, etag: &str) -> HttpResponseBuilder {
    response
        .insert_header((ETAG, etag))
        .insert_header((ACCEPT_RANGES, "bytes"))
        .insert_header((CONTENT_DISPOSITION, "attachment"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((CONTENT_SECURITY_POLICY, "sandbox"))
        .insert_header((CACHE_CONTROL, "private, no-cache"));
    response
}
