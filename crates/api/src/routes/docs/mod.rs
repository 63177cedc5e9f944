//! The API reference page: Swagger UI, embedded in the binary, so that it loads nothing from other servers. It reads
//! `/api/openapi.json` and sends requests to this server only.

use std::io::Read as _;

use actix_web::http::header::{
    ACCEPT_ENCODING, AcceptEncoding, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETag,
    Encoding, EntityTag, Header as _, IfNoneMatch, Preference, Quality, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use flate2::read::GzDecoder;
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::web::operation::{OpenApiTag, Operation, custom, empty, text};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Reference",
    description: "This API reference as an interactive web page.",
};

/// Allows scripts, styles, images and requests of this origin only. Swagger UI draws its arrows from `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: Content,
}

enum Content {
    /// A small file of this repository. It changes with each release, so it is not cached.
    Plain(&'static str),
    /// Gzip, compressed at build time and served as is. Its last 8 bytes are checksum and length; they form the ETag.
    Gzip(&'static [u8]),
}

macro_rules! built {
    ($name:literal) => {
        Content::Gzip(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz")))
    };
}

static ASSETS: &[Asset] = &[
    Asset {
        name: "swagger-ui-bundle.js",
        media_type: "text/javascript; charset=utf-8",
        content: built!("swagger-ui-bundle.js"),
    },
    Asset {
        name: "swagger-ui.css",
        media_type: "text/css; charset=utf-8",
        content: built!("swagger-ui.css"),
    },
    Asset {
        name: "favicon-32x32.png",
        media_type: "image/png",
        content: built!("favicon-32x32.png"),
    },
    Asset {
        name: "LICENSE",
        media_type: "text/plain; charset=utf-8",
        content: built!("LICENSE"),
    },
    Asset {
        name: "start.js",
        media_type: "text/javascript; charset=utf-8",
        content: Content::Plain(include_str!("start.js")),
    },
    Asset {
        name: "page.css",
        media_type: "text/css; charset=utf-8",
        content: Content::Plain(include_str!("page.css")),
    },
];

/// `GET /docs`.
async fn page() -> HttpResponse {
    guarded("text/html; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .body(include_str!("index.html"))
}

pub(super) const PAGE: Endpoint = endpoint!(page, {
    let description = "Returns this API reference as an interactive page. It loads nothing from other servers.";
    Operation::new("Get the API reference page", description)
        .responds(
            custom("text/html", "The page.", json!({ "type": "string" }))
                .example(json!("<!doctype html>"))
                .header(
                    "Content-Security-Policy",
                    "Allows scripts, styles and requests of this server only.",
                    json!({ "type": "string", "examples": ["default-src 'none'; script-src 'self'"] }),
                ),
        )
        .never(ErrorCode::Unavailable)
});

/// `GET /docs/<file>`: a file that the page loads.
async fn asset(request: HttpRequest, file: Path<String>) -> Result<HttpResponse, ApiError> {
    let asset = ASSETS.iter().find(|asset| asset.name == file.as_str());
    let asset = asset.ok_or_else(ApiError::not_found)?;
    let mut response = guarded(asset.media_type);
    match asset.content {
        Content::Plain(text) => Ok(response.insert_header((CACHE_CONTROL, "no-cache")).body(text)),
        Content::Gzip(packed) => compressed(response, packed, &request),
    }
}

pub(super) const ASSET: Endpoint = endpoint!(asset, {
    let description =
        "Returns a file that the page loads. Most files are stored as gzip and decompressed for clients without gzip.";
    let file = |media_type| {
        let content = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
        custom(media_type, "The file.", content).example(json!("(content)"))
    };
    let mut response = file("text/javascript");
    for media_type in ["text/css", "image/png", "text/plain"] {
        response = response.or(file(media_type));
    }
    Operation::new("Get a file of the reference page", description)
        .takes(text("file", "The file's name.").in_path().example("start.js"))
        .responds(response)
        .responds(empty(304, "The `ETag` matches the client's copy."))
        .never(ErrorCode::Unavailable)
});

/// A response that the browser must not interpret as another media type.
fn guarded(media_type: &'static str) -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, media_type))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    response
}

/// Serves the gzip content as is, or decompressed for clients that do not accept gzip.
fn compressed(
    mut response: HttpResponseBuilder,
    packed: &'static [u8],
    request: &HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let accepts_gzip = accepts_gzip(request);
    let (_, checksum) = packed.split_at(packed.len().saturating_sub(8));
    let suffix = if accepts_gzip { "-gzip" } else { "" };
    let tag = EntityTag::new_strong(format!("{}{suffix}", hex::encode(checksum)));
    response
        .insert_header((CACHE_CONTROL, "public, max-age=86400"))
        .insert_header((VARY, "Accept-Encoding"))
        .insert_header(ETag(tag.clone()));
    let known = IfNoneMatch::parse(request);
    if matches!(known, Ok(IfNoneMatch::Items(tags)) if tags.iter().any(|given| given.weak_eq(&tag))) {
        return Ok(response.status(actix_web::http::StatusCode::NOT_MODIFIED).finish());
    }
    if accepts_gzip {
        return Ok(response.insert_header((CONTENT_ENCODING, "gzip")).body(packed));
    }
    let mut content = Vec::new();
    let read = GzDecoder::new(packed).read_to_end(&mut content);
    read.map_err(ApiError::internal)?;
    Ok(response.body(content))
}

/// Whether the client accepts gzip. A request without `Accept-Encoding` accepts every coding, one with an empty
/// header none.
fn accepts_gzip(request: &HttpRequest) -> bool {
    let gzip = Preference::Specific(Encoding::gzip());
    let accepts = |accepted: AcceptEncoding| {
        let mut items = accepted.iter();
        items.any(|coding| coding.item == gzip && coding.quality > Quality::ZERO)
    };
    !request.headers().contains_key(ACCEPT_ENCODING) || AcceptEncoding::parse(request).map_or(true, accepts)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{ETAG, IF_NONE_MATCH};
    use actix_web::test::TestRequest;

    use super::*;

    fn accepts(accepted: &str) -> bool {
        let request = TestRequest::default().insert_header((ACCEPT_ENCODING, accepted));
        accepts_gzip(&request.to_http_request())
    }

    #[test]
    fn gzip_is_served_only_if_accepted() {
        assert!(accepts_gzip(&TestRequest::default().to_http_request()));
        for coding in ["gzip", "br, GZIP;q=0.5", "deflate, gzip"] {
            assert!(accepts(coding), "{coding}");
        }
        for refused in ["identity", "", "br", "gzip;q=0", "gzip; q=0.0", "gzip;q=x"] {
            assert!(!accepts(refused), "{refused}");
        }
    }

    #[test]
    fn known_etag_gets_304() {
        let packed = b"content, and then its 8 bytes";
        let respond = |known: &str| {
            let request = TestRequest::default().insert_header((IF_NONE_MATCH, known));
            let request = request.insert_header((ACCEPT_ENCODING, "gzip")).to_http_request();
            let response = compressed(guarded("text/css"), packed, &request).unwrap();
            (
                response.status().as_u16(),
                response.headers().get(ETAG).cloned().unwrap(),
            )
        };
        let (status, tag) = respond("\"other\"");
        let tag = tag.to_str().unwrap();
        assert_eq!((status, tag), (200, "\"2038206279746573-gzip\""));
        for known in [tag, &format!("W/{tag}"), &format!("\"other\", {tag}")] {
            assert_eq!(respond(known).0, 304, "{known}");
        }
        for unknown in ["", "*", "\"2038206279746573\"", tag.trim_matches('"')] {
            assert_eq!(respond(unknown).0, 200, "{unknown}");
        }
    }

    #[test]
    fn embedded_gzip_assets_decompress() {
        for asset in ASSETS {
            if let Content::Gzip(packed) = asset.content {
                let mut content = Vec::new();
                GzDecoder::new(packed).read_to_end(&mut content).unwrap();
                assert!(!content.is_empty(), "{}", asset.name);
            }
        }
    }
}
