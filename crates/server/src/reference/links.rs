//! What the reference says of short links.

use recado_domain::links::Link;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, empty, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::links::NewLink;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Links",
    description: "Short links whose clicks are counted, and which orders are owed to.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List links", "Links of the account, newest first.")
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Link>>("Links, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a link", "Makes a short link to a page of the web.")
        .body(Body::json::<NewLink>())
        .answers(created::<Link>("The link.").example(json!({ "clicks": 0 })))
        .refuses(ErrorCode::Invalid, "A campaign that does not exist is named, too.")
}

pub(crate) fn follow() -> Operation {
    let description = "Leads on to where a short link leads, and counts the click.";
    Operation::new("Follow a link", description)
        .takes(text("code", "The link's `short_code`.").in_path().example("Ab3dE9x_2"))
        .answers(
            empty(302, "Where it leads.")
                .header(
                    "Location",
                    "Where it leads.",
                    json!({ "type": "string", "format": "uri" }),
                )
                .header(
                    "Cache-Control",
                    "Every click is counted.",
                    json!({ "type": "string", "const": "no-store" }),
                ),
        )
        .refuses(ErrorCode::Invalid, "")
}
