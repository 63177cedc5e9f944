//! Routes of platform administrators: accounts, support mode and revenue reports.

mod reports;
mod support;

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{AccountHint, AccountStatus, Accounts, Session};
use recado_domain::administration::{
    AccountDetail, AccountFilter, AccountInput, AccountMetrics, AccountPatch, AccountRow, AccountUser, ActionInput,
    Admin, Administered, Administration, Deletions,
};
use recado_domain::billing::{self, Cents};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, Ids, Page, PageQuery, Role, UserId, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;

use super::accounts::AccountResponse;
use super::team::CreatedInvite;
use crate::error::{ApiError, ErrorCode};
use crate::web::auth::Authenticator;
use crate::web::auth_cache::AuthCache;
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Id, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, no_content, numbered_page, path_id};
use crate::web::parameters::{EnumParam, LIMIT, TextParam};
use crate::web::query::Params;
use crate::web::representation::set_tag_of;
use crate::web::request::RequestId;
use crate::web::responses::response_type;
use crate::web::route::{Endpoint, endpoint};
use crate::web::support::SupportMode;
use crate::web::{cookies, responses};
use crate::worker_handles::WorkerSignals;
pub(super) use reports::{AUDIT_LOGS, CHURN, DAILY_REVENUE, REVENUE, STATS};
pub(super) use support::{SIGN_OUT, START_SUPPORT, STOP_SUPPORT};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Platform",
    description: "Operations of platform administrators: account management, support mode and revenue reports.",
};

const ID: &str = "The account's id.";

const SLUG: &str = "The slug is taken, or the plan does not exist.";

const SEARCH: TextParam = TextParam::new(
    "search",
    "Only accounts whose name or owner's e-mail address contains this text (case-insensitive).",
    "loja",
);

const PLAN: TextParam = TextParam::new("plan", "Only accounts on this plan, by its id.", "growth");

const STATUS: EnumParam<AccountStatus> = EnumParam {
    name: "status",
    description: "Only accounts in this status.",
    accepted: "active or suspended",
    example: Some(AccountStatus::Active),
};

/// A new account that an administrator creates.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
#[schemars(rename = "PlatformNewAccount")]
struct NewAccount {
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
struct ChangedAccount {
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
struct Action {
    /// The action: `suspend`, `reactivate` or `change_plan`.
    #[schemars(required, extend("enum" = ["suspend", "reactivate", "change_plan"]), example = &"suspend")]
    action: Option<String>,
    /// The id of the new plan; required by `change_plan`.
    #[schemars(example = &"growth")]
    plan: Option<String>,
}

/// The result of an action.
#[derive(Serialize, JsonSchema)]
struct ActionResult {
    /// A description of the action for people.
    #[schemars(example = "Account suspended")]
    message: &'static str,
}

/// A request of a platform administrator. Only for routes with `Access::Administrator`: their access check has
/// verified the role, and this extractor does not.
pub(super) struct AdminRequest {
    pub(super) admin: Admin,
    session: Session,
    /// The support mode in which the request was sent.
    support_mode: Option<SupportMode>,
}

impl AdminRequest {
    fn of(request: &HttpRequest) -> Option<Self> {
        let authenticator = request.app_data::<Data<Authenticator>>()?;
        let ids = request.app_data::<Data<dyn Ids>>()?;
        let session = request.extensions().get::<Session>()?.clone();
        let support_mode = authenticator.support_mode(request, &session);
        let admin = Admin {
            user_id: session.user_id,
            email: session.email.clone(),
            ip_address: authenticator.address(request),
            request_id: request.extensions().get::<RequestId>().map(|id| id.0.clone()),
            entry_id: ids.next().into(),
            in_support: support_mode.is_some(),
        };
        Some(Self {
            admin,
            session,
            support_mode,
        })
    }
}

impl FromRequest for AdminRequest {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::of(request).ok_or_else(|| ApiError::internal("the request has no administrator")))
    }
}

/// Parses `search`, `plan` and `status`.
fn filter(params: &mut Params) -> AccountFilter {
    let plan = params.text(&PLAN);
    if plan.as_deref().is_some_and(|id| billing::plan(id).is_none()) {
        params.add_error(PLAN.name, "must be the id of a plan");
    }
    AccountFilter {
        search: params.text(&SEARCH),
        plan,
        status: params.one_of(&STATUS),
    }
}

