//! OpenAPI documentation of templates.

use recado_domain::shared::CursorPage;
use recado_domain::templates::{Submission, SyncReport};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::operation::{Body, Operation, created, data, id, no_content, numbered_page, order, path_id, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::templates::{CATEGORY, META_STATUS, SORT, SubmitBody, TemplateBody, TemplateResponse};
use crate::web::parameters::LIMIT;
use crate::web::responses::LimitedPage;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Templates",
    description: "Messages that may open a conversation after WhatsApp has approved them.",
};

const ID: &str = "The template's id.";

const RULES: &str = "The name is taken in this language; placeholders are not numbered `{{1}}`, `{{2}}`, ... without \
                     gaps, do not match the template's `parameter_format`, or do not have one example each; header, \
                     footer, buttons or cards break WhatsApp's rules; or the folder does not exist.";

/// A list of templates with numbered pages, or with a cursor.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TemplateList {
    /// A numbered page, when the request has no `cursor`.
    Page(LimitedPage<TemplateResponse>),
    /// A page with a cursor, when the request has `cursor`.
    Slice(CursorPage<TemplateResponse>),
}

pub(crate) fn list() -> Operation {
    let cursor = "Selects keyset pagination: empty for the first page, then the `nextCursor` of the previous page. \
                  Without it, the list has numbered pages.";
    Operation::new(
        "List templates",
        "Returns templates with numbered pages or with a cursor.",
    )
    .takes(
        text(
            "search",
            "Only templates whose name or body contains this text (case-insensitive).",
        )
        .example("aulas"),
    )
    .takes(&CATEGORY)
    .takes(&META_STATUS)
    .takes(id("folder_id", "Only templates in this folder."))
    .takes(&SORT)
    .takes(order())
    .takes_all(numbered_page(&LIMIT))
    .takes(text("cursor", cursor).example(""))
    .responds(data::<TemplateList>("A page of templates."))
}

pub(crate) fn create() -> Operation {
    let description = "Creates a draft. Nothing is submitted to WhatsApp.";
    Operation::new("Create a template", description)
        .body(Body::json_with::<TemplateBody>(&["name", "category", "language", "template_type"]).example(input()))
        .responds(created::<TemplateResponse>("The draft.").example(draft()))
        .refuses(ErrorCode::Invalid, RULES)
}

pub(crate) fn sync() -> Operation {
    let description = "Imports every template of a number's WhatsApp business account. Missing templates are created; \
                review status and content of the others are updated. Drafts that were never submitted do not change.";
    Operation::new("Synchronize templates with WhatsApp", description)
        .body(Body::json::<SubmitBody>().optional())
        .responds(data::<SyncReport>("The numbers of created and updated templates."))
        .refuses(
            ErrorCode::Invalid,
            "No WhatsApp number is connected, or `profile_id` does not exist in the account.",
        )
        .refuses(ErrorCode::Whatsapp, "")
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a template", "Returns one template.")
        .takes(path_id(ID))
        .responds(data::<TemplateResponse>("The template."))
}

pub(crate) fn update() -> Operation {
    let description = "Updates a template: absent fields are kept and not checked; null clears a field. The template \
                becomes a draft and must be submitted again. It cannot be changed while WhatsApp reviews it.";
    Operation::new("Update a template", description)
        .takes(path_id(ID))
        .body(Body::change::<TemplateBody>().example(json!({ "footer_text": "Até domingo", "folder_id": null })))
        .responds(
            data::<TemplateResponse>("The updated template.")
                .example(json!({ "footer_text": "Até domingo", "meta_status": "draft" })),
        )
        .refuses(ErrorCode::Invalid, RULES)
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the template. Try again.",
        )
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes a template from Recado, not from WhatsApp. Campaigns that use it cannot start.";
    Operation::new("Delete a template", description)
        .takes(path_id(ID))
        .responds(no_content("The template is deleted."))
}

pub(crate) fn submit() -> Operation {
    let description = "Submits a template with the files of its headers to WhatsApp for review. The review status \
                arrives later, by callback or by synchronization.";
    Operation::new("Submit a template for review", description)
        .takes(path_id(ID))
        .body(Body::json::<SubmitBody>().optional())
        .responds(data::<Submission>("WhatsApp's response."))
        .refuses(
            ErrorCode::Invalid,
            "The template is in review, approved, paused or disabled; WhatsApp does not accept its content (a WebP \
             image, no body); no WhatsApp number is connected; or `profile_id` does not exist in the account.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Another request changed the template in the meantime. Try again.",
        )
        .refuses(ErrorCode::Whatsapp, "")
        .refuses(ErrorCode::Storage, "")
}

fn input() -> Value {
    json!({
        "name": "volta_as_aulas", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "header_type": "text", "header_text": "Volta às aulas",
        "body_text": "Oi {{1}}, use o cupom {{2}} esta semana.",
        "footer_text": "Responda SAIR para não receber mais",
        "buttons": [{ "type": "QUICK_REPLY", "text": "Quero" }],
        "example_values": ["Ana", "VOLTA10"],
    })
}

fn draft() -> Value {
    json!({
        "header_type": "text", "header_media_url": null, "profile_id": null, "meta_template_id": null,
        "meta_status": "draft", "quality_score": null, "folder_id": null,
    })
}
