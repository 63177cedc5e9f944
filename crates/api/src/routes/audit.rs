//! The audit log.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::audit::{AuditFilter, AuditLog, AuditLogs};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, AuditLogId, UserId, timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{OpenApiTag, Operation, data, numbered_page};
use crate::web::parameters::{IntegerParam, TextParam};
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
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
    logs: Vec<AuditLogResponse>,
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

response_type! {
    /// An entry of the audit log.
    #[schemars(rename = "AuditLog")]
    struct AuditLogResponse from entry: AuditLog {
        /// Id of the entry.
        id: AuditLogId,
        /// Id of the account that the entry belongs to.
        account_id: AccountId,
        /// The user who acted; for an API key, the user who created the key. Null if the system acted.
        user_id: Option<UserId>,
        /// The action: `create`, `update`, `delete`, `restore`, `login` or `export`.
        #[schemars(example = &"update")]
        action: String,
        /// Type of the resource.
        #[schemars(example = &"campaign")]
        entity_type: String,
        /// Id of the resource; null if the action concerns several resources.
        entity_id: Option<Uuid>,
        /// Details of the change, as an object whose fields depend on the action; null if there are none.
        #[schemars(with = "Option<Map<String, Value>>", example = json!({ "previousStatus": "sending" }))]
        changes: Option<Value>,
        /// IP address of the client; null if it is unknown.
        #[schemars(example = &"203.0.113.7")]
        ip_address: Option<String>,
        /// When the action happened.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

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
        logs: found.data.into_iter().map(AuditLogResponse::from).collect(),
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

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn audit_log_serializes_missing_values_as_null() {
        let entry = AuditLog {
            id: AuditLogId(Uuid::from_u128(1)),
            account_id: AccountId(Uuid::from_u128(7)),
            user_id: None,
            action: "delete".into(),
            entity_type: "campaign".into(),
            entity_id: None,
            changes: None,
            ip_address: None,
            created_at: datetime!(2026-03-01 12:00:00.123456 UTC),
        };
        let expected = json!({
            "id": Uuid::from_u128(1), "account_id": Uuid::from_u128(7), "user_id": null, "action": "delete",
            "entity_type": "campaign", "entity_id": null, "changes": null, "ip_address": null,
            "created_at": "2026-03-01T12:00:00.123Z",
        });
        assert_eq!(json!(AuditLogResponse::from(entry)), expected);
    }
}
