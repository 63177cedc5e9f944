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

use super::ranges::{Selection, select};
use crate::error::ApiError;

/// A stored file.
pub struct PrivateFile {
    /// Lower-case hex, the entity tag.
    pub sha256: String,
    pub size: u64,
    pub content_type: &'static str,
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
