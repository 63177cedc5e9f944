//! What the reference says of files.

use recado_domain::media::StoredMedia;
use serde_json::json;

use super::operation::{Body, Operation, data, id, text, written};
use super::{ErrorCode, OpenApiTag};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Files",
    description: "Pictures, films and documents of template headers.",
};

pub(crate) fn upload() -> Operation {
    let description = "Stores a file for the header of a template. What it is, is decided by its first bytes: \
                `image/jpeg`, `image/png` and `image/webp` of at most 5 MB, `video/mp4` of at most 16 MB, \
                `application/pdf` of at most 100 MB. WhatsApp takes no WebP as a header.";
    let form = json!({
        "type": "object",
        "required": ["file"],
        "properties": { "file": {
            "type": "string",
            "contentMediaType": "application/octet-stream",
            "description": "The file: one part, with a name.",
            "examples": ["(the bytes of bolo.png)"],
        } },
    });
    Operation::new("Upload a file", description)
        .body(
            Body::written("multipart/form-data", form)
                .example(json!({ "file": "(the bytes of bolo.png)" }))
                .described("A form with one file; its other parts are ignored, and there are at most 20."),
        )
        .answers(data::<StoredMedia>("The stored file."))
        .refuses(
            ErrorCode::Invalid,
            "The file is of another type, or too large for its type.",
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "On one server an account has at most 3 uploads under way.",
        )
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn fetch() -> Operation {
    let description = "A stored file, as it was uploaded: the address that an upload answered.";
    let path = "The account's id.";
    let file = "The file's name: an id and the ending of its type.";
    let name = "0190a1b2-c3d4-7e5f-8a9b-000000000002.png";
    Operation::new("Fetch a file", description)
        .takes(id("account", path).in_path())
        .takes(text("file", file).in_path().example(name))
        .answers(files())
        .refuses(ErrorCode::Storage, "")
}

/// The file in any of the types that there are.
fn files() -> super::operation::Answer {
    let bytes = || json!({ "type": "string", "contentMediaType": "application/octet-stream" });
    let mut answer = written("image/png", "The file.", bytes()).example(json!("(bytes)"));
    for media_type in ["image/jpeg", "image/webp", "video/mp4", "application/pdf"] {
        let other = written(media_type, "The file.", bytes()).example(json!("(bytes)"));
        answer = answer.or(other);
    }
    answer.header(
        "Cache-Control",
        "The file never changes: it may be kept for a year.",
        json!({ "type": "string", "examples": ["public, max-age=31536000, immutable"] }),
    )
}
