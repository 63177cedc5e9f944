//! OpenAPI documentation of segments.

use recado_domain::segments::Segment;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, no_content, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::segments::{MembersBody, SegmentBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Segments",
    description: "Named sets of contacts: members plus every contact that matches the filters.",
};

const ID: &str = "The segment's id.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List segments",
        "Returns segments with their number of contacts, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<Segment>>("A page of segments and its `nextCursor`."))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create a segment",
        "Creates a segment without members. Its filters apply immediately.",
    )
    .body(Body::json_with::<SegmentBody>(&["name"]))
    .responds(created::<Segment>("The new segment."))
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a segment", "Returns one segment with its number of contacts.")
        .takes(path_id(ID))
        .responds(data::<Segment>("The segment."))
}

pub(crate) fn update() -> Operation {
    let description = "Updates a segment: absent fields are kept; null clears a field. `filters` replaces all filters.";
    Operation::new("Update a segment", description)
        .takes(path_id(ID))
        .body(Body::change::<SegmentBody>().example(json!({ "name": "Campinas", "filters": null })))
        .responds(data::<Segment>("The updated segment."))
}

pub(crate) fn delete() -> Operation {
    let description =
        "Deletes a segment, not its contacts. A campaign that uses it cannot start until it has another audience.";
    Operation::new("Delete a segment", description)
        .takes(path_id(ID))
        .responds(no_content("The segment is deleted."))
}

pub(crate) fn add_members() -> Operation {
    Operation::new(
        "Add segment members",
        "Adds contacts to the members of a segment. Contacts that already are members stay members.",
    )
    .takes(path_id(ID))
    .body(Body::json::<MembersBody>())
    .responds(data::<Segment>("The segment with its updated number of contacts."))
    .refuses(
        ErrorCode::Invalid,
        "A contact does not exist; it is named by its index, such as `contact_ids[3]`.",
    )
}

pub(crate) fn remove_members() -> Operation {
    let description = "Removes contacts from the members of a segment. Contacts that are not members are ignored. A \
                contact that matches the filters still belongs to the segment.";
    Operation::new("Remove segment members", description)
        .takes(path_id(ID))
        .body(Body::json::<MembersBody>())
        .responds(no_content("The contacts are no longer members."))
}
