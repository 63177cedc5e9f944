//! Routes of platform administrators: accounts, support mode and revenue reports.

use actix_web::cookie::Cookie;
use actix_web::web::Data;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{Account, AccountHint, AccountStatus, Session};
use recado_domain::administration::{
    AccountFilter, AccountInput, AccountPatch, ActionInput, Admin, Administered, PlatformAuditFilter, PlatformAuditLog,
};
use recado_domain::billing;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, PageQuery, UserId, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::team::CreatedInvite;
use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, SessionUser, nullable};
use crate::web::parameters::{EnumParam, IntegerParam};
use crate::web::query::Params;
use crate::web::request::RequestId;
use crate::web::support::SupportMode;
use crate::web::{cookies, responses};
use crate::wiring::Services;

/// Default and maximum number of days of a daily report.
pub(crate) const DAYS: IntegerParam = IntegerParam {
    name: "days",
    description: "Length of the report in days, ending today.",
    default: 30,
    max: 365,
};

/// Default and maximum page size of the platform audit log.
pub(crate) const AUDIT_LIMIT: IntegerParam = IntegerParam::limit(50, 100);

pub(crate) const STATUS: EnumParam<AccountStatus> = EnumParam {
    name: "status",
    description: "Only accounts in this status.",
    accepted: "active or suspended",
    example: Some(AccountStatus::Active),
};

/// A new account that an administrator creates.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
#[schemars(rename = "PlatformNewAccount")]
pub(crate) struct NewAccount {
    /// The account's name: 1 to 200 characters.
    #[schemars(required, length(min = 1, max = 200), example = "Loja Exemplo")]
    name: Option<String>,
    /// The account's slug: 1 to 50 lowercase letters, digits and hyphens. If absent, it is derived from the name.
    #[schemars(example = "loja-exemplo")]
    slug: Option<String>,
    /// The id of the account's plan; `free` if absent.
    #[schemars(example = &"growth")]
    plan: Option<String>,
    /// The e-mail address of the first owner. The address is invited if the account has never had an owner.
    #[schemars(example = "ana@example.com")]
    owner_email: Option<String>,
}

/// Changes to an account.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct ChangedAccount {
    /// The account's name: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = "Loja Exemplo")]
    name: Option<String>,
    /// The account's slug: 1 to 50 lowercase letters, digits and hyphens.
    #[schemars(example = "loja-exemplo")]
    slug: Option<String>,
    /// The URL of the account's logo, `http` or `https`: at most 2048 characters.
    #[schemars(length(max = 2048), example = "https://loja.example/logo.png")]
    #[serde(default, deserialize_with = "nullable")]
    logo_url: Option<Option<String>>,
    /// The id of the account's plan.
    #[schemars(example = &"growth")]
    plan: Option<String>,
    /// Whether the account is active or suspended.
    #[schemars(with = "Option<AccountStatus>")]
    status: Option<String>,
    /// The e-mail address of the first owner. The address is invited if the account has never had an owner.
    #[schemars(example = "ana@example.com")]
    owner_email: Option<String>,
}

impl PatchFields for ChangedAccount {
    const NEVER_NULL: &'static [&'static str] = &["name", "slug", "plan", "status", "owner_email"];
}

/// An action on an account.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct Action {
    /// The action: `suspend`, `reactivate` or `change_plan`.
    #[schemars(required, extend("enum" = ["suspend", "reactivate", "change_plan"]), example = &"suspend")]
    action: Option<String>,
    /// The id of the new plan; required by `change_plan`.
    #[schemars(example = &"growth")]
    plan: Option<String>,
}

/// The reason for support mode.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct SupportReason {
    /// The reason, recorded in the account's audit log: at most 500 characters.
    #[schemars(length(max = 500), example = "ticket 7")]
    reason: Option<String>,
}

/// The result of an action.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ActionResult {
    /// A description of the action for people.
    #[schemars(example = "Account suspended")]
    message: &'static str,
}

/// The account that support mode has started in.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SupportEntry {
    /// The account's id.
    account_id: AccountId,
    /// The account's name.
    #[schemars(example = "Loja Exemplo")]
    account_name: String,
}

/// The account that is active after support mode.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SupportExit {
    /// The account's id; null if there is no previous account.
    account_id: Option<AccountId>,
}

/// The end of all sessions of a user.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserSignOut {
    /// The user's id.
    user_id: UserId,
    /// When the sessions ended. A token that was issued before is refused.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    signed_out_at: OffsetDateTime,
}

