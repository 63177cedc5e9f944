//! Routes of campaigns.

mod archive;
mod runs;
mod sends_page;

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::campaigns::{
    Budget, Campaign, CampaignInput, CampaignQuery, CampaignSend, CampaignSort, CampaignStats, CampaignStatus,
    Campaigns, FailureClass, Reach, SegmentConfig, SendContact, Variables,
};
use recado_domain::costs::CampaignCost;
use recado_domain::holds::HoldCause;
use recado_domain::messaging::{AddressKind, HeaderLocation, Pricing, SendStatus};
use recado_domain::settings::LatePolicy;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{
    AccountId, CampaignId, ContactId, FolderId, Page, SegmentId, SendId, TemplateId, UserId, timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use time::OffsetDateTime;

use self::sends_page::SendsPageResponse;
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{
    Body, OpenApiTag, Operation, ResponseDoc, created, data, no_content, numbered_page, order, path_id, whole_body,
};
use crate::web::parameters::{IdParam, LIMIT, SortParam};
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
pub(super) use archive::ARCHIVE;
pub(super) use runs::{CANCEL, EXECUTE, PAUSE, PREVIEW, RESUME, RETRY_FAILED, SCHEDULE, SEND, TEST, UNSCHEDULE};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Campaigns",
    description: "Send a template message to many contacts: create, schedule, run and monitor campaigns.",
};

const ID: &str = "The campaign's id.";

const REFERENCES: &str = "A referenced template, segment, tag or folder does not exist.";

const FOLDER: IdParam = IdParam::new("folder_id", "Only campaigns in this folder.");

const SORT: SortParam<CampaignSort> = SortParam {
    description: "Sort key; campaigns without a value come last.",
    accepted: "created_at, updated_at, name, scheduled_at or status",
    default: CampaignSort::CreatedAt,
};

/// The fields of a campaign. Its audience is the union of its segment, tags and RFM segments, or all contacts if none
/// is given. Contacts without a phone number and contacts that have opted out are excluded.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct CampaignBody {
    /// The campaign's name: 1 to 200 characters after HTML tags, control characters and extra white space are removed.
    #[schemars(length(min = 1, max = 200), example = &"Volta às aulas")]
    name: Option<String>,
    /// The id of the template to send.
    #[serde(default, deserialize_with = "nullable")]
    template_id: Option<Option<TemplateId>>,
    /// The id of the segment whose contacts receive the campaign.
    #[serde(default, deserialize_with = "nullable")]
    segment_id: Option<Option<SegmentId>>,
    /// Tags whose contacts receive the campaign, and filters that restrict the whole audience.
    #[serde(default, deserialize_with = "nullable")]
    segment_config: Option<Option<SegmentConfig>>,
    /// The names of the RFM segments whose contacts receive the campaign.
    #[schemars(length(max = 20), inner(length(min = 1, max = 50)), example = ["champions", "loyal"])]
    #[serde(default, deserialize_with = "nullable")]
    rfm_segments: Option<Option<Vec<String>>>,
    /// The time at which the campaign starts after it is scheduled. Storing a time does not schedule the campaign.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "deserialize_time")]
    scheduled_at: Option<Option<OffsetDateTime>>,
    /// The value of each template placeholder: a text or a contact field.
    #[serde(default, deserialize_with = "nullable")]
    variables: Option<Option<Variables>>,
    /// The location of the header, for a template whose header is a location.
    #[serde(default, deserialize_with = "nullable")]
    header_location: Option<Option<HeaderLocation>>,
    /// When the template's limited-time offer ends. A message that leaves later than 1 minute before it fails.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "deserialize_time")]
    offer_expires_at: Option<Option<OffsetDateTime>>,
    /// By which addresses the campaign reaches people: `phone`, or `any` to write to contacts without a phone number by
    /// WhatsApp's user id. Default: `phone`.
    #[schemars(with = "Option<Reach>")]
    #[serde(default)]
    reach: Option<String>,
    /// The most that the messages of the campaign may cost. It can be changed also while the campaign sends, if nothing
    /// else is in the body; not its currency then.
    #[serde(default, deserialize_with = "nullable")]
    budget: Option<Option<Budget>>,
    /// True: contacts for which any campaign of the account was started before are left out. False by default.
    newcomers_only: Option<bool>,
    /// The id of the campaign's folder.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for CampaignBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "reach", "newcomers_only"];
}

