//! OpenAPI documentation of the API reference page.

use serde_json::json;

use super::operation::{Operation, custom, empty, text};
use super::{ErrorCode, OpenApiTag};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Reference",
    description: "This API reference as an interactive web page.",
};

pub(crate) fn page() -> Operation {
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
}

pub(crate) fn asset() -> Operation {
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
}
