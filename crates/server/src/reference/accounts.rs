//! What the reference says of accounts.

use serde_json::json;

use super::operation::{Answer, Body, Operation, created, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::accounts::{NewAccount, OwnAccount, OwnAccounts, SwitchTo};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Accounts",
    description: "The accounts of a person: those they belong to, a new one, another one.",
};

const COOKIE: &str = "`svc-active-account-id`, which names the account for a year.";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List my accounts",
        "The accounts that the caller is a member of, and which one is active.",
    )
    .answers(data::<OwnAccounts>("The accounts.").example(json!({ "support_mode": null })))
}

pub(crate) fn create() -> Operation {
    let description = "Creates an account with the caller as its owner, on the plan `free`, and makes it the active \
                one. A slug that is taken gets a number.";
    Operation::new("Create an account", description)
        .body(Body::json::<NewAccount>())
        .answers(with_cookie(created::<OwnAccount>("The new account.").example(json!({
            "role": "owner", "account": { "logo_url": null },
        }))))
}

pub(crate) fn switch() -> Operation {
    Operation::new(
        "Switch to an account",
        "Makes another account of the caller the active one.",
    )
    .body(Body::json::<SwitchTo>())
    .answers(with_cookie(data::<OwnAccount>("The account, active now.")))
    .refuses(
        ErrorCode::Auth,
        "Here also: the caller is no member of the account, or it is suspended.",
    )
}

fn with_cookie(answer: Answer) -> Answer {
    answer.header("Set-Cookie", COOKIE, json!({ "type": "string" }))
}
