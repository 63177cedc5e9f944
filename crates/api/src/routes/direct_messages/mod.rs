//! Routes of direct messages, in URLs `messages`.

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use actix_web::web::Data;
use recado_domain::direct_messages::{Created, DirectMessageQuery, DirectMessages, DirectStatus, MessageInput, Phase};
use recado_domain::shared::{CursorPage, FieldErrors, MessageId};
use serde_json::json;

use self::body::{BatchBody, BatchResponse, EarlierMessageResponse, MessageBody, MessageResponse};
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{self as json_body, Json};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, path_id};
use crate::web::parameters::{CursorParam, EnumParam, IdParam, LIMIT, TextParam, TimeParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::WorkerSignals;

pub(super) mod body;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Messages",
    description: "Single messages: one call sends one message to one person, once.",
};

const ID: &str = "The message's id.";

const CURSOR: CursorParam = CursorParam::first_page(Some(""));

const STATUS: EnumParam<DirectStatus> = EnumParam {
    name: "status",
    description: "Only messages in this status.",
    accepted: "pending, sent, delivered, read, failed or cancelled",
    example: Some(DirectStatus::Sent),
};

const PHASE: EnumParam<Phase> = EnumParam {
    name: "phase",
    description: "Only pending messages in this phase.",
    accepted: "scheduled, waiting, held, leaving or unknown",
    example: Some(Phase::Held),
};

const CONTACT: IdParam = IdParam::new("contact_id", "Only messages to this contact.");
const PROFILE: IdParam = IdParam::new("profile_id", "Only messages from this WhatsApp number.");
const TEMPLATE: IdParam = IdParam::new("template_id", "Only messages with this template.");
const REFERENCE: TextParam = TextParam::new(
    "client_reference",
    "Only the message with this reference.",
    "order-1042-shipped",
);
const SINCE: TimeParam = TimeParam::new(
    "since",
    "Only messages made at this time or later.",
    "2026-01-01T00:00:00Z",
);
const UNTIL: TimeParam = TimeParam::new("until", "Only messages made before this time.", "2027-01-01T00:00:00Z");

/// `POST /api/messages`
async fn create(
    messages: Data<DirectMessages>,
    signals: Data<WorkerSignals>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<MessageBody>,
) -> Result<HttpResponse, ApiError> {
    let created = messages.create(&tenant, input.into()).await?;
    signals.wake_messengers();
    Ok(created_response(created))
}

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// 201 with the path of a new message, or 200 with an earlier one.
fn created_response(created: Created) -> HttpResponse {
    let (mut response, name, value) = match created {
        Created::New(message) => {
            let path = format!("/api/messages/{}", message.id);
            (responses::created(MessageResponse::from(message)), LOCATION, path)
        }
        Created::Repeated(message) => {
            let message = EarlierMessageResponse::Stored(Box::new(message.into()));
            (responses::ok(message), REPLAYED, "true".to_owned())
        }
        Created::Removed(message) => {
            let message = EarlierMessageResponse::Removed(message.into());
            (responses::ok(message), REPLAYED, "true".to_owned())
        }
    };
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(name, value);
    }
    response
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Sends one message to one person, at most once: a template at any time, or a text within 24 \
                hours after the contact's last message. The response returns as soon as the message is stored; \
                webhook events or `GET /api/messages/{id}` report its status. With `client_reference`, the same \
                request again returns the first message (200), also after its failure. A template message uses one \
                message of the quota of the month of `send_at`.";
    Operation::new("Send a message", description)
        .body(Body::json::<MessageBody>().example(json!({
            "to": { "phone": "+5511961234567", "name": "Ana Souza" },
            "template": { "name": "order_update", "language": "pt_BR", "variables": { "1": "Ana", "2": "1042" } },
            "client_reference": "order-1042-shipped",
        })))
        .responds(
            created::<MessageResponse>("The message.")
                .header("Location", "The path of the message.", json!({ "type": "string" }))
                .example(json!({ "kind": "template", "status": "pending", "phase": "waiting" })),
        )
        .responds(data::<EarlierMessageResponse>(
            "The message of an earlier equal request with this `client_reference`, as it is now. Of a message that was \
             removed only `id`, `status` and `client_reference` are left.",
        ))
        .refuses(
            ErrorCode::Precondition,
            "`details.reason` is `number_unverified`, `template_not_approved`, `template_not_sendable` (with \
             `details.reasons`), `placeholder_empty` (with `details.placeholders`), `opted_out`, `no_address`, \
             `outside_window`, `plan_inactive` or `month_limit`.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Another request has this `client_reference`; `details.id` is its message.",
        )
});

