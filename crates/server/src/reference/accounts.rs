//! OpenAPI documentation of accounts.

use serde_json::json;

use super::operation::{Body, Operation, ResponseDoc, created, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::accounts::{NewAccount, OwnAccount, OwnAccounts, SwitchTo};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Accounts",
    description: "List, create and switch between the accounts of a user.",
};

const COOKIE: &str = "Sets `svc-active-account-id` to the account's id for one year.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List my accounts",
        "Returns the accounts that the caller is a member of, and which one is active.",
    )
    .responds(data::<OwnAccounts>("The accounts.").example(json!({ "support_mode": null })))
}

pub(crate) fn create() -> Operation {
    let description = "Creates an account on the plan `free` with the caller as its owner, and makes it the active \
                account. If the slug is taken, a number is appended.";
    Operation::new("Create an account", description)
        .body(Body::json::<NewAccount>())
        .responds(with_cookie(created::<OwnAccount>("The new account.").example(json!({
            "role": "owner", "account": { "logo_url": null },
        }))))
}

pub(crate) fn switch() -> Operation {
    Operation::new(
        "Switch to an account",
        "Makes another account of the caller the active account.",
    )
    .body(Body::json::<SwitchTo>())
    .responds(with_cookie(data::<OwnAccount>("The account, which is now active.")))
    .refuses(
        ErrorCode::Auth,
        "The caller is not a member of the account, or the account is suspended.",
    )
}

fn with_cookie(response: ResponseDoc) -> ResponseDoc {
    response.header("Set-Cookie", COOKIE, json!({ "type": "string" }))
}
