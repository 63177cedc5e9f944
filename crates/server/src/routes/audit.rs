//! The audit log.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::audit::{AuditFilter, AuditLog, AuditLogs};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{OpenApiTag, Operation, data, numbered_page};
use crate::web::parameters::{IntegerParam, TextParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Audit log",
    description: "Records who changed what in the account, and when.",
};

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

const ENTITY_TYPE: TextParam = TextParam::new("entityType", "Only entries about this type of resource.", "campaign");

const ACTION: TextParam = TextParam::new(
    "action",
    "Only entries with this action: `create`, `update`, `delete` or another.",
    "update",
);

/// `GET /api/audit-logs`
async fn list(
    audit: Data<AuditLogs>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = AuditFilter {
        entity_type: params.text(&ENTITY_TYPE),
        action: params.text(&ACTION),
    };
    let page = params.page_of(&LIMIT);
    params.check()?;
    let found = audit.page(&tenant, &filter, page).await?;
    Ok(responses::ok(Logs {
        total: found.total,
        page: found.page,
        limit: found.limit,
        logs: found.data,
    }))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    let description = "Returns audit entries with numbered pages, newest first. The list includes every change whose \
                response was sent before this request.";
    Operation::new("List audit entries", description)
        .takes(&ENTITY_TYPE)
        .takes(&ACTION)
        .takes_all(numbered_page(&LIMIT))
        .responds(data::<Logs>("A page of entries.").example(json!({ "total": 1, "page": 1 })))
});
