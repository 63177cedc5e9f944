//! What a successful response says about its representation: entity tag, location, caching and content coding
//! (RFC 9110, sections 8, 10.2.2, 12 and 13).

use actix_http::encoding::Encoder;
use actix_web::body::{BodySize, BoxBody, MessageBody as _};
use actix_web::dev::ServiceResponse;
use actix_web::http::header::{
    AcceptEncoding, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ContentEncoding, ETAG, Encoding, Header as _,
    HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::Value;

use crate::crypto::sha256;
use crate::web::ranges::{matches_any, tag_list};
use crate::web::route::{Access, Content, RouteSpec};

/// A smaller body is not compressed.
const MIN_COMPRESSED_BYTES: u64 = 1024;

/// The bytes of a hash that an entity tag shows.
const TAG_BYTES: usize = 16;

const CODINGS: [ContentEncoding; 2] = [ContentEncoding::Brotli, ContentEncoding::Gzip];

/// The request headers on which the response of a route that is not public depends.
const VARIES: &str = "Authorization, Cookie, X-Account-Id, X-API-Key, Accept-Encoding";

/// Completes the response of a route. `read`: for a PUT or DELETE, the GET of its row, if that has an entity tag.
pub fn complete(
    spec: &RouteSpec,
    read: Option<&RouteSpec>,
    response: ServiceResponse<BoxBody>,
) -> ServiceResponse<BoxBody> {
    let (request, response) = response.into_parts();
    let response = with_location(spec, response);
    let response = match read {
        // A PUT returns the row as its GET does.
        Some(read) if spec.method == Method::PUT => tagged(read, response),
        _ if spec.has_entity_tag() => unless_known(&request, tagged(spec, response)),
        _ => response,
    };
    let mut response = compressed(spec, &request, response);
    set_caching(spec, response.headers_mut());
    ServiceResponse::new(request, response)
}

/// Adds `Location`: the path of the row that the request created.
fn with_location(spec: &RouteSpec, response: HttpResponse) -> HttpResponse {
    let is_made = matches!(response.status(), StatusCode::CREATED | StatusCode::ACCEPTED);
    if !is_made || response.headers().contains_key(LOCATION) {
        return response;
    }
    let Some(path) = spec.makes else { return response };
    with_bytes(response, |response, body| {
        let location = created_id(body).and_then(|id| HeaderValue::try_from(path.replace("{id}", &id)).ok());
        if let Some(location) = location {
            response.headers_mut().insert(LOCATION, location);
        }
    })
}

fn created_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Made {
        data: Row,
    }
    #[derive(Deserialize)]
    struct Row {
        id: String,
    }
    serde_json::from_slice::<Made>(body).ok().map(|made| made.data.id)
}

/// Adds the entity tag of the body to a 200 of a GET, or of a response that returns the same row.
pub fn tagged(read: &RouteSpec, response: HttpResponse) -> HttpResponse {
    if response.status() != StatusCode::OK || response.headers().contains_key(ETAG) {
        return response;
    }
    with_bytes(response, |response, body| {
        if let Ok(tag) = HeaderValue::try_from(entity_tag(body, read.computed_at)) {
            response.headers_mut().insert(ETAG, tag);
        }
    })
}

/// Gives a response the entity tag of a row whose body it does not have.
pub fn set_tag_of(response: &mut HttpResponse, row: HttpResponse) {
    with_bytes(row, |_, body| {
        if let Ok(tag) = HeaderValue::try_from(entity_tag(body, None)) {
            response.headers_mut().insert(ETAG, tag);
        }
    });
}

/// Responds with 304 if the client has the entity tag of a 200.
fn unless_known(request: &HttpRequest, response: HttpResponse) -> HttpResponse {
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
    let known = tag_list(request.headers(), &IF_NONE_MATCH);
    match (tag, known) {
        (Some(tag), Some(known)) if response.status() == StatusCode::OK && matches_any(&known, tag) => {
            not_modified(response)
        }
        _ => response,
    }
}

/// The strong entity tag of a body. `computed_at`: the JSON pointer of a time that is no part of it. A client that has the
/// same row of an earlier time has what it needs.
fn entity_tag(body: &[u8], computed_at: Option<&str>) -> String {
    let lasting = computed_at.and_then(|pointer| without(body, pointer));
    let hash = sha256(lasting.as_deref().unwrap_or(body));
    let bytes = hash.as_ref().get(..TAG_BYTES).unwrap_or_default();
    format!("\"{}\"", hex::encode(bytes))
}

/// A JSON body without one value.
fn without(body: &[u8], pointer: &str) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    value.pointer_mut(pointer)?.take();
    serde_json::to_vec(&value).ok()
}

