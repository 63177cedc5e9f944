//! What the reference says of segments.

use recado_domain::segments::Segment;
use recado_domain::shared::Slice;
use serde_json::json;

use super::operation::{Body, Operation, created, data, gone, id_of, slice};
use super::{Fault, Tag};
use crate::routes::segments::{MembersBody, SegmentBody};

pub(crate) const TAG: Tag = Tag {
    name: "Segments",
    description: "Named sets of contacts: chosen members, and whoever meets conditions.",
};

const ID: &str = "The segment's id.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List segments",
        "Segments with the number of their contacts, newest first.",
    )
    .takes_all(slice())
    .answers(data::<Slice<Segment>>("Segments, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create a segment",
        "Creates a segment without members; its conditions count at once.",
    )
    .body(Body::json_with::<SegmentBody>(&["name"]))
    .answers(created::<Segment>("The new segment."))
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a segment", "One segment with the number of its contacts.")
        .takes(id_of(ID))
        .answers(data::<Segment>("The segment."))
}

pub(crate) fn update() -> Operation {
    let told = "Changes a segment: absent fields are kept, null clears; `filters` replaces all conditions.";
    Operation::new("Change a segment", told)
        .takes(id_of(ID))
        .body(Body::change::<SegmentBody>().example(json!({ "name": "Campinas", "filters": null })))
        .answers(data::<Segment>("The segment as it is now."))
}

pub(crate) fn delete() -> Operation {
    let told =
        "Deletes a segment, not its contacts. A campaign that goes to it is refused until it has another audience.";
    Operation::new("Delete a segment", told)
        .takes(id_of(ID))
        .answers(gone("The segment is deleted."))
}

pub(crate) fn add_members() -> Operation {
    Operation::new(
        "Add members",
        "Makes contacts members of a segment; those that are members stay so.",
    )
    .takes(id_of(ID))
    .body(Body::json::<MembersBody>())
    .answers(data::<Segment>("The segment with its new number of contacts."))
    .refuses(Fault::Invalid, "A contact does not exist: `contact_ids[3]` is named.")
}

pub(crate) fn remove_members() -> Operation {
    let told = "Takes contacts out of the members of a segment. Those that are none, and those that meet its conditions, \
                are left as they are.";
    Operation::new("Remove members", told)
        .takes(id_of(ID))
        .body(Body::json::<MembersBody>())
        .answers(gone("They are no members any more."))
}
