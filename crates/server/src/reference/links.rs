//! OpenAPI documentation of short links.

use recado_domain::links::Link;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, empty, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::links::NewLink;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Links",
    description: "Short links that count clicks and to which orders can be attributed.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List links", "Returns the account's links, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<Link>>("A page of links and its `nextCursor`."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a link", "Creates a short link to a web page.")
        .body(Body::json::<NewLink>())
        .responds(created::<Link>("The new link.").example(json!({ "clicks": 0 })))
        .refuses(ErrorCode::Invalid, "The campaign does not exist.")
}

pub(crate) fn follow() -> Operation {
    let description = "Redirects to the target of a short link and counts the click.";
    Operation::new("Follow a link", description)
        .takes(text("code", "The link's `short_code`.").in_path().example("Ab3dE9x_2"))
        .responds(
            empty(302, "Redirect to the target.")
                .header(
                    "Location",
                    "The target of the link.",
                    json!({ "type": "string", "format": "uri" }),
                )
                .header(
                    "Cache-Control",
                    "Prevents caching, so that every click is counted.",
                    json!({ "type": "string", "const": "no-store" }),
                ),
        )
        .refuses(ErrorCode::Invalid, "")
}
