//! What the reference says of contacts.

use recado_domain::contacts::{Contact, ContactDetails, ImportReport};
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, id, id_of, no_content, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::contacts::{ContactBody, TagsBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Contacts",
    description: "The people an account writes to, one by one and by the file.",
};

const ID: &str = "The contact's id.";

const REFERENCES: &str = "A tag of `tag_ids` that does not exist is named, too.";

const TAKEN: &str = "The phone, also in another way of writing it (with or without the ninth digit), or the \
                     `wa_user_id` is another contact's; the name is missing; neither phone nor `wa_user_id` is left.";

pub(crate) fn list() -> Operation {
    let search = "Only contacts whose name, phone or e-mail address holds this text, without regard to case; a phone \
                  number is found in any way of writing it.";
    Operation::new("List contacts", "Contacts with their tags, newest first.")
        .takes(text("search", search).example("ana"))
        .takes(id("tag_id", "Only contacts that bear this tag."))
        .takes(id(
            "segment_id",
            "Only contacts of this segment: its members and whoever meets its conditions.",
        ))
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Contact>>("Contacts, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    let description = "Creates a contact. A Brazilian national phone number is completed to E.164.";
    Operation::new("Create a contact", description)
        .body(Body::json_with::<ContactBody>(&["name"]))
        .answers(created::<Contact>("The new contact."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
}

pub(crate) fn get() -> Operation {
    let description = "Returns one contact with its tags, and the ad or post that first led to a message of it.";
    Operation::new("Get a contact", description)
        .takes(id_of(ID))
        .answers(data::<ContactDetails>("The contact."))
}

pub(crate) fn update() -> Operation {
    let description = "Changes a contact: absent fields are kept, null clears. `tag_ids` and `attributes` replace all \
                tags and all attributes.";
    Operation::new("Change a contact", description)
        .takes(id_of(ID))
        .body(Body::change::<ContactBody>().example(json!({ "name": "Ana Lima", "email": null, "opted_out": true })))
        .answers(data::<Contact>("The contact as it is now."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(ErrorCode::Conflict, "It is being changed by other requests.")
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes a contact. What was sent to it stays in the statistics.";
    Operation::new("Delete a contact", description)
        .takes(id_of(ID))
        .answers(no_content("The contact is deleted."))
}

pub(crate) fn set_tags() -> Operation {
    Operation::new(
        "Set a contact's tags",
        "Replaces all tags of a contact; an empty list removes them all.",
    )
    .takes(id_of(ID))
    .body(Body::json::<TagsBody>())
    .answers(data::<Contact>("The contact with its new tags."))
    .refuses(ErrorCode::Invalid, REFERENCES)
    .refuses(ErrorCode::Conflict, "It is being changed by other requests.")
}

pub(crate) fn import() -> Operation {
    let description = "Takes in a file of up to 1,000,000 contacts as it arrives. Each row creates a contact, or \
                changes the one with its phone number; a row that is wrong is skipped and told by its line. So is a \
                row with which its contact would have more than 100 attributes, or more than 16,384 bytes of them. \
                Rows are written in batches of 1,000: what was written before a fault stays.";
    let csv = "name,phone,email,tags,city\nAna Lima,+5511961234567,ana@example.com,vip;novo,Campinas\n";
    let lines = concat!(
        r#"{"name":"Ana Lima","phone":"+5511961234567","tags":["vip"],"city":"Campinas"}"#,
        "\n"
    );
    let file = || json!({ "type": "string" });
    Operation::new("Import contacts", description)
        .body(
            Body::written("text/csv", file())
                .example(json!(csv))
                .or(Body::written("application/x-ndjson", file()).example(json!(lines)))
                .or(Body::written("application/ndjson", file()).example(json!(lines)))
                .or(Body::written("application/jsonl", file()).example(json!(lines)))
                .described(
                    "CSV with a header line: `name` and `phone`, maybe `email` and `tags` (separated by `;`), in any \
                     order; every other column is an attribute. Or one JSON object a line, with the fields of a new \
                     contact and its tags by name; every other text, number or boolean is an attribute.",
                ),
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "On one server an account has at most 2 imports under way.",
        )
        .answers(data::<ImportReport>("What became of the file."))
        .never(ErrorCode::TooLarge)
        .refuses(
            ErrorCode::Invalid,
            "The header line lacks `name` or `phone`; or the file has too many rows.",
        )
}
