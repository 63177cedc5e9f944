//! Support access of administrators to accounts, and the sign-out of users.

use actix_web::cookie::Cookie;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::AccountHint;
use recado_domain::administration::{Administration, Support};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, UserId, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{AdminRequest, ID, origin};
use crate::error::{ApiError, ErrorCode};
use crate::web::auth::Authenticator;
use crate::web::body::MaybeJson;
use crate::web::cookies::AccountCookies;
use crate::web::extractors::Id;
use crate::web::operation::{Body, Operation, data, path_id};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::web::session_cache::SessionCache;
use crate::web::support::SupportMode;

/// The reason for support mode.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct SupportReason {
    /// The reason, recorded in the account's audit log: at most 500 characters.
    #[schemars(length(max = 500), example = "ticket 7")]
    reason: Option<String>,
}

/// The account that support mode has started in.
#[derive(Serialize, JsonSchema)]
struct SupportEntry {
    /// The account's id.
    account_id: AccountId,
    /// The account's name.
    #[schemars(example = "Loja Exemplo")]
    account_name: String,
}

/// The account that is active after support mode.
#[derive(Serialize, JsonSchema)]
struct SupportExit {
    /// The account's id; null if there is no previous account.
    account_id: Option<AccountId>,
}

/// The end of all sessions of a user.
#[derive(Serialize, JsonSchema)]
struct UserSignOut {
    /// The user's id.
    user_id: UserId,
    /// When the sessions ended. A token that was issued before is refused.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    signed_out_at: OffsetDateTime,
}

fn with_cookies(mut response: HttpResponse, cookies: &[Cookie<'_>]) -> Result<HttpResponse, ApiError> {
    for cookie in cookies {
        let added = response.add_cookie(cookie);
        added.map_err(ApiError::internal)?;
    }
    Ok(response)
}

/// `POST /api/admin/accounts/<id>/support`
async fn start_support(
    account_cookies: Data<AccountCookies>,
    support: Data<Support>,
    authenticator: Data<Authenticator>,
    caller: AdminRequest,
    Id(id): Id<AccountId>,
    request: HttpRequest,
    MaybeJson(body): MaybeJson<SupportReason>,
) -> Result<HttpResponse, ApiError> {
    let (session, before) = (&caller.session, caller.support_mode.as_ref());
    let original = origin(&authenticator.accounts, session, &request, before).await?;
    let leaving = before.map(|mode| mode.account_id);
    let started = support.start(&caller.admin, id, leaving, body.reason.as_deref()).await;
    let cache = &authenticator.auth_cache;
    for account in leaving.into_iter().chain([id]) {
        cache.mark_membership_changed(session.user_id, account);
    }
    let mode = SupportMode::new(started?, original);
    let response = responses::ok(SupportEntry {
        account_id: id,
        account_name: mode.account_name.clone(),
    });
    let cookie = authenticator.support.write(session.user_id, &mode);
    with_cookies(response, &[cookie, account_cookies.activate(id)])
}

pub(crate) const START_SUPPORT: Endpoint = endpoint!(start_support, {
    let description = "Starts support mode: gives the administrator the role `admin` in an account for four hours. The \
                administrator and the reason are recorded in the account's audit log. Sets the cookies of support mode \
                and of the active account.";
    Operation::new("Start support mode", description)
        .takes(path_id(ID))
        .body(Body::json::<SupportReason>().optional())
        .responds(data::<SupportEntry>("The account, which is now active."))
});

/// `POST /api/admin/stop-support`
async fn stop_support(
    account_cookies: Data<AccountCookies>,
    support: Data<Support>,
    authenticator: Data<Authenticator>,
    caller: AdminRequest,
) -> Result<HttpResponse, ApiError> {
    let (session, mode) = (&caller.session, caller.support_mode);
    let mode = mode.ok_or_else(|| ApiError::internal("there is no support mode to stop"))?;
    let stopped = support.stop(&caller.admin, mode.account_id).await;
    let cache = &authenticator.auth_cache;
    cache.mark_membership_changed(session.user_id, mode.account_id);
    stopped?;
    let original = match mode.original_account_id.map(AccountHint::Named) {
        Some(named) => authenticator.accounts.own_account(session, named).await?,
        None => None,
    };
    let active = original.map_or_else(|| account_cookies.remove(), |account| account_cookies.activate(account));
    let cookies = [authenticator.support.remove(), active];
    with_cookies(responses::ok(SupportExit { account_id: original }), &cookies)
}

pub(crate) const STOP_SUPPORT: Endpoint = endpoint!(stop_support, {
    let description = "Ends support mode and makes the previous account active again. Clears the cookie of support \
                mode and sets the cookie of the active account.";
    Operation::new("Stop support mode", description)
        .responds(data::<SupportExit>("The account that is active again."))
        .refuses(
            ErrorCode::Internal,
            "The caller is not in support mode: the cookie is missing.",
        )
});

/// `POST /api/admin/users/<id>/sign-out`
async fn sign_out(
    sessions: Data<SessionCache>,
    administration: Data<Administration>,
    AdminRequest { admin, .. }: AdminRequest,
    Id(user_id): Id<UserId>,
) -> Result<HttpResponse, ApiError> {
    let ended = administration.end_sessions(&admin, user_id).await;
    sessions.mark_changed(user_id);
    Ok(responses::ok(UserSignOut {
        user_id,
        signed_out_at: ended?,
    }))
}

pub(crate) const SIGN_OUT: Endpoint = endpoint!(sign_out, {
    let description = "Ends all sessions of a user on every device, and their support mode. Within a second every server \
                refuses tokens that were issued to the user before. API keys stay valid. The platform audit log \
                records it.";
    Operation::new("Sign a user out everywhere", description)
        .takes(path_id("The user's id."))
        .responds(data::<UserSignOut>("The user's sessions have ended."))
});
