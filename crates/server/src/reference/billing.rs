//! What the reference says of billing.

use serde_json::{Value, json};

use super::operation::{Body, Operation, created, data, page_of, text, whole_body};
use super::{ErrorCode, OpenApiTag};
use crate::routes::billing::{
    CancelledResponse, HistoryResponse, PaymentResponse, PlanChangeBody, PlanChangeResponse, PlanResponse, Receipt,
    SubscribeBody, SubscribedResponse, SubscriptionOverviewResponse,
};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Billing",
    description: "Plans, the account's subscription, and its payments by Pix, boleto or credit card.",
};

const REFUSED: &str = "Or the payment gateway refused the input, for instance a card: `details.errors` has its own words, \
                       `details.fields` the field that they are about.";

const NONE: &str = "The account has no subscription, or one that has ended.";

const MEANWHILE: &str = "The subscription is being changed at the same time.";

pub(crate) fn plans() -> Operation {
    Operation::new("List plans", "The catalogue of plans, the smallest first.")
        .answers(data::<Vec<PlanResponse>>("The plans."))
        .never(ErrorCode::Unavailable)
}

pub(crate) fn subscribe() -> Operation {
    let description = "Subscribes the account to a paid plan, and tells how to pay: a Pix QR code, a boleto, or a card \
                that is charged. An account has one subscription at most that has not ended.";
    let body = json!({
        "plan": "starter", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "529.982.247-25",
        "billing_email": "financeiro@example.com",
    });
    let answer = json!({
        "status": "PENDING", "payment_data": { "type": "pix" },
        "subscription": pending(),
    });
    Operation::new("Subscribe to a plan", description)
        .body(Body::json::<SubscribeBody>().example(body))
        .answers(created::<SubscribedResponse<'_>>("The subscription, and how to pay.").example(answer))
        .refuses(ErrorCode::Invalid, "The account has a subscription that has not ended.")
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
}

/// A subscription that was not paid yet.
fn pending() -> Value {
    json!({
        "status": "pending", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null,
        "current_period_start": null, "current_period_end": null,
    })
}

/// One that was.
fn active() -> Value {
    json!({ "status": "active", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null })
}

pub(crate) fn subscription() -> Operation {
    let description = "What the account has and uses. Without a subscription, `subscription` is null and the plan is \
                the account's own.";
    Operation::new("Get the subscription", description).answers(
        data::<SubscriptionOverviewResponse<'_>>("Subscription, plan and usage.")
            .example(json!({ "subscription": active() })),
    )
}

pub(crate) fn change() -> Operation {
    let description = "Changes the plan, the cycle, or both. A smaller plan has to hold what the account has, but for \
                the messages of the month.";
    let answer = json!({
        "previous_plan": "starter", "new_plan": "growth",
        "subscription": { "plan": "growth", "value": 29_700, "value_formatted": "R$\u{a0}297,00",
            "status": "active", "billing_type": "PIX", "cycle": "MONTHLY", "cancelled_at": null },
    });
    Operation::new("Change the subscription", description)
        .body(Body::change::<PlanChangeBody>().example(json!({ "plan": "growth" })))
        .answers(data::<PlanChangeResponse<'_>>("The subscription as it is now.").example(answer))
        .refuses(ErrorCode::NotFound, NONE)
        .refuses(
            ErrorCode::Invalid,
            "The plan and cycle are the present ones, or the account has more than the plan allows.",
        )
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
}

pub(crate) fn cancel() -> Operation {
    let description = "Cancels the subscription. The account keeps its plan until the end of the period that was paid.";
    Operation::new("Cancel the subscription", description)
        .answers(data::<CancelledResponse>("The subscription is cancelled."))
        .refuses(ErrorCode::NotFound, NONE)
        .refuses(ErrorCode::Invalid, REFUSED)
        .refuses(ErrorCode::Conflict, MEANWHILE)
        .refuses(ErrorCode::Payment, "")
}

pub(crate) fn history() -> Operation {
    Operation::new(
        "List payments",
        "The payments of the account by numbered pages, newest first.",
    )
    .takes_all(page_of((20, 100)))
    .answers(data::<HistoryResponse<'_>>("A page of payments."))
}

pub(crate) fn payment_status() -> Operation {
    let description = "Asks the payment gateway how a payment of the account stands right now.";
    let id = "The payment gateway's id of the payment, as `payment_id` of a subscription or `gateway_payment_id` of the \
              history tells it.";
    Operation::new("Get a payment's status", description)
        .takes(text("payment_id", id).required().example("pay_080225913252"))
        .answers(data::<PaymentResponse<'_>>("The payment as it stands."))
        .refuses(ErrorCode::NotFound, "The payment is not known, or not the account's.")
        .refuses(ErrorCode::Payment, "")
}

pub(crate) fn callback() -> Operation {
    let description = "The payment gateway's callback. Once its token is right the answer is always the same: the \
                event is kept, then processed, and a repeated or older one changes nothing. Kinds with an effect: \
                `PAYMENT_CONFIRMED`, `PAYMENT_RECEIVED`, `PAYMENT_OVERDUE`, `SUBSCRIPTION_INACTIVATED`; others are \
                kept.";
    let token = "The token that was agreed with the gateway; its own name for the header, `asaas-access-token`, is taken, \
                 too.";
    let event = json!({
        "id": "evt_05b708f961d739ea7eba7e4db318f621", "event": "PAYMENT_CONFIRMED",
        "dateCreated": "2026-02-01 09:30:00",
        "payment": {
            "id": "pay_080225913252", "subscription": "sub_VXJBYgP2u0eO", "billingType": "PIX", "value": 97.0,
            "status": "CONFIRMED", "dueDate": "2026-02-01", "invoiceUrl": "https://gateway.example.com/i/080225913252",
            "bankSlipUrl": null,
        },
    });
    Operation::new("Receive an event of the payment gateway", description)
        .takes(text("gateway-access-token", token).in_header().example("agreed-token"))
        .body(
            Body::written("application/json", json!({ "type": "object" }))
                .example(event)
                .described("An event in the gateway's own form, at most 4 MiB. What cannot be read is kept, too."),
        )
        .answers(whole_body::<Receipt>("The event is received."))
        .refuses(ErrorCode::Auth, "Here: the token is missing or wrong.")
        .refuses(ErrorCode::Internal, "Here also: no token is configured.")
        .refuses(ErrorCode::Invalid, "The body ended before it was complete.")
        .never(ErrorCode::MediaType)
        .never(ErrorCode::Unavailable)
}
