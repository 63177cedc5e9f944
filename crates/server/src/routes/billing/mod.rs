//! Plans, the account's subscription, its payments, and the payment gateway's callback.

mod answers;
mod bodies;

use std::sync::LazyLock;

use actix_web::http::header::ContentType;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::billing::{GatewayEvent, PLANS};
use recado_domain::shared::FieldErrors;
use secrecy::ExposeSecret as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::ApiError;
use crate::spool;
use crate::web::body::JsonChange;
use crate::web::query::Params;
use crate::web::reply;
use crate::web::secret::SecretJson;
use crate::web::shape::{Caller, Proved};
use crate::wiring::Services;
pub(crate) use answers::{
    CancelledShape, HistoryShape, PaymentShape, PlanChangeShape, PlanShape, Receipt, StandingShape, SubscribedShape,
};
pub(crate) use bodies::{PlanChangeBody, SubscribeBody};

/// What the provider calls its header, and what it is called in the published interface, which comes first.
const TOKEN_HEADERS: [&str; 2] = ["gateway-access-token", "asaas-access-token"];

/// The catalogue never changes: it is written once.
static CATALOGUE: LazyLock<Bytes> = LazyLock::new(|| {
    let plans: Vec<PlanShape> = PLANS.iter().map(PlanShape::from).collect();
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
    Proved(tenant): Caller,
    SecretJson(body): SecretJson<SubscribeBody>,
) -> Result<HttpResponse, ApiError> {
    let subscribed = services.billing.subscribe(&tenant, body.into()).await?;
    Ok(reply::created(SubscribedShape::from(&subscribed)))
}

/// `GET /api/billing/subscription`
pub(super) async fn subscription(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    let overview = services.billing.overview(&tenant).await?;
    Ok(reply::ok(StandingShape::from(&overview)))
}

/// `PUT /api/billing/subscription`
pub(super) async fn change(
    services: Data<Services>,
    Proved(tenant): Caller,
    JsonChange(body): JsonChange<PlanChangeBody>,
) -> Result<HttpResponse, ApiError> {
    let change = services.billing.change(&tenant, &body.into()).await?;
    Ok(reply::ok(PlanChangeShape::from(&change)))
}

/// `POST /api/billing/cancel`
pub(super) async fn cancel(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    let cancelled = services.billing.cancel(&tenant).await?;
    Ok(reply::ok(CancelledShape::from(cancelled)))
}

/// `GET /api/billing/history`
pub(super) async fn history(
    services: Data<Services>,
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    let page = services.billing.history(&tenant, page).await?;
    Ok(reply::ok(HistoryShape::from(&page)))
}

/// `GET /api/billing/payment-status`
pub(super) async fn payment_status(
    services: Data<Services>,
    Proved(tenant): Caller,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let id = params.text("payment_id");
    params.check()?;
    let id = id.ok_or_else(|| FieldErrors::one("payment_id", "is required"))?;
    let payment = services.billing.payment(&tenant, &id).await?;
    Ok(reply::ok(PaymentShape::from(&payment)))
}

/// `POST /api/billing/webhook`: once the token is right, the answer is always the same.
pub(super) async fn callback(
    services: Data<Services>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    prove(&services, &request)?;
    let memory = &services.shared.callback_memory;
    let body = memory.read(&request, payload.into_inner()).await?;
    spool::receive(services, GatewayEvent::read(&body)).await;
    Ok(HttpResponse::Ok().json(Receipt { received: true }))
}

/// Compared by their hashes, so that neither content nor length of the wanted token can be told from the time it takes.
fn prove(services: &Services, request: &HttpRequest) -> Result<(), ApiError> {
    let Some(wanted) = &services.shared.config.payment_gateway_webhook_token else {
        return Err(ApiError::Internal(
            "PAYMENT_GATEWAY_WEBHOOK_TOKEN is not configured".into(),
        ));
    };
    let given = TOKEN_HEADERS.iter().find_map(|name| request.headers().get(*name));
    let given = given.map(|value| value.as_bytes()).unwrap_or_default();
    let (given, wanted) = (Sha256::digest(given), Sha256::digest(wanted.expose_secret().as_bytes()));
    match bool::from(given.as_slice().ct_eq(wanted.as_slice())) {
        true => Ok(()),
        false => Err(ApiError::Auth("The gateway's token is missing or wrong".to_owned())),
    }
}
