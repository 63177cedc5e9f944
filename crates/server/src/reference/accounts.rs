//! OpenAPI documentation of accounts.

use serde_json::json;

use super::operation::{Body, Operation, ResponseDoc, created, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::accounts::{NewAccount, OwnAccount, OwnAccounts, SignOut, SwitchTo};

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
        .refuses(
            ErrorCode::Invalid,
            "The caller owns as many accounts as the operator allows (100 by default).",
        )
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

pub(crate) fn sign_out_everywhere() -> Operation {
    let description = "Ends all sessions of the caller on every device, and their support mode. Within a second every \
                server refuses tokens that were issued before, also the token of this request. Notification streams \
                of these sessions close. API keys stay valid. Sign in again at the identity provider for a new token.";
    let cookies = "Removes `svc-active-account-id` and `svc-support-mode`.";
    Operation::new("Sign out everywhere", description)
        .responds(data::<SignOut>("The sessions have ended.").header(
            "Set-Cookie",
            cookies,
            json!({ "type": "string" }),
        ))
        .refuses(
            ErrorCode::Invalid,
            "The session token does not say when it was issued (`iat`), so the identity provider's later tokens would \
             be refused, too.",
        )
}

fn with_cookie(response: ResponseDoc) -> ResponseDoc {
    response.header("Set-Cookie", COOKIE, json!({ "type": "string" }))
}
