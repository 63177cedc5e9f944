//! Response bodies of billing.

use recado_domain::billing::{
    BillingType, Cancelled, Cents, Cycle, GatewayPayment, Overview, Payment, Plan, PlanChange, PlanLimits, Subscribed,
    Subscription, SubscriptionStatus, Usage, plan,
};
use recado_domain::shared::schema::{Day, Timestamp};
use recado_domain::shared::{Page, PaymentId, SubscriptionId, timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use time::{Date, OffsetDateTime};

use crate::web::responses::response_type;

response_type! {
    /// The limits of a plan.
    #[serde(rename_all = "camelCase")]
    #[schemars(rename = "PlanLimits")]
    struct PlanLimitsResponse from limits: PlanLimits {
        /// Maximum number of contacts.
        #[schemars(example = 5000)]
        contacts: i64,
        /// Maximum number of outbound messages in a calendar month (UTC).
        #[schemars(example = 5000)]
        messages_per_month: i64,
        /// Maximum number of automations.
        #[schemars(example = 5)]
        automations: i64,
        /// Maximum number of team members.
        #[schemars(example = 5)]
        team_members: i64,
        /// Maximum number of connected WhatsApp numbers.
        #[schemars(example = 1)]
        whatsapp_numbers: i64,
    }
}

/// A plan with its price.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub(crate) struct PlanResponse {
    /// The plan's id.
    #[schemars(example = &"starter")]
    id: &'static str,
    /// The plan's name.
    #[schemars(example = &"Starter")]
    name: &'static str,
    /// A description of the plan's target group.
    #[schemars(example = &"For a small team")]
    description: &'static str,
    /// The prices of the plan.
    price: PriceResponse,
    /// The limits of the plan.
    limits: PlanLimitsResponse,
    /// Descriptions of the plan's features for people.
    #[schemars(with = "Vec<String>", example = ["Campaigns", "Automations"])]
    features: &'static [&'static str],
    /// Whether the plan is highlighted in the user interface.
    highlighted: bool,
}

/// The prices of a plan.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlanPrice")]
struct PriceResponse {
    /// The monthly price in cents of BRL.
    #[schemars(example = 9700)]
    monthly: Cents,
    /// The yearly price in cents of BRL.
    #[schemars(example = 97000)]
    yearly: Cents,
    /// The formatted monthly price.
    #[schemars(example = &"R$\u{a0}97,00")]
    monthly_formatted: String,
    /// The formatted yearly price.
    #[schemars(example = &"R$\u{a0}970,00")]
    yearly_formatted: String,
}

impl From<&Plan> for PlanResponse {
    fn from(plan: &Plan) -> Self {
        let (monthly, yearly) = (plan.price(Cycle::Monthly), plan.price(Cycle::Yearly));
        Self {
            id: plan.id,
            name: plan.name,
            description: plan.description,
            price: PriceResponse {
                monthly,
                yearly,
                monthly_formatted: monthly.to_string(),
                yearly_formatted: yearly.to_string(),
            },
            limits: plan.limits.into(),
            features: plan.features,
            highlighted: plan.highlighted,
        }
    }
}