/// `POST /api/messages/batch`
async fn create_batch(
    messages: Data<DirectMessages>,
    signals: Data<WorkerSignals>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<BatchBody>,
) -> Result<HttpResponse, ApiError> {
    let items = input.messages.unwrap_or_default();
    let items = items.iter().map(|item| {
        let message: Result<MessageBody, FieldErrors> = json_body::item(item);
        message.map(MessageInput::from)
    });
    let batch = messages.create_batch(&tenant, items.collect()).await?;
    signals.wake_messengers();
    Ok(responses::ok(BatchResponse::from(batch)))
}

pub(super) const CREATE_BATCH: Endpoint = endpoint!(create_batch, {
    let description = "Sends up to 1000 messages. Each item is a message of `POST /api/messages`; a bad item refuses \
                itself alone. All accepted items are stored together, before the response.";
    Operation::new("Send messages", description)
        .body(Body::json::<BatchBody>())
        .responds(data::<BatchResponse>("The outcome of each item, in order."))
});

/// `GET /api/messages`
async fn list(
    messages: Data<DirectMessages>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = DirectMessageQuery {
        status: params.one_of(&STATUS),
        phase: params.one_of(&PHASE),
        contact_id: params.id(&CONTACT),
        profile_id: params.id(&PROFILE),
        template_id: params.id(&TEMPLATE),
        client_reference: params.text(&REFERENCE),
        since: params.time(&SINCE),
        until: params.time(&UNTIL),
        page: params.cursor_query(),
    };
    params.check()?;
    let page = messages.list(&tenant, &query).await?;
    Ok(responses::ok(page.map(MessageResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List messages",
        "Returns single messages, newest first. Messages of campaigns and replies are not among them.",
    )
    .takes(&STATUS)
    .takes(&PHASE)
    .takes(&CONTACT)
    .takes(&PROFILE)
    .takes(&TEMPLATE)
    .takes(&REFERENCE)
    .takes(&SINCE)
    .takes(&UNTIL)
    .takes(&CURSOR)
    .takes(&LIMIT)
    .responds(data::<CursorPage<MessageResponse>>(
        "A page of messages and its `nextCursor`.",
    ))
});

/// `GET /api/messages/<id>`
async fn get(
    messages: Data<DirectMessages>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<MessageId>,
) -> Result<HttpResponse, ApiError> {
    let message = messages.get(&tenant, id).await?;
    Ok(responses::ok(MessageResponse::from(message)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get a message", "Returns a single message.")
        .takes(path_id(ID))
        .responds(data::<MessageResponse>("The message."))
});

/// `POST /api/messages/<id>/cancel`
async fn cancel(
    messages: Data<DirectMessages>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<MessageId>,
) -> Result<HttpResponse, ApiError> {
    let message = messages.cancel(&tenant, id).await?;
    Ok(responses::ok(MessageResponse::from(message)))
}

pub(super) const CANCEL: Endpoint = endpoint!(cancel, {
    let description = "Cancels a message before it leaves, and returns its quota. Cancelling it again changes nothing.";
    Operation::new("Cancel a message", description)
        .takes(path_id(ID))
        .responds(data::<MessageResponse>("The cancelled message.").example(json!({ "status": "cancelled" })))
        .refuses(
            ErrorCode::Precondition,
            "`details.reason` is `already_left`: the message was sent, or has ended otherwise.",
        )
});
