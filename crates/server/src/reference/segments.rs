//! What the reference says of segments.

use recado_domain::segments::Segment;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, id_of, no_content};
use super::{ErrorCode, OpenApiTag};
use crate::routes::segments::{MembersBody, SegmentBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Segments",
    description: "Named sets of contacts: chosen members, and whoever meets conditions.",
};

const ID: &str = "The segment's id.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List segments",
        "Segments with the number of their contacts, newest first.",
    )
    .takes_all(cursor_page())
    .answers(data::<CursorPage<Segment>>("Segments, and where the next ones begin."))
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
    let description = "Changes a segment: absent fields are kept, null clears; `filters` replaces all conditions.";
    Operation::new("Change a segment", description)
        .takes(id_of(ID))
        .body(Body::change::<SegmentBody>().example(json!({ "name": "Campinas", "filters": null })))
        .answers(data::<Segment>("The segment as it is now."))
}

pub(crate) fn delete() -> Operation {
    let description =
        "Deletes a segment, not its contacts. A campaign that goes to it is refused until it has another audience.";
    Operation::new("Delete a segment", description)
        .takes(id_of(ID))
        .answers(no_content("The segment is deleted."))
}

pub(crate) fn add_members() -> Operation {
    Operation::new(
        "Add members",
        "Makes contacts members of a segment; those that are members stay so.",
    )
    .takes(id_of(ID))
    .body(Body::json::<MembersBody>())
    .answers(data::<Segment>("The segment with its new number of contacts."))
    .refuses(
        ErrorCode::Invalid,
        "A contact does not exist: `contact_ids[3]` is named.",
    )
}

pub(crate) fn remove_members() -> Operation {
    let description = "Takes contacts out of the members of a segment. Those that are none, and those that meet its \
                conditions, are left as they are.";
    Operation::new("Remove members", description)
        .takes(id_of(ID))
        .body(Body::json::<MembersBody>())
        .answers(no_content("They are no members any more."))
}
