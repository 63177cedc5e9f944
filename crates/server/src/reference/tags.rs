//! What the reference says of tags.

use recado_domain::contacts::Tag as Label;
use recado_domain::shared::CursorPage;

use super::operation::{Body, Operation, created, cursor_page, data, id_of, no_content};
use super::{ErrorCode, OpenApiTag};
use crate::routes::tags::NewTag;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Tags",
    description: "Labels on contacts.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List tags", "Tags, newest first.")
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Label>>("Tags, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a tag", "Creates a tag.")
        .body(Body::json::<NewTag>())
        .answers(created::<Label>("The new tag."))
        .refuses(ErrorCode::Invalid, "The name is another tag's.")
}

pub(crate) fn delete() -> Operation {
    Operation::new("Delete a tag", "Deletes a tag and takes it off every contact.")
        .takes(id_of("The tag's id."))
        .answers(no_content("The tag is deleted."))
}
