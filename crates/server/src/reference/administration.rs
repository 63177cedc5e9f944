//! What the reference says of what platform administrators do.

use recado_domain::accounts::AccountStatus;
use recado_domain::administration::{
    AccountDetail, AccountRow, AdministrationStats, ChurnDay, PlatformRevenueDay, PlatformRevenueOverview,
};
use recado_domain::shared::Page;
use serde_json::json;

use super::operation::{
    Body, Operation, Parameter, created, data, id_of, no_content, page_of, string_enum, text, whole,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::administration::{
    Action, ActionResult, AdministeredAccount, ChangedAccount, NewAccount, SupportEntry, SupportExit, SupportReason,
};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Platform",
    description: "What administrators of the platform do: over all accounts, with one, and inside one.",
};

const ID: &str = "The account's id.";

const SLUG: &str = "The slug is taken, or the plan is none of the catalogue.";

fn days() -> Parameter {
    whole("days", "How many days: today, and those before it.", (30, 365))
}

pub(crate) fn list() -> Operation {
    let search = "Only accounts whose name or owner's e-mail address holds this text, without regard to case.";
    Operation::new("List accounts", "All accounts, newest first, by numbered pages.")
        .takes_all(page_of((20, 100)))
        .takes(text("search", search).example("loja"))
        .takes(text("plan", "Only accounts on this plan, by its id.").example("growth"))
        .takes(string_enum::<AccountStatus>("status", "Only accounts in this status.").example("active"))
        .answers(data::<Page<AccountRow>>("A page of accounts."))
}

pub(crate) fn create() -> Operation {
    let description = "Makes an account that nobody is in. Whoever `owner_email` names is invited as its owner.";
    Operation::new("Create an account for somebody", description)
        .body(Body::json::<NewAccount>())
        .answers(created::<AdministeredAccount<'static>>(
            "The account, and its owner's invite where one was asked for.",
        ))
        .refuses(ErrorCode::Invalid, SLUG)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get any account", "One account with its people and a few numbers.")
        .takes(id_of(ID))
        .answers(data::<AccountDetail>("The account."))
}

pub(crate) fn update() -> Operation {
    let description =
        "Changes an account: absent fields are kept; null clears `logo_url`. Its subscription is left alone.";
    Operation::new("Change any account", description)
        .takes(id_of(ID))
        .body(Body::change::<ChangedAccount>().example(json!({ "name": "Loja Centro", "logo_url": null })))
        .answers(
            data::<AdministeredAccount<'static>>("The account as it is now.")
                .example(json!({ "name": "Loja Centro", "logo_url": null })),
        )
        .refuses(ErrorCode::Invalid, SLUG)
        .refuses(ErrorCode::Conflict, "It is being changed by another request.")
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes an account for good: every row, its files, and its subscription at the payment gateway.";
    Operation::new("Delete any account", description)
        .takes(id_of(ID))
        .answers(no_content(
            "The account is deleted; what is left of it is being removed.",
        ))
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn act() -> Operation {
    let description = "Suspends an account (it can do and send nothing; its runs pause), reactivates it, or changes \
                its plan and that of its subscription.";
    Operation::new("Act on an account", description)
        .takes(id_of(ID))
        .body(Body::json::<Action>().example(json!({ "action": "change_plan", "plan": "growth" })))
        .answers(data::<ActionResult>("What was done."))
        .refuses(
            ErrorCode::Invalid,
            "The action is unknown, or `plan` is missing or none of the catalogue.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Its subscription is being changed by another request.",
        )
}

pub(crate) fn start_support() -> Operation {
    let description = "Enters an account for four hours, with the role `admin`; who enters and why stands in its audit \
                log. Sets the cookies of support mode and of the active account.";
    Operation::new("Enter an account", description)
        .takes(id_of(ID))
        .body(Body::json::<SupportReason>().optional())
        .answers(data::<SupportEntry>("The account that was entered."))
}

pub(crate) fn stop_support() -> Operation {
    let description = "Leaves the account that was entered, and returns to the one before. Sets both cookies.";
    Operation::new("Leave an account", description)
        .answers(data::<SupportExit>("The account that is returned to."))
        .refuses(
            ErrorCode::Internal,
            "Also where there is no support mode to leave: its cookie is missing.",
        )
}

pub(crate) fn stats() -> Operation {
    Operation::new("Get the platform's figures", "The platform at a glance.")
        .answers(data::<AdministrationStats>("The figures."))
}

pub(crate) fn revenue() -> Operation {
    Operation::new(
        "Get the platform's revenue",
        "What subscriptions bring, as they are now.",
    )
    .answers(data::<PlatformRevenueOverview>("The figures."))
}

pub(crate) fn daily_revenue() -> Operation {
    Operation::new(
        "Report the platform's revenue",
        "What was paid, day by day, the oldest first.",
    )
    .takes(days())
    .answers(data::<Vec<PlatformRevenueDay>>("The days."))
}

pub(crate) fn churn() -> Operation {
    Operation::new(
        "Report churn",
        "Which subscriptions ended, day by day, the oldest first.",
    )
    .takes(days())
    .answers(data::<Vec<ChurnDay>>("The days."))
}