/// A page of the platform audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlatformAuditLogPage")]
pub(crate) struct PlatformLogs {
    /// The entries, newest first.
    logs: Vec<PlatformAuditLog>,
    /// The exact total number of matching entries.
    total: i64,
    /// The page number, starting at 1.
    page: i64,
    /// The maximum number of entries on a page.
    #[schemars(example = 50)]
    limit: i64,
}

/// The platform administrator who sent a request.
fn admin(services: &Services, session: &Session, request: &HttpRequest) -> Admin {
    Admin {
        user_id: session.user_id,
        email: session.email.clone(),
        ip_address: services.authenticator.address(request),
        request_id: request.extensions().get::<RequestId>().map(|id| id.0.clone()),
        entry_id: services.shared.ids.next().into(),
        in_support: services.authenticator.support_mode(request, session).is_some(),
    }
}

fn with_cookies(mut response: HttpResponse, cookies: &[Cookie<'_>]) -> Result<HttpResponse, ApiError> {
    for cookie in cookies {
        let added = response.add_cookie(cookie);
        added.map_err(ApiError::internal)?;
    }
    Ok(response)
}

/// Parses `search`, `plan` and `status`.
fn filter(params: &mut Params) -> AccountFilter {
    let plan = params.text("plan");
    if plan.as_deref().is_some_and(|id| billing::plan(id).is_none()) {
        params.add_error("plan", "must be the id of a plan");
    }
    AccountFilter {
        search: params.text("search"),
        plan,
        status: params.one_of(&STATUS),
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

/// An account that an administrator created or changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AdministeredAccount<'a> {
    #[serde(flatten)]
    account: &'a Account,
    /// The invite of the first owner; absent if the request had no `owner_email`.
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
    services.shared.auth_cache.mark_account_changed(id);
    Ok(responses::ok(administered(&services, &updated?)))
}

/// `DELETE /api/admin/accounts/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    Id(id): Id<AccountId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let deleted = services.admin.deletions.delete(&admin, id).await;
    services.shared.auth_cache.mark_account_changed(id);
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
    services.shared.auth_cache.mark_account_changed(id);
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
    let (support, cache) = (&services.admin.support, &services.shared.auth_cache);
    let started = support.start(&admin, id, leaving, body.reason.as_deref()).await;
    for account in leaving.into_iter().chain([id]) {
        cache.mark_membership_changed(session.user_id, account);
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

/// The account to return to after support mode: the one that an active support mode stores, else the active account.
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
    let mode = mode.ok_or_else(|| ApiError::internal("there is no support mode to stop"))?;
    let admin = admin(&services, &session, &request);
    let stopped = services.admin.support.stop(&admin, mode.account_id).await;
    let cache = &services.shared.auth_cache;
    cache.mark_membership_changed(session.user_id, mode.account_id);
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
    let cookies = [services.authenticator.support.remove(), active];
    with_cookies(responses::ok(SupportExit { account_id: original }), &cookies)
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
    let days = params.integer(&DAYS);
    params.check()?;
    Ok(responses::ok(services.admin.accounts.daily_revenue(days).await?))
}

/// `GET /api/admin/churn`
pub(super) async fn churn(services: Data<Services>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let days = params.integer(&DAYS);
    params.check()?;
    Ok(responses::ok(services.admin.accounts.churn(days).await?))
}

/// `POST /api/admin/users/<id>/sign-out`
pub(super) async fn sign_out(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    Id(user_id): Id<UserId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let admin = admin(&services, &session, &request);
    let ended = services.admin.accounts.end_sessions(&admin, user_id).await;
    services.shared.sessions.mark_changed(user_id);
    Ok(responses::ok(UserSignOut {
        user_id,
        signed_out_at: ended?,
    }))
}

/// `GET /api/admin/audit-logs`
pub(super) async fn audit_logs(services: Data<Services>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let filter = PlatformAuditFilter {
        action: params.text("action"),
        entity_type: params.text("entity_type"),
        account_id: params.id("account_id"),
        user_id: params.id("user_id"),
        since: params.time("since"),
        until: params.time("until"),
    };
    let page = params.page_of(&AUDIT_LIMIT);
    params.check()?;
    let found = services.admin.audit.page(&filter, page).await?;
    Ok(responses::ok(PlatformLogs {
        total: found.total,
        page: found.page,
        limit: found.limit,
        logs: found.data,
    }))
}
