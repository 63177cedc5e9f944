//! Routes of contacts and of the import.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::contacts::{
    Contact, ContactDetails, ContactFilter, ContactInput, ContactQuery, Contacts, ImportFormat, ImportReport, Referral,
    ScopedUserId,
};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ContactId, CursorPage, TagId, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::tags::TagResponse;
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{self, Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, no_content, path_id};
use crate::web::paced::PacedBody;
use crate::web::parameters::{IdParam, TextParam};
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::web::shares::Shares;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Contacts",
    description: "Manage and import the people that an account writes to.",
};

const ID: &str = "The contact's id.";

const REFERENCES: &str = "A tag of `tag_ids` does not exist.";

const TAKEN: &str = "Another contact has the phone number (with or without the ninth digit) or the `wa_user_id`; the \
                     name is missing; or both phone and `wa_user_id` would be empty.";

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
struct ContactBody {
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
    /// The contact's time zone, by its IANA name. Null: that of the phone number, else the account's.
    #[schemars(example = &"America/Manaus")]
    #[serde(default, deserialize_with = "nullable")]
    time_zone: Option<Option<String>>,
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
struct TagsBody {
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
            time_zone: body.time_zone,
            attributes: body.attributes,
            tag_ids: body.tag_ids,
            opted_out: body.opted_out,
        }
    }
}

const SEARCH: TextParam = TextParam::new(
    "search",
    "Only contacts whose name, phone or e-mail address contains this text (case-insensitive). A phone number is found in \
     any notation; a whole number finds the contact that has it, and no other. A page ends early, and may be empty, if a \
     large account has few such contacts; `hasMore` and `nextCursor` say whether more contacts remain to be searched.",
    "ana",
);

const TAG_ID: IdParam = IdParam::new("tag_id", "Only contacts with this tag.");

const SEGMENT_ID: IdParam = IdParam::new(
    "segment_id",
    "Only contacts of this segment: its members and every contact that matches its filters.",
);

