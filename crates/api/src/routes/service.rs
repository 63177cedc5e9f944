//! Health checks and the OpenAPI document.

use actix_web::HttpResponse;
use actix_web::web::{Bytes, Data};
use recado_domain::shared::StoreError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::readiness::Readiness;
use crate::web::operation::{OpenApiTag, Operation, custom, data};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::RunSubmitter;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Service",
    description: "Health checks and this OpenAPI document.",
};

/// The health of the service.
#[derive(Serialize, JsonSchema)]
struct Health {
    /// `ok` (liveness): the process runs. `ready` (readiness): the server accepts requests.
    #[schemars(example = &"ok")]
    status: &'static str,
}

/// The serialized OpenAPI document.
pub struct OpenApiDocument(pub Bytes);

/// `GET /healthz`: the process runs.
async fn health() -> HttpResponse {
    responses::ok(Health { status: "ok" })
}

pub(super) const HEALTH: Endpoint = endpoint!(health, {
    Operation::new(
        "Check liveness",
        "Returns 200 while the process runs. It does not check the database.",
    )
    .responds(data::<Health>("The process is alive."))
    .never(ErrorCode::Unavailable)
});

/// `GET /api/openapi.json`: the OpenAPI document, generated once for each process.
async fn openapi(document: Data<OpenApiDocument>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .body(document.0.clone())
}

pub(super) const OPENAPI: Endpoint = endpoint!(openapi, {
    let document = json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] });
    let example = json!({ "openapi": "3.1.0", "info": {}, "paths": {}, "components": {} });
    Operation::new("Get the OpenAPI document", "Returns this document in OpenAPI 3.1.")
        .responds(custom("application/json", "The document.", document).example(example))
        .never(ErrorCode::Unavailable)
});

/// `GET /readyz`: the database responds now or responded within the last second, it has every migration of this
/// version, and the server is not shutting down.
async fn ready(run_submitter: Data<RunSubmitter>, readiness: Data<Readiness>) -> Result<HttpResponse, ApiError> {
    if run_submitter.stopping() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    match readiness.pending_migrations().await {
        Ok(0) => Ok(responses::ok(Health { status: "ready" })),
        Ok(pending) => Err(ApiError::unavailable(format!("{pending} migrations are pending"))),
        Err(error) if matches!(*error, StoreError::Unavailable(_)) => Err(ApiError::unavailable(error)),
        Err(error) => Err(ApiError::internal(error)),
    }
}

pub(super) const READY: Endpoint = endpoint!(ready, {
    let description = "Returns 200 if the database responds and has every migration of this version, and the server is \
                not shutting down.";
    Operation::new("Check readiness", description)
        .responds(data::<Health>("The server accepts requests.").example(json!({ "status": "ready" })))
});
