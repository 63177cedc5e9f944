//! OpenAPI documentation of tags.

use recado_domain::contacts::Tag as Label;
use recado_domain::shared::CursorPage;

use super::operation::{Body, Operation, created, cursor_page, data, no_content, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::tags::NewTag;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Tags",
    description: "Labels on contacts.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List tags", "Returns tags, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<Label>>("A page of tags and its `nextCursor`."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a tag", "Creates a tag with a unique name.")
        .body(Body::json::<NewTag>())
        .responds(created::<Label>("The new tag."))
        .refuses(ErrorCode::Invalid, "Another tag has this name.")
}

pub(crate) fn delete() -> Operation {
    Operation::new("Delete a tag", "Deletes a tag and removes it from every contact.")
        .takes(path_id("The tag's id."))
        .responds(no_content("The tag is deleted."))
}
