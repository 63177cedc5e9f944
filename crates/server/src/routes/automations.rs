//! Automations and their executions.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::automations::{AutomationInput, ExecutionInput};
use recado_domain::shared::AutomationId;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::query::IdSlice;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved};
use crate::wiring::Services;

/// Body of `POST /api/automations` and `PUT /api/automations/<id>`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct AutomationBody {
    name: Option<String>,
    status: Option<String>,
}

/// Body of `POST /api/automations/<id>/executions`.
#[derive(Deserialize, Validate)]
pub(super) struct ExecutionsBody {
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
    Proved(tenant): Caller,
    IdSlice(slice): IdSlice,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.automations.list(&tenant, &slice).await?))
}

/// `POST /api/automations`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(input): Json<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::created(
        services.automations.create(&tenant, input.into()).await?,
    ))
}

/// `PUT /api/automations/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<AutomationId>,
    Json(input): Json<AutomationBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.automations.update(&tenant, id, input.into()).await?))
}

/// `POST /api/automations/<id>/executions`
pub(super) async fn record(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<AutomationId>,
    Json(body): Json<ExecutionsBody>,
) -> Result<HttpResponse, ApiError> {
    let executions = body.executions.unwrap_or_default();
    Ok(reply::ok(services.automations.record(&tenant, id, executions).await?))
}
