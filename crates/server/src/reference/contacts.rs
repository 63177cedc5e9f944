//! OpenAPI documentation of contacts.

use recado_domain::contacts::{Contact, ContactDetails, ImportReport};
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, id, no_content, path_id, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::contacts::{ContactBody, TagsBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Contacts",
    description: "Manage and import the people that an account writes to.",
};

const ID: &str = "The contact's id.";

const REFERENCES: &str = "A tag of `tag_ids` does not exist.";

const TAKEN: &str = "Another contact has the phone number (with or without the ninth digit) or the `wa_user_id`; the \
                     name is missing; or both phone and `wa_user_id` would be empty.";

pub(crate) fn list() -> Operation {
    let search = "Only contacts whose name, phone or e-mail address contains this text (case-insensitive). A phone \
                  number is found in any notation; a whole number finds the contact that has it, and no other. A page ends early, and may be empty, if a large account has few such \
                  contacts; `hasMore` and `nextCursor` say whether more contacts remain to be searched.";
    Operation::new("List contacts", "Returns contacts with their tags, newest first.")
        .takes(text("search", search).example("ana"))
        .takes(id("tag_id", "Only contacts with this tag."))
        .takes(id(
            "segment_id",
            "Only contacts of this segment: its members and every contact that matches its filters.",
        ))
        .takes_all(cursor_page())
        .responds(data::<CursorPage<Contact>>("A page of contacts and its `nextCursor`."))
}

pub(crate) fn create() -> Operation {
    let description = "Creates a contact. A Brazilian national phone number is converted to E.164.";
    Operation::new("Create a contact", description)
        .body(Body::json_with::<ContactBody>(&["name"]))
        .responds(created::<Contact>("The new contact."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
}

pub(crate) fn get() -> Operation {
    let description = "Returns one contact with its tags, and the ad or post that led to its first message.";
    Operation::new("Get a contact", description)
        .takes(path_id(ID))
        .responds(data::<ContactDetails>("The contact."))
}

pub(crate) fn update() -> Operation {
    let description = "Updates a contact: absent fields are kept; null clears a field. `tag_ids` and `attributes` \
                replace all tags and all attributes.";
    Operation::new("Update a contact", description)
        .takes(path_id(ID))
        .body(Body::change::<ContactBody>().example(json!({ "name": "Ana Lima", "email": null, "opted_out": true })))
        .responds(data::<Contact>("The updated contact."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the contact. Try again.",
        )
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes a contact. Messages sent to it remain in the statistics.";
    Operation::new("Delete a contact", description)
        .takes(path_id(ID))
        .responds(no_content("The contact is deleted."))
}

pub(crate) fn set_tags() -> Operation {
    Operation::new(
        "Replace a contact's tags",
        "Replaces all tags of a contact. An empty list removes all tags.",
    )
    .takes(path_id(ID))
    .body(Body::json::<TagsBody>())
    .responds(data::<Contact>("The contact with its new tags."))
    .refuses(ErrorCode::Invalid, REFERENCES)
    .refuses(
        ErrorCode::Conflict,
        "Other requests are changing the contact. Try again.",
    )
}

pub(crate) fn import() -> Operation {
    let description = "Imports a file of up to 1,000,000 contacts while it is received. Each row creates a contact or \
                updates the contact with the same phone number. An invalid row is skipped and reported with its line \
                number; so is a row that would give its contact more than 100 attributes or 16,384 bytes of \
                attributes. Rows are written in batches of 1,000; batches written before an error remain.";
    let csv = "name,phone,email,tags,city\nAna Lima,+5511961234567,ana@example.com,vip;novo,Campinas\n";
    let lines = concat!(
        r#"{"name":"Ana Lima","phone":"+5511961234567","tags":["vip"],"city":"Campinas"}"#,
        "\n"
    );
    let file = || json!({ "type": "string" });
    Operation::new("Import contacts", description)
        .body(
            Body::custom("text/csv", file())
                .example(json!(csv))
                .or(Body::custom("application/x-ndjson", file()).example(json!(lines)))
                .or(Body::custom("application/ndjson", file()).example(json!(lines)))
                .or(Body::custom("application/jsonl", file()).example(json!(lines)))
                .described(
                    "CSV with a header line: `name` and `phone`, optionally `email` and `tags` (separated by `;`), in \
                     any order; every other column is an attribute. Or one JSON object per line with the fields of a \
                     new contact and its tags by name; every other string, number or boolean is an attribute.",
                ),
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "An account can run at most 3 imports at a time on one server.",
        )
        .responds(data::<ImportReport>(
            "The numbers of created, updated and skipped rows.",
        ))
        .never(ErrorCode::TooLarge)
        .refuses(
            ErrorCode::Invalid,
            "The header line lacks `name` or `phone`, or the file has too many rows.",
        )
}