fn not_modified(response: HttpResponse) -> HttpResponse {
    let (mut head, _) = response.into_parts();
    *head.status_mut() = StatusCode::NOT_MODIFIED;
    head.headers_mut().remove(CONTENT_TYPE);
    head.set_body(BoxBody::new(()))
}

/// Reads a complete body. A stream stays as it is.
fn with_bytes(response: HttpResponse, read: impl FnOnce(&mut HttpResponse<()>, &Bytes)) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    match body.try_into_bytes() {
        Ok(bytes) => {
            read(&mut head, &bytes);
            head.set_body(BoxBody::new(bytes))
        }
        Err(body) => head.set_body(body),
    }
}

/// Compresses text from `MIN_COMPRESSED_BYTES` for clients that accept it. A response with a secret, or of a route for
/// sessions, is never compressed, because its length would depend on its content.
fn compressed(spec: &RouteSpec, request: &HttpRequest, response: HttpResponse) -> HttpResponse {
    if !may_compress(spec, &response) {
        return response;
    }
    let mut response = match accepted_coding(request) {
        None => response,
        Some(coding) => encoded(response, coding),
    };
    if !response.headers().contains_key(VARY) {
        let accept_encoding = HeaderValue::from_static("Accept-Encoding");
        response.headers_mut().insert(VARY, accept_encoding);
    }
    response
}

fn may_compress(spec: &RouteSpec, response: &HttpResponse) -> bool {
    let is_long = match response.body().size() {
        BodySize::None => false,
        BodySize::Sized(bytes) => bytes >= MIN_COMPRESSED_BYTES,
        BodySize::Stream => true,
    };
    let headers = response.headers();
    is_long
        && spec.content == Content::Data
        && spec.access != Access::Session
        && response.status() != StatusCode::PARTIAL_CONTENT
        && !headers.contains_key(CONTENT_ENCODING)
        && headers.get(CONTENT_TYPE).is_some_and(is_compressible)
}

/// Whether a media type is compressed. An event stream is not: an encoder would hold its events back.
fn is_compressible(content_type: &HeaderValue) -> bool {
    let content_type = content_type.to_str().unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type == "application/json" || (media_type.starts_with("text/") && media_type != "text/event-stream")
}

/// The coding that the client prefers. None: the body is sent as it is.
fn accepted_coding(request: &HttpRequest) -> Option<ContentEncoding> {
    let accepted = AcceptEncoding::parse(request).ok()?;
    let supported = [Encoding::brotli(), Encoding::gzip(), Encoding::identity()];
    let chosen = accepted.negotiate(supported.iter())?;
    CODINGS.into_iter().find(|coding| Encoding::Known(*coding) == chosen)
}

fn encoded(response: HttpResponse, coding: ContentEncoding) -> HttpResponse {
    let (mut head, body) = response.into_parts();
    let tag = head
        .headers()
        .get(ETAG)
        .and_then(|tag| coded_tag(tag.to_str().ok()?, coding.as_str()));
    if let Some(tag) = tag {
        head.headers_mut().insert(ETAG, tag);
    }
    let body = Encoder::response(coding, head.head_mut(), body);
    head.set_body(BoxBody::new(body))
}

/// The entity tag of the compressed form.
fn coded_tag(tag: &str, coding: &str) -> Option<HeaderValue> {
    let bare = tag.strip_suffix('"')?;
    HeaderValue::try_from(format!("{bare}-{coding}\"")).ok()
}

/// Sets `Cache-Control` and `Vary`. A response without `Cache-Control` gets `no-store` from the outermost middleware.
fn set_caching(spec: &RouteSpec, headers: &mut HeaderMap) {
    if spec.access == Access::Public {
        if headers.contains_key(ETAG) {
            insert_absent(headers, CACHE_CONTROL, "no-cache");
        }
        return;
    }
    headers.insert(VARY, HeaderValue::from_static(VARIES));
    if spec.content == Content::Secret {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    } else {
        insert_absent(headers, CACHE_CONTROL, "private, no-cache");
    }
}

fn insert_absent(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    if !headers.contains_key(&name) {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tag_leaves_out_one_time_alone() {
        let tag = |body: &str| entity_tag(body.as_bytes(), Some("/data/members_as_of"));
        let first = tag(r#"{"data":{"members":1,"members_as_of":"2026-01-01"}}"#);
        assert_eq!(first, tag(r#"{"data":{"members":1,"members_as_of":"2026-01-02"}}"#));
        assert_ne!(first, tag(r#"{"data":{"members":2,"members_as_of":"2026-01-01"}}"#));
        // A user's attribute of this name is content.
        let own = |value: &str| format!(r#"{{"data":{{"filters":{{"attributes":{{"members_as_of":"{value}"}}}}}}}}"#);
        assert_ne!(tag(&own("a")), tag(&own("b")));
        assert_ne!(entity_tag(b"a", None), entity_tag(b"b", None));
    }
}
