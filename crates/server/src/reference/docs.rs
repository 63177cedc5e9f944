//! What the reference says of itself as a page.

use serde_json::json;

use super::operation::{Operation, empty, text, written};
use super::{ErrorCode, OpenApiTag};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Reference",
    description: "This reference as a page to read and to try out.",
};

pub(crate) fn page() -> Operation {
    let description =
        "This reference as a page. It loads nothing from any other server, and operations can be tried out on it.";
    Operation::new("Read the reference", description)
        .answers(
            written("text/html", "The page.", json!({ "type": "string" }))
                .example(json!("<!doctype html>"))
                .header(
                    "Content-Security-Policy",
                    "Scripts, styles and calls of this server alone.",
                    json!({ "type": "string", "examples": ["default-src 'none'; script-src 'self'"] }),
                ),
        )
        .never(ErrorCode::Unavailable)
}

pub(crate) fn asset() -> Operation {
    let description =
        "What the page loads. Most of it is compressed at build time; whoever takes no gzip gets it unpacked.";
    let file = |media_type| {
        let content = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
        written(media_type, "The file.", content).example(json!("(content)"))
    };
    let mut answer = file("text/javascript");
    for media_type in ["text/css", "image/png", "text/plain"] {
        answer = answer.or(file(media_type));
    }
    Operation::new("Load a part of the page", description)
        .takes(text("file", "The file's name.").in_path().example("start.js"))
        .answers(answer)
        .answers(empty(304, "The caller has it already, by its `ETag`."))
        .never(ErrorCode::Unavailable)
}
