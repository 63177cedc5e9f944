//! OpenAPI documentation of media files.

use recado_domain::media::StoredMedia;
use serde_json::json;

use super::operation::{Body, Operation, custom, data, id, text};
use super::{ErrorCode, OpenApiTag};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Files",
    description: "Images, videos and documents for template headers.",
};

pub(crate) fn upload() -> Operation {
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
        .responds(data::<StoredMedia>("The stored file."))
        .refuses(
            ErrorCode::Invalid,
            "The file type is not supported, or the file is too large for its type.",
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "An account can run at most 5 uploads at a time on one server.",
        )
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn fetch() -> Operation {
    let description = "Returns an uploaded file. An upload returns this address as its URL.";
    let path = "The account's id.";
    let file = "The file's name: an id and the extension of its type.";
    let name = "0190a1b2-c3d4-7e5f-8a9b-000000000002.png";
    Operation::new("Get a file", description)
        .takes(id("account", path).in_path())
        .takes(text("file", file).in_path().example(name))
        .responds(files())
        .refuses(ErrorCode::Storage, "")
}

/// A response with the file in any of the supported media types.
fn files() -> super::operation::ResponseDoc {
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
