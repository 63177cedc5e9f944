//! OpenAPI documentation of health checks and of this document.

use serde_json::json;

use super::operation::{Operation, custom, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::service::Health;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Service",
    description: "Health checks and this OpenAPI document.",
};

pub(crate) fn health() -> Operation {
    Operation::new(
        "Check liveness",
        "Returns 200 while the process runs. It does not check the database.",
    )
    .responds(data::<Health>("The process is alive."))
    .never(ErrorCode::Unavailable)
}

pub(crate) fn ready() -> Operation {
    let description = "Returns 200 if the database responds and has every migration of this version, and the server is \
                not shutting down.";
    Operation::new("Check readiness", description)
        .responds(data::<Health>("The server accepts requests.").example(json!({ "status": "ready" })))
}

pub(crate) fn openapi() -> Operation {
    let document = json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] });
    let example = json!({ "openapi": "3.1.0", "info": {}, "paths": {}, "components": {} });
    Operation::new("Get the OpenAPI document", "Returns this document in OpenAPI 3.1.")
        .responds(custom("application/json", "The document.", document).example(example))
        .never(ErrorCode::Unavailable)
}