/// An account's subscription to a plan.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Subscription")]
struct SubscriptionResponse<'a> {
    /// The subscription's id.
    id: SubscriptionId,
    /// The id of the plan.
    #[schemars(example = &"starter")]
    plan: &'a str,
    /// The billing cycle.
    cycle: Cycle,
    /// The status of the subscription.
    status: SubscriptionStatus,
    /// The payment method.
    billing_type: BillingType,
    /// The price of one billing period in cents of BRL.
    #[schemars(example = 9700)]
    value: Cents,
    /// The formatted amount.
    #[schemars(example = &"R$\u{a0}97,00")]
    value_formatted: String,
    /// The e-mail address for invoices; null if none was given.
    #[schemars(example = &"financeiro@example.com")]
    billing_email: Option<&'a str>,
    /// The payment gateway's id of the customer; null until the gateway has created it.
    #[schemars(example = &"cus_000005219613")]
    gateway_customer_id: Option<&'a str>,
    /// The payment gateway's id of the subscription; null until the gateway has created it.
    #[schemars(example = &"sub_VXJBYgP2u0eO")]
    gateway_subscription_id: Option<&'a str>,
    /// The start of the current period; null before the first payment.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    current_period_start: Option<OffsetDateTime>,
    /// The end of the current period; null before the first payment.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    current_period_end: Option<OffsetDateTime>,
    /// The time of the cancellation; null if the subscription is not cancelled.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    cancelled_at: Option<OffsetDateTime>,
    /// The time at which the subscription was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
    /// The time at which the subscription was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a Subscription> for SubscriptionResponse<'a> {
    fn from(row: &'a Subscription) -> Self {
        Self {
            id: row.id,
            plan: &row.plan,
            cycle: row.cycle,
            status: row.status,
            billing_type: row.billing_type,
            value: row.value,
            value_formatted: row.value.to_string(),
            billing_email: row.billing_email.as_deref(),
            gateway_customer_id: row.gateway_customer_id.as_deref(),
            gateway_subscription_id: row.gateway_subscription_id.as_deref(),
            current_period_start: row.current_period_start,
            current_period_end: row.current_period_end,
            cancelled_at: row.cancelled_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// A new subscription with the data of its first payment.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewSubscription")]
pub(crate) struct SubscribedResponse<'a> {
    /// The subscription.
    subscription: SubscriptionResponse<'a>,
    /// The payment gateway's id of the subscription; null until it is known.
    #[schemars(example = &"sub_VXJBYgP2u0eO")]
    gateway_subscription_id: Option<&'a str>,
    /// `ACTIVE` if a card was charged, otherwise `PENDING` until the first payment is received.
    #[schemars(extend("enum" = ["ACTIVE", "PENDING"]))]
    status: String,
    /// The data of the first payment.
    payment_data: PaymentDataResponse<'a>,
}

/// Payment data. Fields that the payment gateway did not return are absent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PaymentData")]
struct PaymentDataResponse<'a> {
    /// The payment method.
    #[schemars(extend("enum" = ["pix", "boleto", "credit_card"]))]
    #[serde(rename = "type")]
    kind: String,
    /// The payment gateway's id of the payment; null until it is known.
    #[schemars(example = &"pay_080225913252")]
    payment_id: Option<&'a str>,
    /// Pix: the QR code, as a PNG image in base64.
    #[schemars(example = &"iVBORw0KGgoAAAANSUhEUgAAAYsAAAGLCAIAAAC5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pix_qr_code: Option<&'a str>,
    /// Pix: the code to copy and paste.
    #[schemars(example = &"00020126580014br.gov.bcb.pix0136b76aa9c2-2ec4-4110-954e-ebfe34f05b61")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pix_payload: Option<&'a str>,
    /// Pix: the time at which the code expires.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(skip_serializing_if = "Option::is_none", with = "timestamp::option")]
    pix_expires_at: Option<OffsetDateTime>,
    /// Boleto: the URL of the slip.
    #[schemars(example = &"https://gateway.example.com/b/pdf/080225913252")]
    #[serde(skip_serializing_if = "Option::is_none")]
    boleto_url: Option<&'a str>,
    /// Boleto: the digitable line.
    #[schemars(example = &"00190000090275928800021932978170187890000005000")]
    #[serde(skip_serializing_if = "Option::is_none")]
    boleto_line: Option<&'a str>,
    /// The URL of the invoice page.
    #[schemars(example = &"https://gateway.example.com/i/080225913252")]
    #[serde(skip_serializing_if = "Option::is_none")]
    invoice_url: Option<&'a str>,
}