response_type! {
    /// An account in the administrators' list.
    #[schemars(rename = "AccountRow")]
    struct AccountRowResponse from account: AccountRow {
        /// The account's id.
        id: AccountId,
        /// The account's name.
        #[schemars(example = "Loja Exemplo")]
        company_name: String,
        /// The account's slug.
        #[schemars(example = "loja-exemplo")]
        slug: String,
        /// E-mail address of the owner; of several owners, of the one who has been owner longest. Null without an
        /// owner.
        #[schemars(example = "ana@example.com")]
        owner_email: Option<String>,
        /// Id of the account's plan.
        #[schemars(example = &"growth")]
        plan: String,
        /// Whether the account is active or suspended.
        status: AccountStatus,
        /// Number of members, without those in support mode.
        #[schemars(example = 3)]
        users: i64,
        /// Number of contacts.
        #[schemars(example = 1840)]
        contacts: i64,
        /// Number of campaign messages and replies that the account sent in the last 30 days.
        #[schemars(example = 5120)]
        messages_30d: i64,
        /// Monthly value of the account's active or past due subscription, in cents.
        #[schemars(example = 19900)]
        mrr: Cents,
        /// When the account was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

response_type! {
    /// A member of an account.
    #[schemars(rename = "AccountUser")]
    struct AccountUserResponse from user: AccountUser {
        /// Id of the account.
        account_id: AccountId,
        /// Id of the user.
        user_id: UserId,
        /// E-mail address of the user.
        #[schemars(example = "ana@example.com")]
        email: String,
        /// Name of the user; null if it is unknown.
        #[schemars(example = "Ana Lima")]
        name: Option<String>,
        /// Role of the user in the account.
        role: Role,
        /// When the user last switched to the account; null if never.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_active_at: Option<OffsetDateTime>,
        /// When the user became a member.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

response_type! {
    /// Row counts of an account.
    #[schemars(rename = "AccountMetrics")]
    struct AccountMetricsResponse from metrics: AccountMetrics {
        /// Number of contacts.
        #[schemars(example = 1840)]
        contacts: i64,
        /// Number of conversations.
        #[schemars(example = 320)]
        conversations: i64,
    }
}

response_type! {
    /// An account with its members and row counts.
    #[schemars(rename = "AccountDetail")]
    struct AccountDetailResponse from detail: AccountDetail {
        /// The account.
        #[serde(flatten)]
        account: AccountResponse,
        /// Members in the order in which they joined, without those in support mode.
        users: Vec<AccountUserResponse> = detail.users.into_iter().map(AccountUserResponse::from).collect(),
        /// Row counts of the account.
        metrics: AccountMetricsResponse,
    }
}

/// `GET /api/admin/accounts`
async fn list(administration: Data<Administration>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let (page, filter): (PageQuery, AccountFilter) = (params.page(), filter(&mut params));
    params.check()?;
    let page = administration.list(&filter, page).await?;
    Ok(responses::ok(page.map(AccountRowResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List accounts",
        "Returns all accounts with numbered pages, newest first.",
    )
    .takes_all(numbered_page(&LIMIT))
    .takes(&SEARCH)
    .takes(&PLAN)
    .takes(&STATUS)
    .responds(data::<Page<AccountRowResponse>>("A page of accounts."))
});

/// `POST /api/admin/accounts`
async fn create(
    signals: Data<WorkerSignals>,
    administration: Data<Administration>,
    AdminRequest { admin, .. }: AdminRequest,
    Json(body): Json<NewAccount>,
) -> Result<HttpResponse, ApiError> {
    let input = AccountInput {
        name: body.name,
        slug: body.slug,
        plan: body.plan,
        owner_email: body.owner_email,
    };
    let created = administration.create(&admin, &input).await?;
    Ok(responses::created(administered(&signals, &created)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description =
        "Creates an account without members. If `owner_email` is given, that address is invited as owner.";
    Operation::new("Create an account as administrator", description)
        .body(Body::json::<NewAccount>())
        .responds(created::<AdministeredAccount<'static>>(
            "The account, and the owner's invite if `owner_email` was given.",
        ))
        .refuses(ErrorCode::Invalid, SLUG)
});

/// An account that an administrator created or changed.
#[derive(Serialize, JsonSchema)]
struct AdministeredAccount<'a> {
    #[serde(flatten)]
    account: AccountResponse,
    /// The invite of the first owner; absent if the request had no `owner_email`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_invite: Option<CreatedInvite<'a>>,
}

fn administered<'a>(signals: &WorkerSignals, created: &'a Administered) -> AdministeredAccount<'a> {
    if created.owner_invite.is_some() {
        signals.wake_mail();
    }
    AdministeredAccount {
        account: created.account.clone().into(),
        owner_invite: created.owner_invite.as_ref().map(CreatedInvite::from),
    }
}

/// `GET /api/admin/accounts/<id>`
async fn get(administration: Data<Administration>, Id(id): Id<AccountId>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(AccountDetailResponse::from(
        administration.get(id).await?,
    )))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get any account", "Returns one account with its members and totals.")
        .takes(path_id(ID))
        .responds(data::<AccountDetailResponse>("The account."))
});

