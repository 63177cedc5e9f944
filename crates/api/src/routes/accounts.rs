//! Routes of accounts: list, create and switch.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{Account, AccountHint, AccountStatus, Accounts, Membership};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, Role, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::auth::Authenticator;
use crate::web::body::Json;
use crate::web::cookies::{self, AccountCookies};
use crate::web::extractors::{Authenticated, SessionUser};
use crate::web::operation::{Body, OpenApiTag, Operation, ResponseDoc, created, data};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::web::support::SupportMode;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Accounts",
    description: "List, create and switch between the accounts of a user.",
};

const COOKIE: &str = "Sets `svc-active-account-id` to the account's id for one year.";

/// A new account.
#[derive(Deserialize, JsonSchema, Validate)]
#[schemars(rename = "NewOwnAccount")]
pub(crate) struct NewAccount {
    /// The account's name: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = &"Loja da Ana")]
    #[garde(required)]
    name: Option<String>,
}

/// The account to switch to.
#[derive(Deserialize, JsonSchema, Validate)]
struct SwitchTo {
    /// The id of an account that the caller is a member of.
    #[garde(required)]
    account_id: Option<uuid::Uuid>,
}

/// The accounts of a user.
#[derive(Serialize, JsonSchema)]
struct OwnAccounts {
    /// The accounts that the user is a member of, with the role in each.
    accounts: Vec<MembershipResponse>,
    /// The account that the cookie `svc-active-account-id` selects; null if the user is not a member of it.
    active_account_id: Option<AccountId>,
    /// Whether the user is a platform administrator.
    is_admin: bool,
    /// The account in which a platform administrator uses support mode; null otherwise.
    support_mode: Option<SupportMode>,
}

/// An account and the caller's role in it.
#[derive(Serialize, JsonSchema)]
struct OwnAccount {
    /// The account.
    account: AccountResponse,
    /// The caller's role in it.
    role: Role,
}

/// The end of all sessions of the caller.
#[derive(Serialize, JsonSchema)]
struct SignOut {
    /// When the sessions ended. A token that was issued before is refused.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    signed_out_at: OffsetDateTime,
}

response_type! {
    /// A business that uses Recado. All other data belongs to an account.
    #[schemars(rename = "Account")]
    pub(super) struct AccountResponse from account: Account {
        /// Id of the account.
        id: AccountId,
        /// Name of the account, 1 to 200 characters.
        #[schemars(example = &"Loja da Ana")]
        name: String,
        /// Unique short name, derived from the name: at most 50 lowercase letters, digits and hyphens.
        #[schemars(example = &"loja-da-ana")]
        slug: String,
        /// URL of the logo; null if there is none.
        #[schemars(example = &"https://example.com/logo.png")]
        logo_url: Option<String>,
        /// Id of the account's plan: `free`, `starter`, `growth` or `scale`.
        #[schemars(example = &"free")]
        plan: String,
        /// Whether the account is active or suspended.
        status: AccountStatus,
        /// When the account was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

response_type! {
    /// A user's membership in an account.
    #[schemars(rename = "Membership")]
    struct MembershipResponse from membership: Membership {
        /// Id of the account.
        account_id: AccountId,
        /// Role of the user in the account.
        role: Role,
        /// The account.
        account: AccountResponse,
    }
}

/// `GET /api/accounts`
async fn list(
    accounts: Data<Accounts>,
    authenticator: Data<Authenticator>,
    Authenticated(session): SessionUser,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let own = accounts.list(&session).await?;
    let active = match cookies::active_account_of(&request) {
        Some(AccountHint::Named(id)) if own.iter().any(|membership| membership.account_id == id) => Some(id),
        _ => None,
    };
    Ok(responses::ok(OwnAccounts {
        accounts: own.into_iter().map(MembershipResponse::from).collect(),
        active_account_id: active,
        is_admin: accounts.is_admin(&session),
        support_mode: authenticator.support_mode(&request, &session),
    }))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List my accounts",
        "Returns the accounts that the caller is a member of, and which one is active.",
    )
    .responds(data::<OwnAccounts>("The accounts.").example(json!({ "support_mode": null })))
});

