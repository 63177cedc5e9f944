//! Accounts: the ones I belong to, a new one, another one.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::accounts::AccountHint;
use recado_domain::shared::AccountId;
use serde::Deserialize;
use serde_json::json;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::shape::{Person, Proved};
use crate::web::{cookies, reply};
use crate::wiring::Services;

/// Body of `POST /api/accounts`.
#[derive(Deserialize, Validate)]
pub(super) struct NewAccount {
    #[garde(required)]
    name: Option<String>,
}

/// Body of `POST /api/accounts/switch`.
#[derive(Deserialize, Validate)]
pub(super) struct SwitchTo {
    #[garde(required)]
    account_id: Option<uuid::Uuid>,
}

/// `GET /api/accounts`
pub(super) async fn list(
    services: Data<Services>,
    Proved(session): Person,
    request: actix_web::HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let accounts = services.accounts.list(&session).await?;
    let active = match cookies::active_account_of(&request) {
        Some(AccountHint::Named(id)) if accounts.iter().any(|membership| membership.account_id == id) => Some(id),
        _ => None,
    };
    Ok(reply::ok(json!({
        "accounts": accounts,
        "active_account_id": active,
        "is_admin": services.accounts.is_admin(&session),
        "support_mode": services.authenticator.support_mode(&request, &session),
    })))
}

/// `POST /api/accounts`
pub(super) async fn create(
    services: Data<Services>,
    Proved(session): Person,
    Json(input): Json<NewAccount>,
) -> Result<HttpResponse, ApiError> {
    let account = services
        .accounts
        .create(&session, &input.name.unwrap_or_default())
        .await?;
    let cookie = cookies::active_account(account.id, services.shared.config.cookie_secure);
    let mut response = reply::created(json!({ "account": account, "role": "owner" }));
    response
        .add_cookie(&cookie)
        .map_err(|error| ApiError::Internal(error.into()))?;
    Ok(response)
}

/// `POST /api/accounts/switch`
pub(super) async fn switch(
    services: Data<Services>,
    Proved(session): Person,
    Json(input): Json<SwitchTo>,
) -> Result<HttpResponse, ApiError> {
    let account_id = AccountId(input.account_id.unwrap_or_default());
    let membership = services.accounts.switch(&session, account_id).await?;
    let cookie = cookies::active_account(account_id, services.shared.config.cookie_secure);
    let mut response = reply::ok(json!({ "account": membership.account, "role": membership.role }));
    response
        .add_cookie(&cookie)
        .map_err(|error| ApiError::Internal(error.into()))?;
    Ok(response)
}
