//! What the reference says of templates.

use recado_domain::shared::CursorPage;
use recado_domain::templates::{Category, MetaStatus, Submission, SyncReport, TemplateSort};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::operation::{Body, Operation, created, data, id, id_of, no_content, order, page_of, string_enum, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::templates::{SubmitBody, TemplateBody, TemplateResponse};
use crate::web::responses::LimitedPage;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Templates",
    description: "The messages that a business may begin a conversation with, once WhatsApp has approved them.",
};

const ID: &str = "The template's id.";

const RULES: &str = "The name is taken in this language; placeholders are not numbered `{{1}}`, `{{2}}`, ... without \
                     gaps, are not of the template's `parameter_format`, or have not one example each; header, footer, buttons or cards are not as WhatsApp takes \
                     them; or the folder does not exist.";

/// A list, in whichever way it was asked for.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TemplateList {
    /// By numbered pages.
    Page(LimitedPage<TemplateResponse>),
    /// By position.
    Slice(CursorPage<TemplateResponse>),
}

pub(crate) fn list() -> Operation {
    let cursor = "Asks for the list by position: empty for the first items, then the `nextCursor` of the answer before. \
                  Without it, the list has numbered pages.";
    Operation::new("List templates", "Templates, by numbered pages or by position.")
        .takes(
            text(
                "search",
                "Only templates whose name or body holds this text, without regard to case.",
            )
            .example("aulas"),
        )
        .takes(string_enum::<Category>("category", "Only templates of this category.").example("MARKETING"))
        .takes(string_enum::<MetaStatus>("meta_status", "Only templates with this verdict.").example("approved"))
        .takes(id("folder_id", "Only templates in this folder."))
        .takes(
            string_enum::<TemplateSort>("sort", "What the list is ordered by.")
                .default("created_at")
                .example("created_at"),
        )
        .takes(order())
        .takes_all(page_of((20, 100)))
        .takes(text("cursor", cursor).example(""))
        .answers(data::<TemplateList>("Templates."))
}

pub(crate) fn create() -> Operation {
    let description = "Creates a draft; nothing is handed in to WhatsApp.";
    Operation::new("Create a template", description)
        .body(Body::json_with::<TemplateBody>(&["name", "category", "language", "template_type"]).example(input()))
        .answers(created::<TemplateResponse>("The draft.").example(draft()))
        .refuses(ErrorCode::Invalid, RULES)
}

pub(crate) fn sync() -> Operation {
    let description = "Takes over every template that the business account of a number has at WhatsApp: those that are \
                unknown here are created, verdicts and contents of the others follow. A draft that was not handed in \
                stays.";
    Operation::new("Synchronise with WhatsApp", description)
        .body(Body::json::<SubmitBody>().optional())
        .answers(data::<SyncReport>("What the synchronisation did."))
        .refuses(
            ErrorCode::Invalid,
            "No WhatsApp number is connected, or `profile_id` is none of the account's.",
        )
        .refuses(ErrorCode::Whatsapp, "")
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a template", "One template.")
        .takes(id_of(ID))
        .answers(data::<TemplateResponse>("The template."))
}

pub(crate) fn update() -> Operation {
    let description = "Changes a template: absent fields are kept and not checked, null clears. It becomes a draft \
                that has to be handed in again. While WhatsApp reviews it, it cannot be changed.";
    Operation::new("Change a template", description)
        .takes(id_of(ID))
        .body(Body::change::<TemplateBody>().example(json!({ "footer_text": "Até domingo", "folder_id": null })))
        .answers(
            data::<TemplateResponse>("The template as it is now.")
                .example(json!({ "footer_text": "Até domingo", "meta_status": "draft" })),
        )
        .refuses(ErrorCode::Invalid, RULES)
        .refuses(ErrorCode::Conflict, "It is being changed by another request.")
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes a template here. WhatsApp keeps it; campaigns that use it cannot run.";
    Operation::new("Delete a template", description)
        .takes(id_of(ID))
        .answers(no_content("The template is deleted."))
}

pub(crate) fn submit() -> Operation {
    let description = "Hands a template in to WhatsApp, with the files of its headers. The verdict arrives later: by \
                the callback, or by a synchronisation.";
    Operation::new("Hand a template in", description)
        .takes(id_of(ID))
        .body(Body::json::<SubmitBody>().optional())
        .answers(data::<Submission>("WhatsApp's answer."))
        .refuses(
            ErrorCode::Invalid,
            "The template is reviewed, approved or stopped; it has something that WhatsApp does not take (a WebP picture, \
             no body); no WhatsApp number is connected; or `profile_id` is none of the account's.",
        )
        .refuses(ErrorCode::Conflict, "It was changed by another request meanwhile.")
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