/// `POST /api/accounts`
async fn create(
    account_cookies: Data<AccountCookies>,
    accounts: Data<Accounts>,
    Authenticated(session): SessionUser,
    Json(input): Json<NewAccount>,
) -> Result<HttpResponse, ApiError> {
    let account = accounts.create(&session, &input.name.unwrap_or_default()).await?;
    let cookie = account_cookies.activate(account.id);
    let mut response = responses::created(OwnAccount {
        account: account.into(),
        role: Role::Owner,
    });
    response.add_cookie(&cookie).map_err(ApiError::internal)?;
    Ok(response)
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Creates an account on the plan `free` with the caller as its owner, and makes it the active \
                account. If the slug is taken, a number is appended.";
    Operation::new("Create an account", description)
        .body(Body::json::<NewAccount>())
        .refuses(
            ErrorCode::Invalid,
            "The caller owns as many accounts as the operator allows (100 by default).",
        )
        .responds(with_cookie(created::<OwnAccount>("The new account.").example(json!({
            "role": "owner", "account": { "logo_url": null },
        }))))
});

/// `POST /api/accounts/switch`
async fn switch(
    account_cookies: Data<AccountCookies>,
    accounts: Data<Accounts>,
    Authenticated(session): SessionUser,
    Json(input): Json<SwitchTo>,
) -> Result<HttpResponse, ApiError> {
    let account_id = AccountId(input.account_id.unwrap_or_default());
    let membership = accounts.switch(&session, account_id).await?;
    let cookie = account_cookies.activate(account_id);
    let mut response = responses::ok(OwnAccount {
        account: membership.account.into(),
        role: membership.role,
    });
    response.add_cookie(&cookie).map_err(ApiError::internal)?;
    Ok(response)
}

pub(super) const SWITCH: Endpoint = endpoint!(switch, {
    Operation::new(
        "Switch to an account",
        "Makes another account of the caller the active account.",
    )
    .body(Body::json::<SwitchTo>())
    .responds(with_cookie(data::<OwnAccount>("The account, which is now active.")))
    .refuses(
        ErrorCode::Auth,
        "The caller is not a member of the account, or the account is suspended.",
    )
});

/// `POST /api/auth/sign-out-everywhere`
async fn sign_out_everywhere(
    account_cookies: Data<AccountCookies>,
    authenticator: Data<Authenticator>,
    Authenticated(session): SessionUser,
) -> Result<HttpResponse, ApiError> {
    let signed_out_at = authenticator.sessions.sign_out_everywhere(&session).await?;
    let mut response = responses::ok(SignOut { signed_out_at });
    for cookie in [authenticator.support.remove(), account_cookies.remove()] {
        let added = response.add_cookie(&cookie);
        added.map_err(ApiError::internal)?;
    }
    Ok(response)
}

pub(super) const SIGN_OUT_EVERYWHERE: Endpoint = endpoint!(sign_out_everywhere, {
    let description = "Ends all sessions of the caller on every device, and their support mode. Within a second every \
                server refuses tokens that were issued before, also the token of this request. Notification streams \
                of these sessions close. API keys stay valid. Sign in again at the identity provider for a new token.";
    let cookies = "Removes `svc-active-account-id` and `svc-support-mode`.";
    Operation::new("Sign out everywhere", description)
        .responds(data::<SignOut>("The sessions have ended.").header(
            "Set-Cookie",
            cookies,
            json!({ "type": "string" }),
        ))
        .refuses(
            ErrorCode::Invalid,
            "The session token does not say when it was issued (`iat`), so the identity provider's later tokens would \
             be refused, too.",
        )
});

fn with_cookie(response: ResponseDoc) -> ResponseDoc {
    response.header("Set-Cookie", COOKIE, json!({ "type": "string" }))
}
