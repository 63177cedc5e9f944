//! Message templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::messaging::{Button, CarouselCard, Category, HeaderType, MetaStatus, ParameterFormat};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, CursorPage, FolderId, ProfileId, TemplateId, timestamp};
use recado_domain::templates::{
    CategoryChange, Submission, SyncReport, Template, TemplateFilter, TemplateInput, TemplateSort, TemplateType,
    Templates,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, no_content, numbered_page, order, path_id};
use crate::web::parameters::{CursorParam, EnumParam, IdParam, LIMIT, SortParam, TextParam};
use crate::web::query::Params;
use crate::web::responses::{self, LimitedPage, response_type};
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

/// The fields of a template.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct TemplateBody {
    /// The template's name: 1 to 512 lowercase letters, digits and underscores, unique in the account for each
    /// `language`.
    #[schemars(regex(pattern = r"^[a-z0-9_]{1,512}$"), example = &"volta_as_aulas")]
    name: Option<String>,
    /// WhatsApp's category of the template.
    #[schemars(with = "Option<Category>")]
    category: Option<String>,
    /// The language code: two or three lowercase letters, optionally followed by `_` and two capital letters.
    #[schemars(example = &"pt_BR")]
    language: Option<String>,
    /// A single message, or a message with a carousel of cards.
    #[schemars(with = "Option<TemplateType>")]
    template_type: Option<String>,
    /// The format of placeholders in header and body: `positional` (`{{1}}`, `{{2}}`, ...; the default) or `named`
    /// (`{{first_name}}`).
    #[schemars(with = "Option<ParameterFormat>")]
    parameter_format: Option<String>,
    /// The type of the header; `none` if absent.
    #[schemars(with = "Option<HeaderType>")]
    #[serde(default, deserialize_with = "nullable")]
    header_type: Option<Option<String>>,
    /// The text of a header of type `text`: at most 60 characters, with at most one placeholder.
    #[schemars(length(max = 60), example = "Volta às aulas")]
    #[serde(default, deserialize_with = "nullable")]
    header_text: Option<Option<String>>,
    /// The URL of the file of a header of type `image`, `video` or `document`, as returned by an upload.
    #[schemars(
        example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
    )]
    #[serde(default, deserialize_with = "nullable")]
    header_media_url: Option<Option<String>>,
    /// The text of the message: at most 1024 characters, with placeholders `{{1}}`, `{{2}}`, ... for the values of a
    /// contact. A named placeholder has at most 64 lowercase letters, digits and underscores.
    #[schemars(length(max = 1024), example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
    #[serde(default, deserialize_with = "nullable")]
    body_text: Option<Option<String>>,
    /// The footer below the body: at most 60 characters, without placeholders.
    #[schemars(length(max = 60), example = "Responda SAIR para não receber mais")]
    #[serde(default, deserialize_with = "nullable")]
    footer_text: Option<Option<String>>,
    /// At most 10 buttons in WhatsApp's format: objects with `type` (`QUICK_REPLY`, `URL`, `PHONE_NUMBER`,
    /// `COPY_CODE`), `text` and the fields of the type. At most 65,536 bytes in total.
    #[schemars(length(max = 10), example = serde_json::json!([{ "type": "QUICK_REPLY", "text": "Quero" }]))]
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(with = "Option<Vec<Value>>")]
    buttons: Option<Option<Vec<Button>>>,
    /// One example value for each placeholder, ordered by number, or by first appearance of the name, header first.
    /// Responses return the examples as `variables`.
    #[schemars(example = ["Ana", "VOLTA10"])]
    #[serde(default, deserialize_with = "nullable")]
    example_values: Option<Option<Vec<String>>>,
    /// The 2 to 10 cards of a carousel in WhatsApp's format. At most 65,536 bytes in total.
    #[schemars(length(max = 10), example = serde_json::json!([]))]
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(with = "Option<Vec<Value>>")]
    carousel_cards: Option<Option<Vec<CarouselCard>>>,
    /// The id of the template's folder.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for TemplateBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "category", "language", "template_type", "parameter_format"];
}

/// A message template. On WhatsApp, only a template may open a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Template")]
struct TemplateResponse {
    #[serde(flatten)]
    template: TemplateFields,
    /// Whether this server can send messages from the template after WhatsApp has approved it.
    sendable: bool,
    /// The reasons why the template is not `sendable`: `unsupported_component:<type>`, `unsupported_header:<format>`,
    /// `unsupported_button:<type>`, `unsupported_parameter_format`, `carousel_shape` or `missing_media`.
    #[schemars(example = serde_json::json!([]))]
    reasons: Vec<String>,
}

