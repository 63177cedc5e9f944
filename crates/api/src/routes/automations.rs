//! Automations and their executions.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::automations::{Automation, AutomationInput, AutomationStatus, Automations, ExecutionInput};
use recado_domain::ingestion::IngestionResult;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AutomationId, CursorPage, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, path_id};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Automations",
    description: "Workflows in the account's own systems, and their reported executions.",
};

const ID: &str = "The automation's id.";

/// The fields of an automation.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct AutomationBody {
    /// The automation's name: 1 to 200 characters after HTML tags, control characters and extra white space are
    /// removed.
    #[schemars(length(min = 1, max = 200), example = "Carrinho abandonado")]
    name: Option<String>,
    /// The automation's status.
    #[schemars(with = "Option<AutomationStatus>")]
    status: Option<String>,
}

impl PatchFields for AutomationBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "status"];
}

/// A batch of executions of an automation.
#[derive(Deserialize, Validate, JsonSchema)]
struct ExecutionsBody {
    /// 1 to 1000 executions. One invalid execution rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    executions: Option<Vec<ExecutionInput>>,
}

impl From<AutomationBody> for AutomationInput {
    fn from(body: AutomationBody) -> Self {
        Self {
            name: body.name,
            status: body.status,
        }
    }
}

response_type! {
    /// An automation that runs in one of the account's own systems, which report its executions.
    #[schemars(rename = "Automation")]
    struct AutomationResponse from automation: Automation {
        /// The automation's id.
        id: AutomationId,
        /// The name: 1 to 200 characters, without HTML tags and control characters.
        #[schemars(example = "Carrinho abandonado")]
        name: String,
        /// The status of the automation.
        status: AutomationStatus,
        /// When the automation was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the automation was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

/// `GET /api/automations`
async fn list(
    automations: Data<Automations>,
    Authenticated(tenant): TenantContext,
    CursorParams(page): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        automations.list(&tenant, &page).await?.map(AutomationResponse::from),
    ))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List automations", "Returns the account's automations, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<AutomationResponse>>(
            "A page of automations and its `nextCursor`.",
        ))
});

/// `POST /api/automations`
async fn create(
    automations: Data<Automations>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    let automation = automations.create(&tenant, input.into()).await?;
    Ok(responses::created(AutomationResponse::from(automation)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new(
        "Create an automation",
        "Registers an automation so that its executions can be reported. The plan's limit is not checked here, only \
         when the account changes to a smaller plan.",
    )
    .body(Body::json_with::<AutomationBody>(&["name", "status"]))
    .responds(created::<AutomationResponse>("The new automation."))
});

/// `PUT /api/automations/<id>`
async fn update(
    automations: Data<Automations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<AutomationId>,
    JsonChange(input): JsonChange<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    let automation = automations.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(AutomationResponse::from(automation)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    Operation::new(
        "Update an automation",
        "Updates an automation: absent fields do not change.",
    )
    .takes(path_id(ID))
    .body(Body::change::<AutomationBody>().example(json!({ "status": "paused" })))
    .responds(data::<AutomationResponse>("The updated automation.").example(json!({ "status": "paused" })))
});

/// `POST /api/automations/<id>/executions`
async fn record(
    automations: Data<Automations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<AutomationId>,
    Json(body): Json<ExecutionsBody>,
) -> Result<HttpResponse, ApiError> {
    let executions = body.executions.unwrap_or_default();
    Ok(responses::ok(automations.record(&tenant, id, executions).await?))
}

pub(super) const RECORD: Endpoint = endpoint!(record, {
    let description = "Records executions of an automation. Executions are immutable: an item whose `id` was recorded \
                before is ignored.";
    let execution = json!({
        "status": "completed", "started_at": "2026-02-01T09:30:00.000Z", "finished_at": "2026-02-01T09:30:01.400Z",
    });
    Operation::new("Record executions", description)
        .takes(path_id(ID))
        .body(Body::json::<ExecutionsBody>().example(json!({ "executions": [execution] })))
        .responds(data::<IngestionResult>("The number of newly recorded executions."))
        .refuses(
            ErrorCode::Invalid,
            "One invalid item rejects the whole request. Each invalid item is named by its index, such as \
             `executions[3].status`.",
        )
});
