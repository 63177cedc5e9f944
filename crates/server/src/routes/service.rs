//! Health checks and the OpenAPI document.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::shared::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::reference;
use crate::web::responses;
use crate::wiring::Services;

/// The health of the service.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok` (liveness): the process runs. `ready` (readiness): the server accepts requests.
    #[schemars(example = &"ok")]
    status: &'static str,
}

/// `GET /healthz`: the process runs.
pub(super) async fn health() -> HttpResponse {
    responses::ok(Health { status: "ok" })
}

/// `GET /api/openapi.json`: the OpenAPI document, generated once for each process.
pub(super) async fn openapi() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .body(reference::bytes())
}

/// `GET /readyz`: the database responds now or responded within the last second, it has every migration of this
/// version, and the server is not shutting down.
pub(super) async fn ready(services: Data<Services>) -> Result<HttpResponse, ApiError> {
    if services.shared.run_submitter.stopping() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    match services.shared.readiness.pending_migrations().await {
        Ok(0) => Ok(responses::ok(Health { status: "ready" })),
        Ok(pending) => Err(ApiError::unavailable(format!("{pending} migrations are pending"))),
        Err(error) if matches!(*error, StoreError::Unavailable(_)) => Err(ApiError::unavailable(error)),
        Err(error) => Err(ApiError::internal(error)),
    }
}
