//! What platform administrators do: over all accounts, with one account, and inside one in support mode.

use actix_web::cookie::Cookie;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{Account, AccountHint, AccountStatus, Session};
use recado_domain::administration::{AccountFilter, AccountInput, AccountPatch, ActionInput, Admin, Administered};
use recado_domain::billing;
use recado_domain::shared::{AccountId, PageQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::team::CreatedInvite;
use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, SessionUser, nullable};
use crate::web::query::Params;
use crate::web::support::SupportMode;
use crate::web::{cookies, responses};
use crate::wiring::Services;

/// The days of a series: by default, and at most.
const DAYS: (i64, i64) = (30, 365);

/// An account, as an administrator writes it.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
#[schemars(rename = "PlatformNewAccount")]
pub(crate) struct NewAccount {
    /// The account's name: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = "Loja Exemplo")]
    name: Option<String>,
    /// Its slug: 1 to 50 lowercase letters, digits and hyphens; made of the name where it is absent.
    #[schemars(example = "loja-exemplo")]
    slug: Option<String>,
    /// The id of its plan; `free` where it is absent.
    #[schemars(example = &"growth")]
    plan: Option<String>,
    /// The address of whom is to be its first owner: they are invited, where nobody has been an owner yet.
    #[schemars(example = "ana@example.com")]
    owner_email: Option<String>,
}

/// What of an account changes.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct ChangedAccount {
    /// The account's name: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = "Loja Exemplo")]
    name: Option<String>,
    /// Its slug: 1 to 50 lowercase letters, digits and hyphens.
    #[schemars(example = "loja-exemplo")]
    slug: Option<String>,
    /// The address of its logo, with `http` or `https`: at most 2048 characters.
    #[schemars(length(max = 2048), example = "https://loja.example/logo.png")]
    #[serde(default, deserialize_with = "nullable")]
    logo_url: Option<Option<String>>,
    /// The id of its plan.
    #[schemars(example = &"growth")]
    plan: Option<String>,
    /// Whether it may work.
    #[schemars(with = "Option<AccountStatus>")]
    status: Option<String>,
    /// The address of whom is to be its first owner: they are invited, where nobody has been an owner yet.
    #[schemars(example = "ana@example.com")]
    owner_email: Option<String>,
}

impl PatchFields for ChangedAccount {
    const NEVER_NULL: &'static [&'static str] = &["name", "slug", "plan", "status", "owner_email"];
}

/// What is to be done with an account.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct Action {
    /// What: `suspend`, `reactivate` or `change_plan`.
    #[schemars(required, extend("enum" = ["suspend", "reactivate", "change_plan"]), example = &"suspend")]
    action: Option<String>,
    /// The id of the plan that `change_plan` changes to.
    #[schemars(example = &"growth")]
    plan: Option<String>,
}

/// Why an account is entered.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct SupportReason {
    /// Why, for its audit log: at most 500 characters.
    #[schemars(length(max = 500), example = "ticket 7")]
    reason: Option<String>,
}

/// What was done.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ActionResult {
    /// What was done, in words for people.
    #[schemars(example = "Account suspended")]
    message: &'static str,
}

/// The account that support mode is in.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SupportEntry {
    /// The account's id.
    account_id: AccountId,
    /// The account's name.
    #[schemars(example = "Loja Exemplo")]
    account_name: String,
}

/// The account that support mode led back to.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SupportExit {
    /// The account's id; null where there is none to return to.
    account_id: Option<AccountId>,
}

/// The person behind a request, as the platform knows them.
fn admin(services: &Services, session: &Session, request: &HttpRequest) -> Admin {
    Admin {
        user_id: session.user_id,
        email: session.email.clone(),
        ip_address: services.authenticator.address(request),
        in_support: services.authenticator.support_mode(request, session).is_some(),
    }
}

fn with_cookies(mut response: HttpResponse, cookies: &[Cookie<'_>]) -> Result<HttpResponse, ApiError> {
    for cookie in cookies {
        let added = response.add_cookie(cookie);
        added.map_err(|error| ApiError::Internal(error.into()))?;
    }
    Ok(response)
}

/// `search`, `plan` and `status`.
fn filter(params: &mut Params) -> AccountFilter {
    let plan = params.text("plan");
    if plan.as_deref().is_some_and(|id| billing::plan(id).is_none()) {
        params.add_error("plan", "must be the id of a plan");
    }
    AccountFilter {
        search: params.text("search"),
        plan,
        status: params.parsed::<AccountStatus>("status", "active or suspended"),
    }
}

/// `GET /api/admin/accounts`
pub(super) async fn list(services: Data<Services>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let (page, filter): (PageQuery, AccountFilter) = (params.page(), filter(&mut params));
    params.check()?;
    Ok(responses::ok(services.admin.accounts.list(&filter, page).await?))
}

/// `POST /api/admin/accounts`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    request: HttpRequest,
    Json(body): Json<NewAccount>,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let input = AccountInput {
        name: body.name,
        slug: body.slug,
        plan: body.plan,
        owner_email: body.owner_email,
    };
    let created = services.admin.accounts.create(&admin, &input).await?;
    Ok(responses::created(administered(&services, &created)))
}

