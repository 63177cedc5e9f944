//! OpenAPI documentation of API keys.

use recado_domain::api_keys::ApiKey;

use super::operation::{Body, Operation, created, data, no_content, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::api_keys::{CreatedApiKey, NewKey};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "API keys",
    description: "Keys that give programs access to the account with the role `member`.",
};

pub(crate) fn list() -> Operation {
    Operation::new(
        "List API keys",
        "Returns the account's keys without their secret part, newest first.",
    )
    .responds(data::<Vec<ApiKey>>("The keys."))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create an API key",
        "Creates a key. Only this response contains the complete key; it is not stored.",
    )
    .body(Body::json::<NewKey>())
    .responds(created::<CreatedApiKey<'_>>("The new key, with the complete key."))
    .refuses(ErrorCode::Invalid, "The account has reached its limit of API keys.")
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete an API key",
        "Permanently deletes a key. Requests with it are refused immediately.",
    )
    .takes(path_id("The key's id."))
    .responds(no_content("The key is deleted."))
}