fn deserialize_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<OffsetDateTime>>, D::Error> {
    timestamp::option::deserialize(deserializer).map(Some)
}

impl From<CampaignBody> for CampaignInput {
    fn from(body: CampaignBody) -> Self {
        Self {
            name: body.name,
            template_id: body.template_id,
            segment_id: body.segment_id,
            segment_config: body.segment_config,
            rfm_segments: body.rfm_segments,
            scheduled_at: body.scheduled_at,
            variables: body.variables,
            header_location: body.header_location,
            offer_expires_at: body.offer_expires_at,
            reach: body.reach,
            budget: body.budget,
            newcomers_only: body.newcomers_only,
            folder_id: body.folder_id,
        }
    }
}

response_type! {
    /// A campaign: one template message to many contacts.
    #[schemars(rename = "Campaign")]
    struct CampaignResponse from campaign: Campaign {
        /// The campaign's id.
        id: CampaignId,
        /// The account that owns the campaign.
        account_id: AccountId,
        /// The campaign's name: 1 to 200 characters, without HTML tags and control characters.
        #[schemars(example = &"Volta às aulas")]
        name: String,
        /// The template that the campaign sends; null while no template is chosen.
        template_id: Option<TemplateId>,
        /// The segment whose contacts receive the campaign; null for no segment.
        segment_id: Option<SegmentId>,
        /// Tags whose contacts receive the campaign, and filters that narrow the whole audience; null for neither.
        segment_config: Option<SegmentConfig>,
        /// The RFM segments whose contacts receive the campaign, by their published names; empty for none.
        #[schemars(example = ["champions"])]
        rfm_segments: Vec<String>,
        /// When a scheduled campaign starts automatically; null for no time.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        scheduled_at: Option<OffsetDateTime>,
        /// The mapping of the template's placeholders to values; null for the default values.
        variables: Option<Variables>,
        /// The location of the header; null for none.
        header_location: Option<HeaderLocation>,
        /// When the template's limited-time offer ends; null for no end.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        offer_expires_at: Option<OffsetDateTime>,
        /// By which addresses the campaign reaches people.
        reach: Reach,
        /// The most that the messages of the campaign may cost; null without a limit.
        budget: Option<Budget>,
        /// What the messages of the campaign cost so far.
        cost: CampaignCost,
        /// Whether contacts for which a campaign was started before are left out.
        newcomers_only: bool,
        /// The folder that contains the campaign; null for none.
        folder_id: Option<FolderId>,
        /// The campaign's status.
        status: CampaignStatus,
        /// The number of contacts in the campaign's run; 0 before the run.
        #[schemars(example = 1840)]
        total_recipients: i64,
        /// Whether the run was simulated: no WhatsApp number was connected, so no message was sent.
        simulated: bool,
        /// When the run started; null before that.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        executed_at: Option<OffsetDateTime>,
        /// When the run ended; null before that.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        completed_at: Option<OffsetDateTime>,
        /// When the run was paused, while the status stays `sending`; null when it is not paused.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        paused_at: Option<OffsetDateTime>,
        /// Why the run is paused; null when it is not.
        #[schemars(example = &"paused by a member of the account")]
        pause_reason: Option<String>,
        /// What happens if the scheduled start is late; null for the account's `late_policy`.
        late_policy: Option<LatePolicy>,
        /// When the scheduled start was skipped because it was too late; null after the next schedule or start.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        skipped_at: Option<OffsetDateTime>,
        /// When the campaign's failed sends will be retried; null when no retry is scheduled.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        retry_scheduled_at: Option<OffsetDateTime>,
        /// When the first held message of a waiting run is looked at again; null when the run does not wait. All its
        /// remaining messages are held by the account's settings, and it goes on by itself.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        waiting_until: Option<OffsetDateTime>,
        /// The number of held messages of a waiting run; 0 when the run does not wait.
        #[schemars(example = 0)]
        held: i64,
        /// From when on the campaign's sends are in its archive (`GET /api/campaigns/{id}/archive`) and change no more;
        /// null before.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        archived_at: Option<OffsetDateTime>,
        /// The user who created the campaign; null when that user no longer exists.
        created_by: Option<UserId>,
        /// When the campaign was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the campaign was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

response_type! {
    /// The contact that a message went to.
    #[schemars(rename = "SendContact")]
    struct SendContactResponse from contact: SendContact {
        /// The contact's name.
        #[schemars(example = &"Ana Lima")]
        name: String,
        /// The contact's phone number in E.164 form; null when the contact no longer has one.
        #[schemars(example = &"+5511961234567")]
        phone: Option<String>,
        /// WhatsApp's user id of the contact that was seen last; null if none is known.
        #[schemars(example = &"BR.1234567890")]
        wa_user_id: Option<String>,
        /// The contact's e-mail address; null when it is not known.
        #[schemars(example = &"ana@example.com")]
        email: Option<String>,
    }
}

response_type! {
    /// One message of a campaign to one contact.
    #[schemars(rename = "CampaignSend")]
    struct CampaignSendResponse from send: CampaignSend {
        /// The id of the send.
        id: SendId,
        /// The id of the contact that receives the message.
        contact_id: ContactId,
        /// The status of the message.
        status: SendStatus,
        /// When WhatsApp accepted the message; null when it has not.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        sent_at: Option<OffsetDateTime>,
        /// WhatsApp's error code; null when the send did not fail with a code.
        #[schemars(example = 131026)]
        error_code: Option<i64>,
        /// Why the send failed; null when it did not.
        #[schemars(example = &"Message undeliverable")]
        error_message: Option<String>,
        /// Whether a retry of a failed send can succeed: `again` at any time, `later` from `retry_after` on, `never`
        /// not at all. Null for a send that did not fail.
        failure_class: Option<FailureClass>,
        /// When a failed send of class `later` may be retried; null for every other send.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        retry_after: Option<OffsetDateTime>,
        /// The setting of the account that holds the message; null when it is not held.
        hold_reason: Option<HoldCause>,
        /// When a held message is looked at again; null when it is not held.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        retry_at: Option<OffsetDateTime>,
        /// WhatsApp's id of the message; null before it was accepted.
        #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABEYEjVBQ0Q3")]
        wa_message_id: Option<String>,
        /// The price of the message as WhatsApp reports it; null until a status update contains it.
        pricing: Option<Pricing>,
        /// The contact that receives the message.
        /// The kind of address that the message left to: `phone` or `user_id`; null before it left.
        address: Option<AddressKind>,
        contacts: SendContactResponse,
    }
}

/// `GET /api/campaigns`
async fn list(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = CampaignQuery {
        page: params.page(),
        sort: params.sort(&SORT),
        descending: params.descending(),
        folder_id: params.id(&FOLDER),
    };
    params.check()?;
    let page = campaigns.list(&tenant, &query).await?;
    Ok(responses::page(&page.map(CampaignResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List campaigns", "Returns campaigns with numbered pages.")
        .takes_all(numbered_page(&LIMIT))
        .takes(&SORT)
        .takes(order())
        .takes(&FOLDER)
        .responds(
            whole_body::<Page<CampaignResponse>>("A page of campaigns.").example(json!({
                "data": [draft()], "total": 1, "page": 1, "totalPages": 1,
            })),
        )
});

/// `POST /api/campaigns`
async fn create(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.create(&tenant, input.into()).await?;
    Ok(responses::created(CampaignResponse::from(campaign)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new("Create a campaign", "Creates a draft. Nothing is sent or scheduled.")
        .body(Body::json_with::<CampaignBody>(&["name"]))
        .responds(created::<CampaignResponse>("The draft.").example(draft()))
        .refuses(ErrorCode::Invalid, REFERENCES)
});

/// `GET /api/campaigns/<id>`
async fn get(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(CampaignResponse::from(campaigns.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get a campaign", "Returns one campaign.")
        .takes(path_id(ID))
        .responds(campaign("The campaign.").example(draft()))
});

/// `PUT /api/campaigns/<id>`
async fn update(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    JsonChange(input): JsonChange<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates a draft or scheduled campaign: absent fields do not change; null clears a field. \
                `budget` alone can be changed also while the campaign sends or is paused.";
    Operation::new("Update a campaign", description)
        .takes(path_id(ID))
        .body(Body::change::<CampaignBody>().example(json!({ "name": "Volta às aulas 2026", "folder_id": null })))
        .responds(campaign("The updated campaign.").example(draft()))
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`, and more than `budget` changes or it does not send; or it \
             sends, and the market of a remaining recipient has no rate in the currency of the budget (`no_rate`, with \
             `details.markets`).",
        )
        .refuses(
            ErrorCode::Invalid,
            "The campaign is scheduled, and its new time is missing or in the past.",
        )
});

/// `DELETE /api/campaigns/<id>`
async fn delete(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    campaigns.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    Operation::new(
        "Delete a campaign",
        "Deletes a campaign. A campaign with status `sending` cannot be deleted.",
    )
    .takes(path_id(ID))
    .responds(no_content("The campaign is deleted."))
    .refuses(ErrorCode::Precondition, "The campaign has status `sending`.")
});

/// `GET /api/campaigns/<id>/stats`
async fn stats(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(campaigns.stats(&tenant, id).await?))
}

pub(super) const STATS: Endpoint = endpoint!(stats, {
    let description = "Counts the sends of a campaign by status. Each send is counted once, under its current status. \
                Held messages are `pending`.";
    Operation::new("Count a campaign's sends", description)
        .takes(path_id(ID))
        .responds(data::<CampaignStats>("The counts."))
});

/// `GET /api/campaigns/<id>/sends`
async fn sends(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    let page = campaigns.sends(&tenant, id, page).await?;
    Ok(HttpResponse::Ok().json(SendsPageResponse::<CampaignSendResponse>::of(page)))
}

pub(super) const SENDS: Endpoint = endpoint!(sends, {
    let description = "Returns the sends of a campaign, latest sent first and unsent last. Sends whose contact was \
                deleted are omitted. The page of an archived campaign is empty, with `archived`.";
    Operation::new("List a campaign's sends", description)
        .takes(path_id(ID))
        .takes_all(numbered_page(&LIMIT))
        .responds(
            whole_body::<SendsPageResponse<CampaignSendResponse>>("A page of sends.").example(json!({
                "data": [delivered()], "total": 1840, "page": 1, "totalPages": 92,
            })),
        )
});

fn campaign(description: &'static str) -> ResponseDoc {
    data::<CampaignResponse>(description)
}

/// Example fields of a campaign that has not run yet.
fn with_status(status: &str) -> Value {
    json!({
        "status": status, "total_recipients": 0, "simulated": false,
        "executed_at": null, "completed_at": null, "paused_at": null, "pause_reason": null,
        "late_policy": null, "skipped_at": null, "retry_scheduled_at": null, "waiting_until": null, "held": 0,
    })
}

fn draft() -> Value {
    with_status("draft")
}

/// Example of a delivered send.
fn delivered() -> Value {
    json!({
        "status": "delivered", "error_code": null, "error_message": null, "failure_class": null, "retry_after": null,
    })
}
