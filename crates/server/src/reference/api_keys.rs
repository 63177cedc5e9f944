//! What the reference says of API keys.

use recado_domain::api_keys::ApiKey;

use super::operation::{Body, Operation, created, data, id_of, no_content};
use super::{ErrorCode, OpenApiTag};
use crate::routes::api_keys::{CreatedApiKey, NewKey};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "API keys",
    description: "Keys with which programs act in the account, with the role `member`.",
};

pub(crate) fn list() -> Operation {
    Operation::new(
        "List API keys",
        "Every key of the account, newest first, without the keys themselves.",
    )
    .answers(data::<Vec<ApiKey>>("The keys."))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create an API key",
        "Makes a key. It is told whole in this answer alone, and kept nowhere.",
    )
    .body(Body::json::<NewKey>())
    .answers(created::<CreatedApiKey<'_>>("The key, whole."))
    .refuses(ErrorCode::Invalid, "The account has as many keys as it may have.")
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete an API key",
        "Deletes a key: it is refused at once, and for good.",
    )
    .takes(id_of("The id of the key."))
    .answers(no_content("The key is deleted."))
}
