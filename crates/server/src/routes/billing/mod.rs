//! Routes of plans, the subscription and payments, and the payment gateway's callback.

mod bodies;
mod response_bodies;

use std::sync::LazyLock;

use actix_web::http::header::ContentType;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::billing::PLANS;
use recado_domain::shared::FieldErrors;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::crypto::{are_equal, sha256};
use crate::error::{ApiError, RefusalReason};
use crate::payment_event_buffer;
use crate::web::body::JsonChange;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::secret::SecretJson;
use crate::wiring::Services;
pub(crate) use bodies::{PlanChangeBody, SubscribeBody};
pub(crate) use response_bodies::{
    CancelledResponse, HistoryResponse, PaymentResponse, PlanChangeResponse, PlanResponse, Receipt, SubscribedResponse,
    SubscriptionOverviewResponse,
};

/// Accepted headers for the token: the name in the published interface first, then the gateway's own name.
const TOKEN_HEADERS: [&str; 2] = ["gateway-access-token", "asaas-access-token"];

/// The serialized list of plans. Plans are constant, so it is created once.
static CATALOGUE: LazyLock<Bytes> = LazyLock::new(|| {
    let plans: Vec<PlanResponse> = PLANS.iter().map(PlanResponse::from).collect();
    Bytes::from(json!({ "data": plans }).to_string())
});

/// `GET /api/billing/plans`
pub(super) async fn plans() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::json())
        .body(CATALOGUE.clone())
}

/// `POST /api/billing/subscribe`
pub(super) async fn subscribe(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    SecretJson(body): SecretJson<SubscribeBody>,
) -> Result<HttpResponse, ApiError> {
    let subscribed = services.billing.subscribe(&tenant, body.into()).await?;
    Ok(responses::created(SubscribedResponse::from(&subscribed)))
}

/// `GET /api/billing/subscription`
pub(super) async fn subscription(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    let overview = services.billing.overview(&tenant).await?;
    Ok(responses::ok(SubscriptionOverviewResponse::from(&overview)))
}

/// `PUT /api/billing/subscription`
pub(super) async fn change(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    JsonChange(body): JsonChange<PlanChangeBody>,
) -> Result<HttpResponse, ApiError> {
    let change = services.billing.change(&tenant, &body.into()).await?;
    Ok(responses::ok(PlanChangeResponse::from(&change)))
}

/// `POST /api/billing/cancel`
pub(super) async fn cancel(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    let cancelled = services.billing.cancel(&tenant).await?;
    Ok(responses::ok(CancelledResponse::from(cancelled)))
}

/// `GET /api/billing/history`
pub(super) async fn history(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    let page = services.billing.history(&tenant, page).await?;
    Ok(responses::ok(HistoryResponse::from(&page)))
}

/// `GET /api/billing/payment-status`
pub(super) async fn payment_status(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let id = params.text("payment_id");
    params.check()?;
    let id = id.ok_or_else(|| FieldErrors::one("payment_id", "is required"))?;
    let payment = services.billing.payment(&tenant, &id).await?;
    Ok(responses::ok(PaymentResponse::from(&payment)))
}

/// `POST /api/billing/webhook`: with a valid token, the response is always the same.
pub(super) async fn callback(
    services: Data<Services>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    verify_token(&services, &request)?;
    let memory = &services.shared.callback_memory;
    let body = memory.read(&request, payload.into_inner()).await?;
    payment_event_buffer::receive(services, recado_gateways::payment::read_event(&body)).await;
    Ok(HttpResponse::Ok().json(Receipt { received: true }))
}

/// Verifies the token by comparing hashes in constant time, so that timing reveals neither its content nor its length.
fn verify_token(services: &Services, request: &HttpRequest) -> Result<(), ApiError> {
    let Some(expected) = &services.shared.config.payment_gateway_webhook_token else {
        return Err(ApiError::internal("PAYMENT_GATEWAY_WEBHOOK_TOKEN is not configured"));
    };
    let given = TOKEN_HEADERS.iter().find_map(|name| request.headers().get(*name));
    let given = given.map(|value| value.as_bytes()).unwrap_or_default();
    let (given, expected) = (sha256(given), sha256(expected.expose_secret().as_bytes()));
    match are_equal(given.as_ref(), expected.as_ref()) {
        true => Ok(()),
        false => Err(ApiError::auth(
            RefusalReason::CallbackToken,
            "The gateway's token is missing or wrong",
        )),
    }
}
