//! The audit log.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::audit::{AuditFilter, AuditLog};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::parameters::IntegerParam;
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

/// Default and maximum page size.
pub(crate) const LIMIT: IntegerParam = IntegerParam::limit(50, 100);

/// A page of the audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditLogPage")]
pub(crate) struct Logs {
    /// The entries, newest first.
    logs: Vec<AuditLog>,
    /// The exact total number of matching entries.
    total: i64,
    /// The page number, starting at 1.
    page: i64,
    /// The maximum number of entries on a page.
    #[schemars(example = 50)]
    limit: i64,
}

/// `GET /api/audit-logs`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = AuditFilter {
        entity_type: params.text("entityType"),
        action: params.text("action"),
    };
    let page = params.page_of(&LIMIT);
    params.check()?;
    let found = services.audit.page(&tenant, &filter, page).await?;
    Ok(responses::ok(Logs {
        total: found.total,
        page: found.page,
        limit: found.limit,
        logs: found.data,
    }))
}