response_type! {
    /// A person to whom an account writes.
    #[schemars(rename = "Contact")]
    pub(super) struct ContactResponse from contact: Contact {
        /// The contact's id.
        id: ContactId,
        /// The contact's name: 1 to 200 characters.
        #[schemars(example = &"Ana Lima")]
        name: String,
        /// The phone number in E.164 form, unique in the account; null for a contact with only a `wa_user_id`.
        #[schemars(example = &"+5511961234567")]
        phone: Option<String>,
        /// The e-mail address; null if it is unknown.
        #[schemars(example = &"ana@example.com")]
        email: Option<String>,
        /// WhatsApp's id of a contact whose phone number it hides; null if it is unknown.
        #[schemars(example = &"BR.1234567890")]
        wa_user_id: Option<String>,
        /// The contact's time zone, by its IANA name; null if it follows from the phone number or is the account's.
        #[schemars(example = &"America/Manaus")]
        time_zone: Option<String> = contact.time_zone.map(|zone| zone.to_string()),
        /// The account's own fields of the contact: names of your choice with strings, numbers and booleans.
        #[schemars(example = json!({ "city": "Campinas", "coupon": "VOLTA10" }))]
        attributes: Map<String, Value>,
        /// The contact's tags, sorted by name.
        tags: Vec<TagResponse> = contact.tags.into_iter().map(TagResponse::from).collect(),
        /// When the contact opted out of messages; null while the contact accepts messages.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        opted_out_at: Option<OffsetDateTime>,
        /// When the contact was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the contact was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

response_type! {
    /// A contact with the fields that only the response for one contact has.
    #[schemars(rename = "ContactDetails")]
    struct ContactDetailsResponse from details: ContactDetails {
        /// WhatsApp's user ids of the contact, latest first.
        identities: Vec<IdentityResponse> = details.all_user_ids().into_iter().map(IdentityResponse::from).collect(),
        /// Another contact that WhatsApp says is the same person; null if there is none.
        same_person_as: Option<ContactId>,
        #[serde(flatten)]
        contact: ContactResponse,
        /// The ad or post that led to the contact's first message from an ad or post; null if there was none.
        first_referral: Option<ReferralResponse> = details.first_referral.map(ReferralResponse::from),
    }
}

response_type! {
    /// WhatsApp's user id of a contact for one business portfolio.
    #[schemars(rename = "ContactIdentity")]
    struct IdentityResponse from reported: ScopedUserId {
        /// The portfolio, or the WhatsApp account, whose numbers may use the id; `unknown` if no number reported it.
        #[schemars(example = &"506914307656634")]
        scope: String,
        /// WhatsApp's user id.
        #[schemars(example = &"BR.1234567890")]
        wa_user_id: String = reported.user_id,
        /// WhatsApp's user id for all portfolios of a parent business; null if there is none.
        #[schemars(example = &"BR.ENT.1234567890")]
        parent_user_id: Option<String>,
        /// The username that the contact chose; null if it has none.
        #[schemars(example = &"analima")]
        username: Option<String>,
        /// When a number first reported the id.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        first_seen_at: OffsetDateTime,
        /// When a number last reported the id.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        last_seen_at: OffsetDateTime,
    }
}

response_type! {
    /// The ad or post that led a contact to send a message.
    #[schemars(rename = "Referral")]
    pub(super) struct ReferralResponse from referral: Referral {
        /// The kind of source, for example `ad` or `post`; null if WhatsApp does not report it.
        #[schemars(example = &"ad")]
        source_type: Option<String>,
        /// Meta's id of the ad or post; null if WhatsApp does not report it.
        #[schemars(example = &"120210000000000001")]
        source_id: Option<String>,
        /// The URL of the ad or post; null if WhatsApp does not report it.
        #[schemars(example = "https://fb.me/3cr4Wqqkv")]
        source_url: Option<String>,
        /// The headline of the ad; null if it has none.
        #[schemars(example = "Bolo de cenoura com 20% de desconto")]
        headline: Option<String>,
        /// The text of the ad; null if it has none.
        #[schemars(example = "Peça pelo WhatsApp")]
        body: Option<String>,
        /// The media type of the ad, `image` or `video`; null if it has none.
        #[schemars(example = &"image")]
        media_type: Option<String>,
        /// The URL of the ad's image; null if it has none.
        #[schemars(example = "https://scontent.example/bolo.jpg")]
        image_url: Option<String>,
        /// The URL of the ad's video; null if it has none.
        #[schemars(example = Value::Null)]
        video_url: Option<String>,
        /// The URL of the video's thumbnail; null if it has none.
        #[schemars(example = Value::Null)]
        thumbnail_url: Option<String>,
        /// Meta's click id, which its Conversions API accepts; null if WhatsApp does not report it.
        #[schemars(example = &"ARAkLkA8rmlFeiCktEJQ")]
        ctwa_clid: Option<String>,
    }
}

/// `GET /api/contacts`
async fn list(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = ContactFilter {
        search: params.text(&SEARCH),
        tag_id: params.id(&TAG_ID),
        segment_id: params.id(&SEGMENT_ID),
    };
    let query = ContactQuery {
        filter,
        page: params.cursor_query(),
    };
    params.check()?;
    Ok(responses::ok(
        contacts.list(&tenant, &query).await?.map(ContactResponse::from),
    ))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List contacts", "Returns contacts with their tags, newest first.")
        .takes(&SEARCH)
        .takes(&TAG_ID)
        .takes(&SEGMENT_ID)
        .takes_all(cursor_page())
        .responds(data::<CursorPage<ContactResponse>>(
            "A page of contacts and its `nextCursor`.",
        ))
});

/// `POST /api/contacts`
async fn create(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<ContactBody>,
) -> Result<HttpResponse, ApiError> {
    let contact = contacts.create(&tenant, input.into()).await?;
    Ok(responses::created(ContactResponse::from(contact)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Creates a contact. A Brazilian national phone number is converted to E.164.";
    Operation::new("Create a contact", description)
        .body(Body::json_with::<ContactBody>(&["name"]))
        .responds(created::<ContactResponse>("The new contact."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
});

/// `GET /api/contacts/<id>`
async fn get(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
) -> Result<HttpResponse, ApiError> {
    let details = contacts.details(&tenant, id).await?;
    Ok(responses::ok(ContactDetailsResponse::from(details)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    let description = "Returns one contact with its tags, and the ad or post that led to its first message.";
    Operation::new("Get a contact", description)
        .takes(path_id(ID))
        .responds(data::<ContactDetailsResponse>("The contact."))
});

/// `PUT /api/contacts/<id>`
async fn update(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
    JsonChange(input): JsonChange<ContactBody>,
) -> Result<HttpResponse, ApiError> {
    let details = contacts.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(ContactDetailsResponse::from(details)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates a contact: absent fields do not change; null clears a field. `tag_ids` and `attributes` \
                replace all tags and all attributes.";
    Operation::new("Update a contact", description)
        .takes(path_id(ID))
        .body(Body::change::<ContactBody>().example(json!({ "name": "Ana Lima", "email": null, "opted_out": true })))
        .responds(data::<ContactDetailsResponse>("The updated contact."))
        .refuses(ErrorCode::Invalid, TAKEN)
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the contact. Try again.",
        )
});

/// `DELETE /api/contacts/<id>`
async fn delete(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
) -> Result<HttpResponse, ApiError> {
    contacts.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description = "Deletes a contact. Messages sent to it remain in the statistics.";
    Operation::new("Delete a contact", description)
        .takes(path_id(ID))
        .responds(no_content("The contact is deleted."))
});

/// `PUT /api/contacts/<id>/tags`
async fn set_tags(
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
    Json(input): Json<TagsBody>,
) -> Result<HttpResponse, ApiError> {
    let tags = input.tag_ids.unwrap_or_default();
    let contact = contacts.set_tags(&tenant, id, tags).await?;
    Ok(responses::ok(ContactResponse::from(contact)))
}

pub(super) const SET_TAGS: Endpoint = endpoint!(set_tags, {
    Operation::new(
        "Replace a contact's tags",
        "Replaces all tags of a contact. An empty list removes all tags.",
    )
    .takes(path_id(ID))
    .body(Body::json::<TagsBody>())
    .responds(data::<ContactResponse>("The contact with its new tags."))
    .refuses(ErrorCode::Invalid, REFERENCES)
    .refuses(
        ErrorCode::Conflict,
        "Other requests are changing the contact. Try again.",
    )
});

/// `POST /api/contacts/import`: the file is processed as a stream and never buffered completely.
async fn import(
    shares: Data<Shares>,
    contacts: Data<Contacts>,
    Authenticated(tenant): TenantContext,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let format = body::media_type(&request, FILES, "text/csv or application/x-ndjson")?;
    let _share = shares.import(&tenant)?;
    let mut body = PacedBody::new(&request, payload.into_inner());
    let mut import = contacts.import(&tenant, format);
    while let Some(chunk) = body.next().await? {
        import.feed(&chunk).await?;
    }
    Ok(responses::ok(import.finish().await?))
}

pub(super) const IMPORT: Endpoint = endpoint!(import, {
    let description = "Imports a file of up to 1,000,000 contacts while it is received. Each row creates a contact or \
                updates the contact with the same phone number, else the one with the same `wa_user_id`; a phone \
                number or `wa_user_id` that a contact has is never replaced. An invalid row is skipped and reported \
                with its line number; so is a row with neither phone nor `wa_user_id`, with the `wa_user_id` of \
                another contact, or that would give its contact more than 100 attributes or 16,384 bytes of attributes. Rows are written in batches of 1,000; batches written before an error remain.";
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
                    "CSV with a header line: `name` and `phone`, `wa_user_id` or both, optionally `email`, \
                     `time_zone` (an IANA name) and `tags` (separated by `;`), in any order; every other column is an attribute. Or one JSON object per line with the fields of a \
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
            "The header line lacks `name`, or both `phone` and `wa_user_id`, or the file has too many rows.",
        )
});
