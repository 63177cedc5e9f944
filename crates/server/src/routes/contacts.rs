//! Routes of contacts and of the import.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::web::{Data, Payload};
use garde::Validate;
use recado_domain::contacts::{ContactFilter, ContactInput, ContactQuery, ImportFormat};
use recado_domain::shared::{ContactId, TagId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::web::body::{self, Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::paced::PacedBody;
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

/// The media types that an import accepts. JSON Lines has no registered media type, so its common names are accepted.
const FILES: &[(&str, ImportFormat)] = &[
    ("text/csv", ImportFormat::Csv),
    ("application/x-ndjson", ImportFormat::JsonLines),
    ("application/ndjson", ImportFormat::JsonLines),
    ("application/jsonl", ImportFormat::JsonLines),
];

/// The fields of a contact.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct ContactBody {
    /// The contact's name: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = &"Ana Lima")]
    name: Option<String>,
    /// The phone number in E.164 or Brazilian national format, stored as E.164. A contact needs it or `wa_user_id`.
    #[schemars(example = &"+5511961234567")]
    #[serde(default, deserialize_with = "nullable")]
    phone: Option<Option<String>>,
    /// The e-mail address.
    #[schemars(example = &"ana@example.com")]
    #[serde(default, deserialize_with = "nullable")]
    email: Option<Option<String>>,
    /// WhatsApp's identifier of a contact whose phone number WhatsApp hides.
    #[schemars(example = &"BR.1234567890")]
    #[serde(default, deserialize_with = "nullable")]
    wa_user_id: Option<Option<String>>,
    /// True records an opt-out, false an opt-in, both with the current time. A consent change that WhatsApp reports
    /// for an earlier time does not replace it.
    opted_out: Option<bool>,
    /// The contact's attributes: names of your choice with strings, numbers or booleans.
    #[schemars(example = serde_json::json!({ "city": "Campinas", "coupon": "VOLTA10" }))]
    attributes: Option<Map<String, Value>>,
    /// The ids of the contact's tags.
    tag_ids: Option<Vec<TagId>>,
}

impl PatchFields for ContactBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "opted_out", "attributes", "tag_ids"];
}

/// The tags of a contact.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct TagsBody {
    /// The ids of all tags of the contact.
    #[garde(required)]
    tag_ids: Option<Vec<TagId>>,
}

impl From<ContactBody> for ContactInput {
    fn from(body: ContactBody) -> Self {
        Self {
            name: body.name,
            phone: body.phone,
            email: body.email,
            wa_user_id: body.wa_user_id,
            attributes: body.attributes,
            tag_ids: body.tag_ids,
            opted_out: body.opted_out,
        }
    }
}

/// `GET /api/contacts`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = ContactFilter {
        search: params.text("search"),
        tag_id: params.id("tag_id"),
        segment_id: params.id("segment_id"),
    };
    let query = ContactQuery {
        filter,
        page: params.cursor_query(),
    };
    params.check()?;
    Ok(responses::ok(services.contacts.list(&tenant, &query).await?))
}

/// `POST /api/contacts`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<ContactBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::created(
        services.contacts.create(&tenant, input.into()).await?,
    ))
}

/// `GET /api/contacts/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.contacts.details(&tenant, id).await?))
}

/// `PUT /api/contacts/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
    JsonChange(input): JsonChange<ContactBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.contacts.update(&tenant, id, input.into()).await?,
    ))
}

/// `DELETE /api/contacts/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
) -> Result<HttpResponse, ApiError> {
    services.contacts.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `PUT /api/contacts/<id>/tags`
pub(super) async fn set_tags(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
    Json(input): Json<TagsBody>,
) -> Result<HttpResponse, ApiError> {
    let tags = input.tag_ids.unwrap_or_default();
    Ok(responses::ok(services.contacts.set_tags(&tenant, id, tags).await?))
}

/// `POST /api/contacts/import`: the file is processed as a stream and never buffered completely.
pub(super) async fn import(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let format = body::media_type(&request, FILES, "text/csv or application/x-ndjson")?;
    let _share = services.shared.shares.import(&tenant)?;
    let mut body = PacedBody::new(&request, payload.into_inner());
    let mut import = services.contacts.import(&tenant, format);
    while let Some(chunk) = body.next().await? {
        import.feed(&chunk).await?;
    }
    Ok(responses::ok(import.finish().await?))
}