impl From<Template> for TemplateResponse {
    fn from(template: Template) -> Self {
        let reasons = template.unsendable_reasons();
        Self {
            template: template.into(),
            sendable: reasons.is_empty(),
            reasons,
        }
    }
}

/// The WhatsApp number to use.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct SubmitBody {
    /// The id of the number whose WhatsApp business account is used. If absent, the number that was connected first.
    profile_id: Option<ProfileId>,
}

impl From<TemplateBody> for TemplateInput {
    fn from(body: TemplateBody) -> Self {
        Self {
            name: body.name,
            category: body.category,
            language: body.language,
            template_type: body.template_type,
            parameter_format: body.parameter_format,
            header_type: body.header_type,
            header_text: body.header_text,
            header_media_url: body.header_media_url,
            body_text: body.body_text,
            footer_text: body.footer_text,
            buttons: body.buttons,
            example_values: body.example_values,
            carousel_cards: body.carousel_cards,
            folder_id: body.folder_id,
        }
    }
}

response_type! {
    /// A change of category that WhatsApp has scheduled.
    #[schemars(rename = "CategoryChange")]
    struct CategoryChangeResponse from change: CategoryChange {
        /// The category that the template will have.
        to: Category,
        /// When WhatsApp will change it.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        at: OffsetDateTime,
    }
}

response_type! {
    /// A message template, the only kind of message that may open a conversation on WhatsApp.
    struct TemplateFields from template: Template {
        /// The template's id.
        id: TemplateId,
        /// The account that it belongs to.
        account_id: AccountId,
        /// The name: 1 to 512 lowercase letters, digits and underscores, unique in the account together with
        /// `language`.
        #[schemars(example = &"volta_as_aulas")]
        name: String,
        /// The purpose of the template. WhatsApp prices and limits messages by it.
        category: Category,
        /// The change of `category` that WhatsApp has scheduled. Null if none is scheduled.
        category_change: Option<CategoryChangeResponse> = template.category_change.map(CategoryChangeResponse::from),
        /// The language of its texts, for example `pt_BR` or `pt`.
        #[schemars(example = &"pt_BR")]
        language: String,
        /// The form of the template: one message, or a message with a row of cards.
        template_type: TemplateType,
        /// The syntax of the placeholders of header and body.
        parameter_format: ParameterFormat,
        /// The type of the header above the body.
        header_type: HeaderType,
        /// The header's text of at most 60 characters, with at most one placeholder. Null if the header is not a text.
        #[schemars(example = "Volta às aulas")]
        header_text: Option<String>,
        /// The URL of the header's image, video or document. Null if the header is not a file.
        #[schemars(
            example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
        )]
        header_media_url: Option<String>,
        /// The message of at most 1024 characters. `{{1}}`, `{{2}}`, ... (or `{{first_name}}` if `parameter_format` is
        /// `named`) are replaced by a contact's values. Null while the draft has no body.
        #[schemars(example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
        body_text: Option<String>,
        /// The text below the body, at most 60 characters, without placeholders. Null if there is none.
        #[schemars(example = "Responda SAIR para não receber mais")]
        footer_text: Option<String>,
        /// At most 10 buttons, in WhatsApp's format.
        #[schemars(example = json!([{ "type": "URL", "text": "Comprar", "url": "https://loja.example/{{1}}", "example": ["bolo"] }]))]
        #[schemars(with = "Vec<Value>")]
        buttons: Vec<Button>,
        /// One example per placeholder (`example_values` of the input): in the order of their numbers, or of the first
        /// appearance of their names. The header comes first.
        #[schemars(example = ["Ana", "VOLTA10"])]
        variables: Vec<String>,
        /// The 2 to 10 cards of a carousel, in WhatsApp's format. Empty for a standard template.
        #[schemars(example = json!([]))]
        #[schemars(with = "Vec<Value>")]
        carousel_cards: Vec<CarouselCard>,
        /// The folder of the template. Null if it is in no folder.
        folder_id: Option<FolderId>,
        /// The WhatsApp number to whose business account the template was submitted. Null before the first submission.
        profile_id: Option<ProfileId>,
        /// WhatsApp's id of the template. Null before the first submission.
        #[schemars(example = "1795233629837000")]
        meta_template_id: Option<String>,
        /// The status of WhatsApp's review.
        meta_status: MetaStatus,
        /// WhatsApp's reason for rejecting the template. Null if it is not rejected.
        #[schemars(example = Value::Null)]
        rejection_reason: Option<String>,
        /// WhatsApp's quality rating, based on how recipients react: `GREEN`, `YELLOW`, `RED` or `UNKNOWN`. Null before
        /// WhatsApp reports one.
        #[schemars(example = &"GREEN")]
        quality_score: Option<String>,
        /// When the template was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the template was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
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
        "meta_status": "draft", "quality_score": null, "folder_id": null,
    })
}
