//! What the routes of billing answer.

use recado_domain::billing::{
    BillingType, Cancelled, Cents, Cycle, GatewayPayment, Overview, Payment, Plan, PlanLimits, Subscribed,
    Subscription, SubscriptionStatus, Usage, plan,
};
use recado_domain::shared::{Page, PaymentId, SubscriptionId, timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use time::{Date, OffsetDateTime};

#[derive(Serialize)]
pub(super) struct PlanShape {
    id: &'static str,
    name: &'static str,
    description: &'static str,
    price: PriceShape,
    limits: PlanLimits,
    features: &'static [&'static str],
    highlighted: bool,
}

#[derive(Serialize)]
struct PriceShape {
    monthly: Cents,
    yearly: Cents,
    monthly_formatted: String,
    yearly_formatted: String,
}

impl From<&Plan> for PlanShape {
    fn from(plan: &Plan) -> Self {
        let (monthly, yearly) = (plan.price(Cycle::Monthly), plan.price(Cycle::Yearly));
        Self {
            id: plan.id,
            name: plan.name,
            description: plan.description,
            price: PriceShape {
                monthly,
                yearly,
                monthly_formatted: monthly.to_string(),
                yearly_formatted: yearly.to_string(),
            },
            limits: plan.limits,
            features: plan.features,
            highlighted: plan.highlighted,
        }
    }
}

#[derive(Serialize)]
pub(super) struct SubscriptionShape<'a> {
    id: SubscriptionId,
    plan: &'a str,
    cycle: Cycle,
    status: SubscriptionStatus,
    billing_type: BillingType,
    value: Cents,
    value_formatted: String,
    billing_email: Option<&'a str>,
    gateway_customer_id: Option<&'a str>,
    gateway_subscription_id: Option<&'a str>,
    #[serde(with = "timestamp::option")]
    current_period_start: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    current_period_end: Option<OffsetDateTime>,
    #[serde(with = "timestamp::option")]
    cancelled_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
    #[serde(with = "timestamp")]
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a Subscription> for SubscriptionShape<'a> {
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

/// The answer to a subscribe.
#[derive(Serialize)]
pub(super) struct SubscribedShape<'a> {
    subscription: SubscriptionShape<'a>,
    gateway_subscription_id: Option<&'a str>,
    status: String,
    payment_data: PaymentDataShape<'a>,
}

#[derive(Serialize)]
struct PaymentDataShape<'a> {
    #[serde(rename = "type")]
    kind: String,
    payment_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pix_qr_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pix_payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", with = "timestamp::option")]
    pix_expires_at: Option<OffsetDateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boleto_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boleto_line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invoice_url: Option<&'a str>,
}

impl<'a> From<&'a Subscribed> for SubscribedShape<'a> {
    fn from(subscribed: &'a Subscribed) -> Self {
        let (row, data) = (&subscribed.subscription, &subscribed.payment_data);
        let payment = data.payment.as_ref();
        Self {
            subscription: SubscriptionShape::from(row),
            gateway_subscription_id: row.gateway_subscription_id.as_deref(),
            status: row.status.as_str().to_uppercase(),
            payment_data: PaymentDataShape {
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

/// What the account has and uses.
#[derive(Serialize)]
pub(super) struct StandingShape<'a> {
    subscription: Option<SubscriptionShape<'a>>,
    plan: Option<Value>,
    usage: Usage,
}

impl<'a> From<&'a Overview> for StandingShape<'a> {
    fn from(overview: &'a Overview) -> Self {
        let subscription = overview.subscription.as_ref();
        let id = subscription.map_or(&overview.account_plan, |row| &row.plan);
        let plan = plan(id)
            .map(|plan| json!({ "id": plan.id, "name": plan.name, "limits": plan.limits, "features": plan.features }));
        Self {
            subscription: subscription.map(SubscriptionShape::from),
            plan,
            usage: overview.usage,
        }
    }
}

/// The answer to a cancellation.
pub(super) fn cancelled(cancelled: Cancelled) -> Value {
    json!({ "cancelled": true, "effective_until": cancelled.effective_until.map(timestamp::format) })
}

/// A page of the history: its items are called so.
#[derive(Serialize)]
pub(super) struct HistoryShape<'a> {
    items: Vec<HistoryRow<'a>>,
    total: i64,
    page: i64,
    limit: i64,
}

#[derive(Serialize)]
struct HistoryRow<'a> {
    id: PaymentId,
    gateway_payment_id: &'a str,
    billing_type: &'a str,
    value: Cents,
    value_formatted: String,
    status: &'a str,
    invoice_url: Option<&'a str>,
    bank_slip_url: Option<&'a str>,
    due_date: Option<String>,
    #[serde(with = "timestamp::option")]
    paid_at: Option<OffsetDateTime>,
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
            status: &payment.status,
            invoice_url: payment.invoice_url.as_deref(),
            bank_slip_url: payment.bank_slip_url.as_deref(),
            due_date: payment.due_date.as_ref().map(Date::to_string),
            paid_at: payment.paid_at,
            created_at: payment.created_at,
        }
    }
}

impl<'a> From<&'a Page<Payment>> for HistoryShape<'a> {
    fn from(page: &'a Page<Payment>) -> Self {
        Self {
            items: page.data.iter().map(HistoryRow::from).collect(),
            total: page.total,
            page: page.page,
            limit: page.limit,
        }
    }
}

/// A payment as it stands.
#[derive(Serialize)]
pub(super) struct PaymentShape<'a> {
    status: &'a str,
    billing_type: &'a str,
    invoice_url: Option<&'a str>,
}

impl<'a> From<&'a GatewayPayment> for PaymentShape<'a> {
    fn from(payment: &'a GatewayPayment) -> Self {
        Self {
            status: &payment.status,
            billing_type: &payment.billing_type,
            invoice_url: payment.invoice_url.as_deref(),
        }
    }
}
