//! What the reference says of tags.

use recado_domain::contacts::Tag as Label;
use recado_domain::shared::Slice;

use super::operation::{Body, Operation, created, data, gone, id_of, slice};
use super::{Fault, Tag};
use crate::routes::tags::NewTag;

pub(crate) const TAG: Tag = Tag {
    name: "Tags",
    description: "Labels on contacts.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List tags", "Tags, newest first.")
        .takes_all(slice())
        .answers(data::<Slice<Label>>("Tags, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a tag", "Creates a tag.")
        .body(Body::json::<NewTag>())
        .answers(created::<Label>("The new tag."))
        .refuses(Fault::Invalid, "The name is another tag's.")
}

pub(crate) fn delete() -> Operation {
    Operation::new("Delete a tag", "Deletes a tag and takes it off every contact.")
        .takes(id_of("The tag's id."))
        .answers(gone("The tag is deleted."))
}
