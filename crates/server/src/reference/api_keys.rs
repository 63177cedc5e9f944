//! What the reference says of API keys.

use recado_domain::api_keys::ApiKey;

use super::operation::{Body, Operation, created, data, gone, id_of};
use super::{Fault, Tag};
use crate::routes::api_keys::{MadeKey, NewKey};

pub(crate) const TAG: Tag = Tag {
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
    .answers(created::<MadeKey<'_>>("The key, whole."))
    .refuses(Fault::Invalid, "The account has as many keys as it may have.")
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete an API key",
        "Deletes a key: it is refused at once, and for good.",
    )
    .takes(id_of("The id of the key."))
    .answers(gone("The key is deleted."))
}