/// An account, as an administrator made or changed it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AdministeredAccount<'a> {
    #[serde(flatten)]
    account: &'a Account,
    /// The invite of its first owner, where the request named one; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_invite: Option<CreatedInvite<'a>>,
}

fn administered<'a>(services: &Services, created: &'a Administered) -> AdministeredAccount<'a> {
    if created.owner_invite.is_some() {
        services.shared.mailed.notify_one();
    }
    AdministeredAccount {
        account: &created.account,
        owner_invite: created.owner_invite.as_ref().map(CreatedInvite::from),
    }
}

/// `GET /api/admin/accounts/<id>`
pub(super) async fn get(services: Data<Services>, Id(id): Id<AccountId>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.admin.accounts.get(id).await?))
}

/// `PUT /api/admin/accounts/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    Id(id): Id<AccountId>,
    request: HttpRequest,
    JsonChange(body): JsonChange<ChangedAccount>,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let patch = AccountPatch {
        name: body.name,
        slug: body.slug,
        logo_url: body.logo_url,
        plan: body.plan,
        status: body.status,
        owner_email: body.owner_email,
    };
    let updated = services.admin.accounts.update(&admin, id, &patch).await;
    services.shared.auth_cache.evict_account(id);
    Ok(responses::ok(administered(&services, &updated?)))
}

/// `DELETE /api/admin/accounts/<id>`
pub(super) async fn delete(services: Data<Services>, Id(id): Id<AccountId>) -> Result<HttpResponse, ApiError> {
    let deleted = services.admin.deletions.delete(id).await;
    services.shared.auth_cache.evict_account(id);
    deleted?;
    Ok(responses::no_content())
}

/// `POST /api/admin/accounts/<id>/action`
pub(super) async fn act(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    Id(id): Id<AccountId>,
    request: HttpRequest,
    Json(body): Json<Action>,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let input = ActionInput {
        action: body.action,
        plan: body.plan,
    };
    let acted = services.admin.accounts.act(&admin, id, &input).await;
    services.shared.auth_cache.evict_account(id);
    Ok(responses::ok(ActionResult { message: acted? }))
}

/// `POST /api/admin/accounts/<id>/support`
pub(super) async fn start_support(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    Id(id): Id<AccountId>,
    request: HttpRequest,
    MaybeJson(body): MaybeJson<SupportReason>,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let before = services.authenticator.support_mode(&request, &session);
    let original = origin(&services, &session, &request, before.as_ref()).await?;
    let leaving = before.map(|mode| mode.account_id);
    let support = &services.admin.support;
    let started = support.start(&admin, id, leaving, body.reason.as_deref()).await;
    for account in leaving.into_iter().chain([id]) {
        services.shared.auth_cache.evict_membership(session.user_id, account);
    }
    let mode = SupportMode::new(started?, original);
    let response = responses::ok(SupportEntry {
        account_id: id,
        account_name: mode.account_name.clone(),
    });
    let cookie = services.authenticator.support.write(session.user_id, &mode);
    let active = cookies::active_account(id, services.shared.config.cookie_secure);
    with_cookies(response, &[cookie, active])
}

/// Where to return to: as support mode has it already, else the account that the request would be in.
async fn origin(
    services: &Services,
    session: &Session,
    request: &HttpRequest,
    before: Option<&SupportMode>,
) -> Result<Option<AccountId>, ApiError> {
    if let Some(mode) = before {
        return Ok(mode.original_account_id);
    }
    let hint = cookies::account_hint(request);
    match services.accounts.own_account(session, hint).await? {
        Some(own) => Ok(Some(own)),
        None => Ok(services.accounts.own_account(session, AccountHint::Latest).await?),
    }
}

/// `POST /api/admin/stop-support`
pub(super) async fn stop_support(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let mode = services.authenticator.support_mode(&request, &session);
    let mode = mode.ok_or_else(|| ApiError::Internal("there is no support mode to stop".into()))?;
    let stopped = services.admin.support.stop(session.user_id, mode.account_id).await;
    services
        .shared
        .auth_cache
        .evict_membership(session.user_id, mode.account_id);
    stopped?;
    let original = match mode.original_account_id.map(AccountHint::Named) {
        Some(named) => services.accounts.own_account(&session, named).await?,
        None => None,
    };
    let secure = services.shared.config.cookie_secure;
    let active = original.map_or_else(
        || cookies::no_active_account(secure),
        |account| cookies::active_account(account, secure),
    );
    let response = responses::ok(SupportExit { account_id: original });
    with_cookies(response, &[services.authenticator.support.remove(), active])
}

/// `GET /api/admin/stats`
pub(super) async fn stats(services: Data<Services>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.admin.accounts.stats().await?))
}

/// `GET /api/admin/revenue`
pub(super) async fn revenue(services: Data<Services>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.admin.accounts.revenue().await?))
}

/// `GET /api/admin/revenue/daily`
pub(super) async fn daily_revenue(services: Data<Services>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let days = params.clamped("days", DAYS);
    params.check()?;
    Ok(responses::ok(services.admin.accounts.daily_revenue(days).await?))
}

/// `GET /api/admin/churn`
pub(super) async fn churn(services: Data<Services>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let days = params.clamped("days", DAYS);
    params.check()?;
    Ok(responses::ok(services.admin.accounts.churn(days).await?))
}