impl<'a> From<&'a Subscribed> for SubscribedResponse<'a> {
    fn from(subscribed: &'a Subscribed) -> Self {
        let (row, data) = (&subscribed.subscription, &subscribed.payment_data);
        let payment = data.payment.as_ref();
        Self {
            subscription: SubscriptionResponse::from(row),
            gateway_subscription_id: row.gateway_subscription_id.as_deref(),
            status: row.status.as_str().to_uppercase(),
            payment_data: PaymentDataResponse {
                kind: row.billing_type.as_str().to_lowercase(),
                payment_id: payment.map(|payment| payment.id.as_str()),
                pix_qr_code: data.pix_qr_code.as_deref(),
                pix_payload: data.pix_payload.as_deref(),
                pix_expires_at: data.pix_expires_at,
                boleto_url: payment.and_then(|payment| payment.bank_slip_url.as_deref()),
                boleto_line: data.boleto_line.as_deref(),
                invoice_url: payment.and_then(|payment| payment.invoice_url.as_deref()),
            },
        }
    }
}

/// The account's subscription, plan and usage.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriptionOverview")]
pub(crate) struct SubscriptionOverviewResponse<'a> {
    /// The live subscription; null if there is none.
    subscription: Option<SubscriptionResponse<'a>>,
    /// The plan of the subscription, or else of the account, or a better plan that an administrator granted. Null if
    /// the plan no longer exists.
    plan: Option<PlanSummary>,
    /// The account's usage of the plan's limits.
    usage: UsageResponse,
}

response_type! {
    /// An account's usage of what plans limit.
    #[schemars(rename = "Usage")]
    struct UsageResponse from usage: Usage {
        /// Number of contacts.
        #[schemars(example = 1840)]
        contacts: i64,
        /// Number of outbound messages that the account sent in the current calendar month (UTC).
        #[schemars(example = 920)]
        messages: i64,
        /// Number of automations.
        #[schemars(example = 2)]
        automations: i64,
        /// Number of team members.
        #[schemars(example = 3)]
        team: i64,
        /// Number of connected WhatsApp numbers.
        #[schemars(example = 1)]
        whatsapp: i64,
    }
}

/// A plan without price.
#[derive(Serialize, JsonSchema)]
struct PlanSummary {
    /// The plan's id.
    #[schemars(example = &"starter")]
    id: &'static str,
    /// The plan's name.
    #[schemars(example = &"Starter")]
    name: &'static str,
    /// The limits of the plan.
    limits: PlanLimitsResponse,
    /// Descriptions of the plan's features for people.
    #[schemars(with = "Vec<String>", example = ["Campaigns", "Automations"])]
    features: &'static [&'static str],
}

impl From<&Plan> for PlanSummary {
    fn from(plan: &Plan) -> Self {
        Self {
            id: plan.id,
            name: plan.name,
            limits: plan.limits.into(),
            features: plan.features,
        }
    }
}

impl<'a> From<&'a Overview> for SubscriptionOverviewResponse<'a> {
    fn from(overview: &'a Overview) -> Self {
        Self {
            subscription: overview.subscription.as_ref().map(SubscriptionResponse::from),
            plan: plan(overview.plan()).map(PlanSummary::from),
            usage: overview.usage.into(),
        }
    }
}

/// A changed subscription.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PlanChange")]
pub(crate) struct PlanChangeResponse<'a> {
    /// The changed subscription.
    subscription: SubscriptionResponse<'a>,
    /// The id of the previous plan.
    #[schemars(example = &"starter")]
    previous_plan: &'a str,
    /// The id of the new plan.
    #[schemars(example = &"growth")]
    new_plan: &'a str,
}

impl<'a> From<&'a PlanChange> for PlanChangeResponse<'a> {
    fn from(change: &'a PlanChange) -> Self {
        Self {
            subscription: SubscriptionResponse::from(&change.subscription),
            previous_plan: &change.previous_plan,
            new_plan: &change.new_plan,
        }
    }
}

/// A cancelled subscription.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CancelledSubscription")]
pub(crate) struct CancelledResponse {
    /// Always true.
    #[schemars(example = true)]
    cancelled: bool,
    /// The time until which the account keeps its plan: the end of the paid period. Null if nothing was paid.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    effective_until: Option<OffsetDateTime>,
}

impl From<Cancelled> for CancelledResponse {
    fn from(cancelled: Cancelled) -> Self {
        Self {
            cancelled: true,
            effective_until: cancelled.effective_until,
        }
    }
}

