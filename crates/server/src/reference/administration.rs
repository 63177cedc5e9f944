//! OpenAPI documentation of the operations of platform administrators.

use recado_domain::administration::{
    AccountDetail, AccountRow, AdministrationStats, ChurnDay, PlatformRevenueDay, PlatformRevenueOverview,
};
use recado_domain::shared::Page;
use serde_json::json;

use super::operation::{
    Body, Operation, Parameter, created, data, id, no_content, numbered_page, path_id, text, with_schema,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::administration::{
    AUDIT_LIMIT, Action, ActionResult, AdministeredAccount, ChangedAccount, DAYS, NewAccount, PlatformLogs, STATUS,
    SupportEntry, SupportExit, SupportReason, UserSignOut,
};
use crate::web::parameters::LIMIT;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Platform",
    description: "Operations of platform administrators: account management, support mode and revenue reports.",
};

const ID: &str = "The account's id.";

const SLUG: &str = "The slug is taken, or the plan does not exist.";

pub(crate) fn list() -> Operation {
    let search = "Only accounts whose name or owner's e-mail address contains this text (case-insensitive).";
    Operation::new(
        "List accounts",
        "Returns all accounts with numbered pages, newest first.",
    )
    .takes_all(numbered_page(&LIMIT))
    .takes(text("search", search).example("loja"))
    .takes(text("plan", "Only accounts on this plan, by its id.").example("growth"))
    .takes(&STATUS)
    .responds(data::<Page<AccountRow>>("A page of accounts."))
}

pub(crate) fn create() -> Operation {
    let description =
        "Creates an account without members. If `owner_email` is given, that address is invited as owner.";
    Operation::new("Create an account as administrator", description)
        .body(Body::json::<NewAccount>())
        .responds(created::<AdministeredAccount<'static>>(
            "The account, and the owner's invite if `owner_email` was given.",
        ))
        .refuses(ErrorCode::Invalid, SLUG)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get any account", "Returns one account with its members and totals.")
        .takes(path_id(ID))
        .responds(data::<AccountDetail>("The account."))
}

pub(crate) fn update() -> Operation {
    let description =
        "Updates an account: absent fields are kept; null clears `logo_url`. The subscription is not changed.";
    Operation::new("Update any account", description)
        .takes(path_id(ID))
        .body(Body::change::<ChangedAccount>().example(json!({ "name": "Loja Centro", "logo_url": null })))
        .responds(
            data::<AdministeredAccount<'static>>("The updated account.")
                .example(json!({ "name": "Loja Centro", "logo_url": null })),
        )
        .refuses(ErrorCode::Invalid, SLUG)
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the account. Try again.",
        )
}

pub(crate) fn delete() -> Operation {
    let description =
        "Permanently deletes an account: all its data, its files, and its subscription at the payment gateway.";
    Operation::new("Delete any account", description)
        .takes(path_id(ID))
        .responds(no_content(
            "The account is deleted. Its remaining data is removed in the background.",
        ))
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn act() -> Operation {
    let description = "Suspends an account (all requests are refused and its campaign runs pause), reactivates it, or \
                changes its plan and its subscription's plan.";
    Operation::new("Suspend, reactivate or change the plan of an account", description)
        .takes(path_id(ID))
        .body(Body::json::<Action>().example(json!({ "action": "change_plan", "plan": "growth" })))
        .responds(data::<ActionResult>("The action that was taken."))
        .refuses(
            ErrorCode::Invalid,
            "`action` is unknown, or `plan` is missing or does not exist.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the subscription. Try again.",
        )
}

pub(crate) fn start_support() -> Operation {
    let description = "Starts support mode: gives the administrator the role `admin` in an account for four hours. The \
                administrator and the reason are recorded in the account's audit log. Sets the cookies of support mode \
                and of the active account.";
    Operation::new("Start support mode", description)
        .takes(path_id(ID))
        .body(Body::json::<SupportReason>().optional())
        .responds(data::<SupportEntry>("The account, which is now active."))
}

pub(crate) fn stop_support() -> Operation {
    let description = "Ends support mode and makes the previous account active again. Clears the cookie of support \
                mode and sets the cookie of the active account.";
    Operation::new("Stop support mode", description)
        .responds(data::<SupportExit>("The account that is active again."))
        .refuses(
            ErrorCode::Internal,
            "The caller is not in support mode: the cookie is missing.",
        )
}

pub(crate) fn stats() -> Operation {
    Operation::new("Get platform totals", "Returns totals over all accounts.")
        .responds(data::<AdministrationStats>("The totals."))
}

pub(crate) fn revenue() -> Operation {
    Operation::new(
        "Get subscription revenue",
        "Returns the revenue of the current subscriptions of all accounts.",
    )
    .responds(data::<PlatformRevenueOverview>("The revenue."))
}

pub(crate) fn daily_revenue() -> Operation {
    Operation::new(
        "Report daily subscription revenue",
        "Returns the payments received on each day, oldest day first.",
    )
    .takes(&DAYS)
    .responds(data::<Vec<PlatformRevenueDay>>("The days."))
}

pub(crate) fn churn() -> Operation {
    Operation::new(
        "Report daily churn",
        "Returns the subscriptions that ended on each day, oldest day first.",
    )
    .takes(&DAYS)
    .responds(data::<Vec<ChurnDay>>("The days."))
}

pub(crate) fn sign_out() -> Operation {
    let description = "Ends all sessions of a user on every device, and their support mode. Within a second every server \
                refuses tokens that were issued to the user before. API keys stay valid. The platform audit log \
                records it.";
    Operation::new("Sign a user out everywhere", description)
        .takes(path_id("The user's id."))
        .responds(data::<UserSignOut>("The user's sessions have ended."))
}

fn time(name: &'static str, description: &'static str) -> Parameter {
    with_schema(name, description, json!({ "type": "string", "format": "date-time" }))
}

pub(crate) fn audit_logs() -> Operation {
    let description = "Returns what platform administrators changed, with numbered pages, newest first. Every changing \
                operation of administrators leaves one entry, which commits with the change and survives the account. \
                No operation changes or deletes an entry.";
    Operation::new("List platform audit entries", description)
        .takes_all(numbered_page(&AUDIT_LIMIT))
        .takes(
            text(
                "action",
                "Only entries with this action: `create`, `update`, `delete`, `login` or another.",
            )
            .example("update"),
        )
        .takes(
            text(
                "entity_type",
                "Only entries about this type: `account`, `account_action`, `support_mode`, `user_sessions` or another.",
            )
            .example("account_action"),
        )
        .takes(id("account_id", "Only entries about this account."))
        .takes(id("user_id", "Only entries of this administrator."))
        .takes(time("since", "Only entries of this time or later.").example("2026-01-01T00:00:00Z"))
        .takes(time("until", "Only entries of this time or earlier.").example("2027-01-01T00:00:00Z"))
        .responds(data::<PlatformLogs>("A page of entries.").example(json!({ "total": 1, "page": 1 })))
}
