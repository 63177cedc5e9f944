//! Routes of plans, the subscription and payments, and the payment gateway's callback.

mod bodies;
mod response_bodies;

use std::sync::LazyLock;

use actix_web::http::header::ContentType;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bodies::{PlanChangeBody, SubscribeBody};
use recado_domain::billing::{self, Billing};
use recado_domain::shared::FieldErrors;
use response_bodies::{
    CancelledResponse, HistoryResponse, PaymentResponse, PlanChangeResponse, PlanResponse, Receipt, SubscribedResponse,
    SubscriptionOverviewResponse,
};
use serde_json::{Value, json};

use crate::error::{ApiError, ErrorCode};
use crate::payment_event_buffer::PaymentEventReceiver;
use crate::web::body::JsonChange;
use crate::web::callback::CallbackMemory;
use crate::web::callback_secrets::PaymentCallbackToken;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, Parameter, created, data, numbered_page, text, whole_body};
use crate::web::parameters::{LIMIT, TextParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::web::secret::SecretJson;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Billing",
    description: "Plans, the account's subscription, and payments by Pix, boleto or credit card.",
};

const REFUSED: &str = "The payment gateway rejected the input, for example the card. `details.errors` contains the \
                       gateway's messages, `details.fields` groups them by field.";

const NONE: &str = "The account has no live subscription.";

const MEANWHILE: &str = "Another request is changing the subscription. Try again.";

/// The serialized list of plans. Plans are constant, so it is created once.
static CATALOGUE: LazyLock<Bytes> = LazyLock::new(|| {
    let plans: Vec<PlanResponse> = billing::PLANS.iter().map(PlanResponse::from).collect();
    Bytes::from(json!({ "data": plans }).to_string())
});

/// `GET /api/billing/plans`
async fn plans() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::json())
        .body(CATALOGUE.clone())
}

pub(super) const PLANS: Endpoint = endpoint!(plans, {
    Operation::new("List plans", "Returns all plans, smallest first.")
        .responds(data::<Vec<PlanResponse>>("The plans."))
        .never(ErrorCode::Unavailable)
});

/// `POST /api/billing/subscribe`
async fn subscribe(
    billing: Data<Billing>,
    Authenticated(tenant): TenantContext,
    SecretJson(body): SecretJson<SubscribeBody>,
) -> Result<HttpResponse, ApiError> {
    let subscribed = billing.subscribe(&tenant, body.into()).await?;
    Ok(responses::created(SubscribedResponse::from(&subscribed)))
}

