//! Automations and their executions.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::automations::{AutomationInput, AutomationStatus, ExecutionInput};
use recado_domain::shared::AutomationId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::query::CursorParams;
use crate::web::responses;
use crate::wiring::Services;

/// The fields of an automation.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct AutomationBody {
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
pub(crate) struct ExecutionsBody {
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

/// `GET /api/automations`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(page): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.automations.list(&tenant, &page).await?))
}

/// `POST /api/automations`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::created(
        services.automations.create(&tenant, input.into()).await?,
    ))
}

/// `PUT /api/automations/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<AutomationId>,
    JsonChange(input): JsonChange<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.automations.update(&tenant, id, input.into()).await?,
    ))
}

/// `POST /api/automations/<id>/executions`
pub(super) async fn record(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<AutomationId>,
    Json(body): Json<ExecutionsBody>,
) -> Result<HttpResponse, ApiError> {
    let executions = body.executions.unwrap_or_default();
    Ok(responses::ok(
        services.automations.record(&tenant, id, executions).await?,
    ))
}