/// `PUT /api/admin/accounts/<id>`
async fn update(
    auth_cache: Data<AuthCache>,
    signals: Data<WorkerSignals>,
    administration: Data<Administration>,
    AdminRequest { admin, .. }: AdminRequest,
    Id(id): Id<AccountId>,
    JsonChange(body): JsonChange<ChangedAccount>,
) -> Result<HttpResponse, ApiError> {
    let patch = AccountPatch {
        name: body.name,
        slug: body.slug,
        logo_url: body.logo_url,
        plan: body.plan,
        status: body.status,
        owner_email: body.owner_email,
    };
    let updated = administration.update(&admin, id, &patch).await;
    auth_cache.mark_account_changed(id);
    let mut response = responses::ok(administered(&signals, &updated?));
    // The response is not the row that the GET returns, and may show the address of an invite.
    let row = responses::ok(AccountDetailResponse::from(administration.get(id).await?));
    set_tag_of(&mut response, row);
    Ok(response)
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description =
        "Updates an account: absent fields do not change; null clears `logo_url`. The subscription is not changed.";
    Operation::new("Update any account", description)
        .takes(path_id(ID))
        .body(Body::change::<ChangedAccount>().example(json!({ "name": "Loja Centro", "logo_url": null })))
        .responds(
            data::<AdministeredAccount<'static>>("The updated account.")
                .example(json!({ "name": "Loja Centro", "logo_url": null })),
        )
        .refuses(ErrorCode::Invalid, SLUG)
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the account. Try again.",
        )
});

/// `DELETE /api/admin/accounts/<id>`
async fn delete(
    auth_cache: Data<AuthCache>,
    deletions: Data<Deletions>,
    AdminRequest { admin, .. }: AdminRequest,
    Id(id): Id<AccountId>,
) -> Result<HttpResponse, ApiError> {
    let deleted = deletions.delete(&admin, id).await;
    auth_cache.mark_account_changed(id);
    deleted?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description =
        "Permanently deletes an account: all its data, its files, and its subscription at the payment gateway.";
    Operation::new("Delete any account", description)
        .takes(path_id(ID))
        .responds(no_content(
            "The account is deleted. Its remaining data is removed in the background.",
        ))
        .refuses(ErrorCode::Storage, "")
});

/// `POST /api/admin/accounts/<id>/action`
async fn act(
    auth_cache: Data<AuthCache>,
    administration: Data<Administration>,
    AdminRequest { admin, .. }: AdminRequest,
    Id(id): Id<AccountId>,
    Json(body): Json<Action>,
) -> Result<HttpResponse, ApiError> {
    let input = ActionInput {
        action: body.action,
        plan: body.plan,
    };
    let acted = administration.act(&admin, id, &input).await;
    auth_cache.mark_account_changed(id);
    Ok(responses::ok(ActionResult { message: acted? }))
}

pub(super) const ACT: Endpoint = endpoint!(act, {
    let description = "Suspends an account (all requests are refused and its campaign runs pause), reactivates it, or \
                changes its plan and its subscription's plan.";
    Operation::new("Suspend, reactivate or change the plan of an account", description)
        .takes(path_id(ID))
        .body(Body::json::<Action>().example(json!({ "action": "change_plan", "plan": "growth" })))
        .responds(data::<ActionResult>("The action that was taken."))
        .refuses(
            ErrorCode::Invalid,
            "`action` is unknown, or `plan` is missing or does not exist.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the subscription. Try again.",
        )
});

/// The account to return to after support mode: the one that an active support mode stores, else the active account.
async fn origin(
    accounts: &Accounts,
    session: &Session,
    request: &HttpRequest,
    before: Option<&SupportMode>,
) -> Result<Option<AccountId>, ApiError> {
    if let Some(mode) = before {
        return Ok(mode.original_account_id);
    }
    let hint = cookies::account_hint(request);
    match accounts.own_account(session, hint).await? {
        Some(own) => Ok(Some(own)),
        None => Ok(accounts.own_account(session, AccountHint::Latest).await?),
    }
}