pub(super) const SUBSCRIBE: Endpoint = endpoint!(subscribe, {
    let description = "Subscribes the account to a paid plan and returns the payment data: a Pix QR code, a boleto, or \
                the result of charging the card. An account has at most one live subscription.";
    let body = json!({
        "plan": "starter", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "529.982.247-25",
        "billing_email": "financeiro@example.com",
    });
    let response = json!({
        "status": "PENDING", "payment_data": { "type": "pix" },
        "subscription": pending(),
    });
    Operation::new("Subscribe to a plan", description)
        .body(Body::json::<SubscribeBody>().example(body))
        .responds(created::<SubscribedResponse<'_>>("The subscription and its payment data.").example(response))
        .refuses(ErrorCode::Invalid, "The account already has a live subscription.")
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
});

/// `GET /api/billing/subscription`
async fn subscription(billing: Data<Billing>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    let overview = billing.overview(&tenant).await?;
    Ok(responses::ok(SubscriptionOverviewResponse::from(&overview)))
}

pub(super) const SUBSCRIPTION: Endpoint = endpoint!(subscription, {
    let description = "Returns the account's subscription, plan and usage. Without a subscription, `subscription` is \
                null and `plan` is the account's own plan.";
    Operation::new("Get the subscription", description).responds(
        data::<SubscriptionOverviewResponse<'_>>("Subscription, plan and usage.")
            .example(json!({ "subscription": active() })),
    )
});

/// `PUT /api/billing/subscription`
async fn change(
    billing: Data<Billing>,
    Authenticated(tenant): TenantContext,
    JsonChange(body): JsonChange<PlanChangeBody>,
) -> Result<HttpResponse, ApiError> {
    let change = billing.change(&tenant, &body.into()).await?;
    Ok(responses::ok(PlanChangeResponse::from(&change)))
}

pub(super) const CHANGE: Endpoint = endpoint!(change, {
    let description = "Changes the plan, the billing cycle, or both. The account's current usage must fit into the new \
                plan; messages of the current month are not checked.";
    let response = json!({
        "previous_plan": "starter", "new_plan": "growth",
        "subscription": { "plan": "growth", "value": 29_700, "value_formatted": "R$\u{a0}297,00",
            "status": "active", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null },
    });
    Operation::new("Change the subscription", description)
        .body(Body::change::<PlanChangeBody>().example(json!({ "plan": "growth" })))
        .responds(data::<PlanChangeResponse<'_>>("The changed subscription.").example(response))
        .refuses(ErrorCode::NotFound, NONE)
        .refuses(
            ErrorCode::Invalid,
            "Plan and cycle are unchanged, or the account's usage exceeds the new plan's limits.",
        )
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
});

/// `POST /api/billing/cancel`
async fn cancel(billing: Data<Billing>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    let cancelled = billing.cancel(&tenant).await?;
    Ok(responses::ok(CancelledResponse::from(cancelled)))
}

pub(super) const CANCEL: Endpoint = endpoint!(cancel, {
    let description = "Cancels the subscription. The account keeps its plan until the end of the paid period.";
    Operation::new("Cancel the subscription", description)
        .responds(data::<CancelledResponse>("The subscription is cancelled."))
        .refuses(ErrorCode::NotFound, NONE)
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
});

/// `GET /api/billing/history`
async fn history(
    billing: Data<Billing>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    let page = billing.history(&tenant, page).await?;
    Ok(responses::ok(HistoryResponse::from(&page)))
}

pub(super) const HISTORY: Endpoint = endpoint!(history, {
    Operation::new(
        "List payments",
        "Returns the account's payments with numbered pages, newest first.",
    )
    .takes_all(numbered_page(&LIMIT))
    .responds(data::<HistoryResponse<'_>>("A page of payments."))
});

const PAYMENT_ID: TextParam = TextParam::new(
    "payment_id",
    "The payment gateway's id of the payment: `payment_id` of a subscription or `gateway_payment_id` of the payment \
     history.",
    "pay_080225913252",
);

/// `GET /api/billing/payment-status`
async fn payment_status(
    billing: Data<Billing>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let id = params.text(&PAYMENT_ID);
    params.check()?;
    let id = id.ok_or_else(|| FieldErrors::one(PAYMENT_ID.name, "is required"))?;
    let payment = billing.payment(&tenant, &id).await?;
    Ok(responses::ok(PaymentResponse::from(&payment)))
}

pub(super) const PAYMENT_STATUS: Endpoint = endpoint!(payment_status, {
    let description = "Requests the current status of one of the account's payments from the payment gateway.";
    Operation::new("Get a payment's status", description)
        .takes(Parameter::from(&PAYMENT_ID).required())
        .responds(data::<PaymentResponse<'_>>("The payment with its current status."))
        .refuses(
            ErrorCode::NotFound,
            "The payment does not exist or belongs to another account.",
        )
        .refuses(ErrorCode::Payment, "")
});

/// `POST /api/billing/webhook`: with a valid token, the response is always the same.
async fn callback(
    events: Data<PaymentEventReceiver>,
    token: Data<PaymentCallbackToken>,
    callback_memory: Data<CallbackMemory>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    token.verify(&request)?;
    let body = callback_memory.read(&request, payload.into_inner()).await?;
    events.into_inner().receive(&body).await;
    Ok(HttpResponse::Ok().json(Receipt { received: true }))
}

pub(super) const CALLBACK: Endpoint = endpoint!(callback, {
    let description = "Receives a callback of the payment gateway. With a valid token the response is always the \
                same. The event is stored before the response and processed afterwards; a repeated or older event \
                changes nothing. `PAYMENT_CONFIRMED`, `PAYMENT_RECEIVED`, `PAYMENT_OVERDUE` and \
                `SUBSCRIPTION_INACTIVATED` have an effect; other events are only stored.";
    let token = "The token that is configured at the gateway. The gateway's own header, `asaas-access-token`, is \
                 accepted as well.";
    let event = json!({
        "id": "evt_05b708f961d739ea7eba7e4db318f621", "event": "PAYMENT_CONFIRMED",
        "dateCreated": "2026-02-01 09:30:00",
        "payment": {
            "id": "pay_080225913252", "subscription": "sub_VXJBYgP2u0eO", "billingType": "PIX", "value": 97.0,
            "status": "CONFIRMED", "dueDate": "2026-02-01", "invoiceUrl": "https://gateway.example.com/i/080225913252",
            "bankSlipUrl": null,
        },
    });
    Operation::new("Receive a payment gateway event", description)
        .takes(text("gateway-access-token", token).in_header().example("agreed-token"))
        .body(
            Body::custom("application/json", json!({ "type": "object" }))
                .example(event)
                .described("An event in the gateway's format, at most 4 MiB. An unreadable event is stored as well."),
        )
        .responds(whole_body::<Receipt>("The event is received."))
        .refuses(ErrorCode::Auth, "The token is missing or wrong.")
        .refuses(ErrorCode::Internal, "The server has no token configured.")
        .refuses(ErrorCode::Invalid, "The request body is incomplete.")
        .never(ErrorCode::MediaType)
        .never(ErrorCode::Unavailable)
});

/// Example of a subscription whose first payment is pending.
fn pending() -> Value {
    json!({
        "status": "pending", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null,
        "current_period_start": null, "current_period_end": null,
    })
}

/// Example of a paid subscription.
fn active() -> Value {
    json!({ "status": "active", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null })
}
