//! Reports on the whole installation, and the audit log of its administrators.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::administration::{
    Administration, AdministrationStats, ChurnDay, PlatformAudit, PlatformAuditFilter, PlatformAuditLog,
    PlatformRevenueDay, PlatformRevenueOverview,
};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, AuditLogId, UserId, timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::operation::{Operation, data, numbered_page};
use crate::web::parameters::{IdParam, IntegerParam, TextParam, TimeParam};
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

/// Default and maximum number of days of a daily report.
const DAYS: IntegerParam = IntegerParam {
    name: "days",
    description: "Length of the report in days, ending today.",
    default: 30,
    max: 365,
};

/// Default and maximum page size of the platform audit log.
const AUDIT_LIMIT: IntegerParam = IntegerParam::limit(50, 100);

const ACTION: TextParam = TextParam::new(
    "action",
    "Only entries with this action: `create`, `update`, `delete`, `login` or another.",
    "update",
);

const ENTITY_TYPE: TextParam = TextParam::new(
    "entity_type",
    "Only entries about this type: `account`, `account_action`, `support_mode`, `user_sessions` or another.",
    "account_action",
);

const ACCOUNT: IdParam = IdParam::new("account_id", "Only entries about this account.");

const USER: IdParam = IdParam::new("user_id", "Only entries of this administrator.");

const SINCE: TimeParam = TimeParam::new("since", "Only entries of this time or later.", "2026-01-01T00:00:00Z");

const UNTIL: TimeParam = TimeParam::new("until", "Only entries of this time or earlier.", "2027-01-01T00:00:00Z");

/// A page of the platform audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlatformAuditLogPage")]
struct PlatformLogs {
    /// The entries, newest first.
    logs: Vec<PlatformAuditLogResponse>,
    /// The exact total number of matching entries.
    total: i64,
    /// The page number, starting at 1.
    page: i64,
    /// The maximum number of entries on a page.
    #[schemars(example = 50)]
    limit: i64,
}

response_type! {
    /// An entry of the platform audit log.
    #[schemars(rename = "PlatformAuditLog")]
    struct PlatformAuditLogResponse from entry: PlatformAuditLog {
        /// Id of the entry.
        id: AuditLogId,
        /// The administrator who acted.
        user_id: UserId,
        /// E-mail address of the administrator at that time.
        #[schemars(example = &"root@example.com")]
        email: String,
        /// The action: `create`, `update`, `delete`, `restore`, `login` or `export`.
        #[schemars(example = &"update")]
        action: String,
        /// Type of the changed thing, for example `account`, `account_action`, `support_mode` or `user_sessions`.
        #[schemars(example = &"account_action")]
        entity_type: String,
        /// Id of the changed thing: of an account, or of a user for `user_sessions`.
        entity_id: Option<Uuid>,
        /// Id of the account that the change concerns, also after its deletion; null if it concerns none.
        account_id: Option<AccountId>,
        /// Details of the change, as an object whose fields depend on the action; null if there are none.
        #[schemars(with = "Option<Map<String, Value>>", example = json!({ "action": "suspend" }))]
        changes: Option<Value>,
        /// IP address of the client; null if it is unknown.
        #[schemars(example = &"203.0.113.7")]
        ip_address: Option<String>,
        /// `X-Request-Id` of the request; null if it is unknown.
        #[schemars(example = &"0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")]
        request_id: Option<String>,
        /// When the change was made.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/admin/stats`
async fn stats(administration: Data<Administration>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(administration.stats().await?))
}

pub(crate) const STATS: Endpoint = endpoint!(stats, {
    Operation::new("Get platform totals", "Returns totals over all accounts.")
        .responds(data::<AdministrationStats>("The totals."))
});

/// `GET /api/admin/revenue`
async fn revenue(administration: Data<Administration>) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(administration.revenue().await?))
}

pub(crate) const REVENUE: Endpoint = endpoint!(revenue, {
    Operation::new(
        "Get subscription revenue",
        "Returns the revenue of the current subscriptions of all accounts.",
    )
    .responds(data::<PlatformRevenueOverview>("The revenue."))
});

/// `GET /api/admin/revenue/daily`
async fn daily_revenue(administration: Data<Administration>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let days = params.integer(&DAYS);
    params.check()?;
    Ok(responses::ok(administration.daily_revenue(days).await?))
}

pub(crate) const DAILY_REVENUE: Endpoint = endpoint!(daily_revenue, {
    Operation::new(
        "Report daily subscription revenue",
        "Returns the payments received on each day, oldest day first.",
    )
    .takes(&DAYS)
    .responds(data::<Vec<PlatformRevenueDay>>("The days."))
});

/// `GET /api/admin/churn`
async fn churn(administration: Data<Administration>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let days = params.integer(&DAYS);
    params.check()?;
    Ok(responses::ok(administration.churn(days).await?))
}

pub(crate) const CHURN: Endpoint = endpoint!(churn, {
    Operation::new(
        "Report daily churn",
        "Returns the subscriptions that ended on each day, oldest day first.",
    )
    .takes(&DAYS)
    .responds(data::<Vec<ChurnDay>>("The days."))
});

/// `GET /api/admin/audit-logs`
async fn audit_logs(platform_audit: Data<PlatformAudit>, mut params: Params) -> Result<HttpResponse, ApiError> {
    let filter = PlatformAuditFilter {
        action: params.text(&ACTION),
        entity_type: params.text(&ENTITY_TYPE),
        account_id: params.id(&ACCOUNT),
        user_id: params.id(&USER),
        since: params.time(&SINCE),
        until: params.time(&UNTIL),
    };
    let page = params.page_of(&AUDIT_LIMIT);
    params.check()?;
    let found = platform_audit.page(&filter, page).await?;
    Ok(responses::ok(PlatformLogs {
        total: found.total,
        page: found.page,
        limit: found.limit,
        logs: found.data.into_iter().map(PlatformAuditLogResponse::from).collect(),
    }))
}

pub(crate) const AUDIT_LOGS: Endpoint = endpoint!(audit_logs, {
    let description = "Returns what platform administrators changed, with numbered pages, newest first. Every changing \
                operation of administrators leaves one entry, which commits with the change and survives the account. \
                No operation changes or deletes an entry.";
    Operation::new("List platform audit entries", description)
        .takes_all(numbered_page(&AUDIT_LIMIT))
        .takes(&ACTION)
        .takes(&ENTITY_TYPE)
        .takes(&ACCOUNT)
        .takes(&USER)
        .takes(&SINCE)
        .takes(&UNTIL)
        .responds(data::<PlatformLogs>("A page of entries.").example(json!({ "total": 1, "page": 1 })))
});
