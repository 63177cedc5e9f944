//! What the reference says of the service itself.

use serde_json::json;

use super::operation::{Operation, data, written};
use super::{ErrorCode, OpenApiTag};
use crate::routes::service::Health;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Service",
    description: "Is the process alive, may it be given work, and what does it offer.",
};

pub(crate) fn health() -> Operation {
    Operation::new(
        "Is the process alive",
        "Answers as long as the process does; the database is not asked.",
    )
    .answers(data::<Health>("The process answers."))
    .never(ErrorCode::Unavailable)
}

pub(crate) fn ready() -> Operation {
    let description = "Answers 200 when the database answers and has every migration of this version, and the server \
                is not about to stop.";
    Operation::new("May the server be given work", description)
        .answers(data::<Health>("The server may be given work.").example(json!({ "status": "ready" })))
}

pub(crate) fn openapi() -> Operation {
    let document = json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] });
    let example = json!({ "openapi": "3.1.0", "info": {}, "paths": {}, "components": {} });
    Operation::new("Get the reference", "This document: OpenAPI 3.1.")
        .answers(written("application/json", "The document.", document).example(example))
        .never(ErrorCode::Unavailable)
}
