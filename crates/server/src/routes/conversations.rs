//! Routes of conversations: lists, replies and status.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::conversations::{ConversationQuery, ConversationStatus};
use recado_domain::shared::{ConversationId, FieldErrors, TimeCursor};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::parameters::EnumParam;
use crate::web::query::{CursorParams, Params};
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const STATUS: EnumParam<ConversationStatus> = EnumParam {
    name: "status",
    description: "Only conversations in this status.",
    accepted: "open or closed",
    example: Some(ConversationStatus::Open),
};

/// A reply to a contact.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct ReplyBody {
    /// The text of the reply: 1 to 4096 characters.
    #[schemars(
        required,
        length(min = 1, max = 4096),
        example = "Temos, sim! Quer que eu separe um?"
    )]
    #[garde(required)]
    text: Option<String>,
}

/// The new status of a conversation.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct ConversationBody {
    /// The new status.
    #[schemars(required, with = "ConversationStatus")]
    #[garde(required)]
    status: Option<String>,
}

/// `GET /api/conversations`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = ConversationQuery {
        status: params.one_of(&STATUS),
        page: params.cursor_query(),
    };
    params.check()?;
    Ok(responses::ok(services.conversations.list(&tenant, &query).await?))
}

/// `GET /api/conversations/<id>/messages`
pub(super) async fn messages(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    CursorParams(query): CursorParams<TimeCursor>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.conversations.messages(&tenant, id, &query).await?,
    ))
}

/// `POST /api/conversations/<id>/messages`
pub(super) async fn reply(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    Json(input): Json<ReplyBody>,
) -> Result<HttpResponse, ApiError> {
    let text = input.text.unwrap_or_default();
    Ok(responses::created(
        services.conversations.reply(&tenant, id, text).await?,
    ))
}

/// `PUT /api/conversations/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    Json(input): Json<ConversationBody>,
) -> Result<HttpResponse, ApiError> {
    let status: Result<ConversationStatus, String> = input.status.unwrap_or_default().parse();
    let status = status.map_err(|error| FieldErrors::one("status", error))?;
    Ok(responses::ok(
        services.conversations.set_status(&tenant, id, status).await?,
    ))
}
