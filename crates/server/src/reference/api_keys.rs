//! OpenAPI documentation of API keys.

use recado_domain::api_keys::ApiKey;

use serde_json::json;

use super::operation::{Body, Operation, created, data, no_content, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::api_keys::{CreatedApiKey, NewKey, RotateBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "API keys",
    description: "Keys that give programs access to the account: the role `member`, or the part of it that the key's \
        `scopes` name. `x-scope` of an operation is the scope that a key needs for it; without that scope the response \
        is 403, and `details.required_scope` names it. A key that has expired, or whose `allowed_cidrs` do not \
        contain the client address, gets the 401 of an unknown key. Changes act on requests that begin a second later.",
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
        "Creates a key. Only this response contains the complete key; it is not stored. A key without `scopes`, \
         `expires_at` and `allowed_cidrs` has every right of a member, from everywhere, without an end. A notification \
         names who created it.",
    )
    .body(Body::json_with::<NewKey>(&["name"]))
    .responds(created::<CreatedApiKey>("The new key, with the complete key."))
    .refuses(ErrorCode::Invalid, "The account has reached its limit of API keys.")
    .refuses(
        ErrorCode::Invalid,
        "A scope names a template that the account does not have.",
    )
}

pub(crate) fn update() -> Operation {
    Operation::new(
        "Update an API key",
        "Changes name, scopes, expiry or networks of a key. Absent fields keep their value, and the secret stays the \
         same. An `expires_at` in the future makes an expired key work again.",
    )
    .takes(path_id("The key's id."))
    .body(Body::change::<NewKey>().example(json!({ "scopes": ["contacts:read"], "allowed_cidrs": ["203.0.113.0/24"] })))
    .responds(data::<ApiKey>("The changed key."))
    .refuses(ErrorCode::Conflict, "Other requests keep changing the key.")
    .refuses(
        ErrorCode::Invalid,
        "A scope names a template that the account does not have.",
    )
}

pub(crate) fn rotate() -> Operation {
    Operation::new(
        "Rotate an API key",
        "Gives a key a new secret under the same id, name and scopes. Only this response contains the complete key. The \
         current secret works until `previous_valid_until`; an older one ends at once. The same `Idempotency-Key` \
         returns the same `full_key`.",
    )
    .takes(path_id("The key's id."))
    .body(Body::json::<RotateBody>().optional())
    .responds(data::<CreatedApiKey>("The key, with the complete new key."))
    .refuses(ErrorCode::Precondition, "The key has expired (reason `expired`).")
    .refuses(ErrorCode::Conflict, "Other requests keep changing the key.")
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete an API key",
        "Permanently deletes a key. Requests with it are refused immediately.",
    )
    .takes(path_id("The key's id."))
    .responds(no_content("The key is deleted."))
}