/// The response to a callback.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Receipt {
    /// Always true.
    #[schemars(example = true)]
    pub(super) received: bool,
}

/// A page of payments.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PaymentPage")]
pub(crate) struct HistoryResponse<'a> {
    /// The payments, newest first.
    items: Vec<HistoryRow<'a>>,
    /// The exact total number of payments.
    total: i64,
    /// The page number, starting at 1.
    page: i64,
    /// The maximum number of payments on a page.
    #[schemars(example = 20)]
    limit: i64,
}

/// A payment of a subscription.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Payment")]
struct HistoryRow<'a> {
    /// The payment's id.
    id: PaymentId,
    /// The payment gateway's id of the payment.
    #[schemars(example = &"pay_080225913252")]
    gateway_payment_id: &'a str,
    /// The payment method as the gateway names it: `PIX`, `BOLETO`, `CREDIT_CARD` or another.
    #[schemars(example = &"PIX")]
    billing_type: &'a str,
    /// The amount in cents of BRL.
    #[schemars(example = 9700)]
    value: Cents,
    /// The formatted amount.
    #[schemars(example = &"R$\u{a0}97,00")]
    value_formatted: String,
    /// The payment's status as the gateway names it: `PENDING`, `CONFIRMED`, `RECEIVED`, `OVERDUE` or another.
    #[schemars(example = &"RECEIVED")]
    status: &'a str,
    /// The URL of the invoice page; null if there is none.
    #[schemars(example = &"https://gateway.example.com/i/080225913252")]
    invoice_url: Option<&'a str>,
    /// The URL of the boleto; null if there is none.
    #[schemars(example = &"https://gateway.example.com/b/pdf/080225913252")]
    bank_slip_url: Option<&'a str>,
    /// The due date; null if it is not known.
    #[schemars(with = "Option<Day>")]
    due_date: Option<String>,
    /// The time of the payment; null if it is not paid.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    paid_at: Option<OffsetDateTime>,
    /// The time at which Recado first received the payment.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
}

impl<'a> From<&'a Payment> for HistoryRow<'a> {
    fn from(payment: &'a Payment) -> Self {
        Self {
            id: payment.id,
            gateway_payment_id: &payment.gateway_payment_id,
            billing_type: &payment.billing_type,
            value: payment.value,
            value_formatted: payment.value.to_string(),
            status: payment.status.as_str(),
            invoice_url: payment.invoice_url.as_deref(),
            bank_slip_url: payment.bank_slip_url.as_deref(),
            due_date: payment.due_date.as_ref().map(Date::to_string),
            paid_at: payment.paid_at,
            created_at: payment.created_at,
        }
    }
}

impl<'a> From<&'a Page<Payment>> for HistoryResponse<'a> {
    fn from(page: &'a Page<Payment>) -> Self {
        Self {
            items: page.data.iter().map(HistoryRow::from).collect(),
            total: page.total,
            page: page.page,
            limit: page.limit,
        }
    }
}

/// The current status of a payment at the payment gateway.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PaymentStatus")]
pub(crate) struct PaymentResponse<'a> {
    /// The payment's status as the gateway names it: `PENDING`, `CONFIRMED`, `RECEIVED`, `OVERDUE` or another.
    #[schemars(example = &"PENDING")]
    status: &'a str,
    /// The payment method as the gateway names it: `PIX`, `BOLETO`, `CREDIT_CARD` or another.
    #[schemars(example = &"PIX")]
    billing_type: &'a str,
    /// The URL of the invoice page; null if there is none.
    #[schemars(example = &"https://gateway.example.com/i/080225913252")]
    invoice_url: Option<&'a str>,
}

impl<'a> From<&'a GatewayPayment> for PaymentResponse<'a> {
    fn from(payment: &'a GatewayPayment) -> Self {
        Self {
            status: payment.status.as_str(),
            billing_type: &payment.billing_type,
            invoice_url: payment.invoice_url.as_deref(),
        }
    }
}
