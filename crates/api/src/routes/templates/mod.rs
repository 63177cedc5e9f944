//! Message templates.

mod fields;

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::messaging::{Category, MetaStatus};
use recado_domain::shared::{CursorPage, ProfileId, TemplateId};
use recado_domain::templates::{Submission, SyncReport, TemplateCheck, TemplateFilter, TemplateSort, Templates};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use self::fields::{TemplateBody, TemplateResponse};
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, MaybeJson};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, no_content, numbered_page, order, path_id};
use crate::web::parameters::{CursorParam, EnumParam, IdParam, LIMIT, SortParam, TextParam};
use crate::web::query::Params;
use crate::web::responses::{self, LimitedPage};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Templates",
    description: "Messages that may open a conversation after WhatsApp has approved them.",
};

const ID: &str = "The template's id.";

const RULES: &str = "The name is taken in this language; placeholders are not numbered `{{1}}`, `{{2}}`, ... without \
                     gaps, do not match the template's `parameter_format`, or do not have one example each; header, \
                     footer, buttons or cards break WhatsApp's rules; or the folder does not exist.";

const SEARCH: TextParam = TextParam::new(
    "search",
    "Only templates whose name or body contains this text (case-insensitive).",
    "aulas",
);

const FOLDER: IdParam = IdParam::new("folder_id", "Only templates in this folder.");

const CURSOR: CursorParam = CursorParam {
    description: "Selects keyset pagination: empty for the first page, then the `nextCursor` of the previous page. \
                  Without it, the list has numbered pages.",
    example: Some(""),
};

const CATEGORY: EnumParam<Category> = EnumParam {
    name: "category",
    description: "Only templates of this category.",
    accepted: "MARKETING, UTILITY or AUTHENTICATION",
    example: Some(Category::Marketing),
};

const META_STATUS: EnumParam<MetaStatus> = EnumParam {
    name: "meta_status",
    description: "Only templates with this review status.",
    accepted: "a review status, such as approved",
    example: Some(MetaStatus::Approved),
};

pub(crate) const SORT: SortParam<TemplateSort> = SortParam {
    description: "Sort key.",
    accepted: "created_at, updated_at or name",
    default: TemplateSort::CreatedAt,
};

/// The WhatsApp number to use.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct SubmitBody {
    /// The id of the number whose WhatsApp business account is used. If absent, the number that was connected first.
    profile_id: Option<ProfileId>,
}

/// `GET /api/templates`: keyset pagination if `cursor` is present, otherwise numbered pages.
async fn list(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = filter(&mut params);
    let (page, cursor_query) = (params.page(), params.has_cursor().then(|| params.cursor_query()));
    params.check()?;
    Ok(match cursor_query {
        Some(cursor_query) => {
            let page = templates.cursor_page(&tenant, &filter, &cursor_query).await?;
            responses::ok(page.map(TemplateResponse::from))
        }
        None => {
            let page = templates.page(&tenant, &filter, page).await?;
            responses::wrapped_page(page.map(TemplateResponse::from))
        }
    })
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List templates",
        "Returns templates with numbered pages or with a cursor.",
    )
    .takes(&SEARCH)
    .takes(&CATEGORY)
    .takes(&META_STATUS)
    .takes(&FOLDER)
    .takes(&SORT)
    .takes(order())
    .takes_all(numbered_page(&LIMIT))
    .takes(&CURSOR)
    .responds(data::<TemplateList>("A page of templates."))
});

fn filter(params: &mut Params) -> TemplateFilter {
    TemplateFilter {
        search: params.text(&SEARCH),
        category: params.one_of(&CATEGORY),
        meta_status: params.one_of(&META_STATUS),
        folder_id: params.id(&FOLDER),
        sort: params.sort(&SORT),
        descending: params.descending(),
    }
}

/// `POST /api/templates`
async fn create(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    let template = templates.create(&tenant, input.into()).await?;
    Ok(responses::created(TemplateResponse::from(template)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Creates a draft. Nothing is submitted to WhatsApp.";
    Operation::new("Create a template", description)
        .body(Body::json_with::<TemplateBody>(&["name", "category", "language", "template_type"]).example(input()))
        .responds(created::<TemplateResponse>("The draft.").example(draft()))
        .refuses(ErrorCode::Invalid, RULES)
});

/// `GET /api/templates/<id>`
async fn get(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    let template = templates.get(&tenant, id).await?;
    Ok(responses::ok(TemplateResponse::from(template)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get a template", "Returns one template.")
        .takes(path_id(ID))
        .responds(data::<TemplateResponse>("The template."))
});

/// `PUT /api/templates/<id>`
async fn update(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
    JsonChange(input): JsonChange<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    let template = templates.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(TemplateResponse::from(template)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates a template: absent fields do not change and are not checked; null clears a field. The template \
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
});

/// `DELETE /api/templates/<id>`
async fn delete(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    templates.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description = "Deletes a template from Recado, not from WhatsApp. Campaigns that use it cannot start.";
    Operation::new("Delete a template", description)
        .takes(path_id(ID))
        .responds(no_content("The template is deleted."))
});

/// `POST /api/templates/<id>/submit`
async fn submit(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(templates.submit(&tenant, id, input.profile_id).await?))
}

pub(super) const SUBMIT: Endpoint = endpoint!(submit, {
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
});

/// `POST /api/templates/<id>/check`
async fn check(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(templates.check(&tenant, id).await?))
}

pub(super) const CHECK: Endpoint = endpoint!(check, {
    let description = "Checks a template as a submission would, and lists what WhatsApp often dislikes. WhatsApp is not \
                asked, and nothing changes. The template's review status does not matter.";
    Operation::new("Check a template", description)
        .takes(path_id(ID))
        .responds(data::<TemplateCheck>("The errors and warnings.").example(json!({ "warnings": [] })))
        .refuses(ErrorCode::Storage, "")
});

/// `POST /api/templates/sync`
async fn sync(
    templates: Data<Templates>,
    Authenticated(tenant): TenantContext,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(templates.sync(&tenant, input.profile_id).await?))
}

pub(super) const SYNC: Endpoint = endpoint!(sync, {
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
});

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
        "meta_status": "draft", "quality_score": null, "quality": null, "folder_id": null,
    })
}
