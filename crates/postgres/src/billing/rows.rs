//! Row types of subscriptions and payments.

use diesel::pg::Pg;
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use recado_domain::billing::{Cents, Payment, PendingIntent, Subscription};
use recado_domain::shared::StoreError;
use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{corrupt, parse_enum};
use crate::schema::{billing_history, subscriptions};

macro_rules! subscription_columns {
    () => {
        "account_id, id, plan, cycle, status, billing_type, value, billing_email, gateway_customer_id,
         gateway_subscription_id, current_period_start, current_period_end, cancelled_at, inactivated_at, lapsed_at,
         period_granted, anchor_day, check_at, last_event_id, intent, intent_until, intent_check_at, version, created_at, updated_at"
    };
}
pub(super) use subscription_columns;

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = subscriptions, check_for_backend(Pg))]
pub(super) struct SubscriptionRow {
    account_id: Uuid,
    id: Uuid,
    plan: String,
    cycle: String,
    status: String,
    billing_type: String,
    value: i64,
    billing_email: Option<String>,
    gateway_customer_id: Option<String>,
    gateway_subscription_id: Option<String>,
    current_period_start: Option<OffsetDateTime>,
    current_period_end: Option<OffsetDateTime>,
    cancelled_at: Option<OffsetDateTime>,
    inactivated_at: Option<OffsetDateTime>,
    lapsed_at: Option<OffsetDateTime>,
    period_granted: bool,
    anchor_day: Option<i32>,
    check_at: Option<OffsetDateTime>,
    last_event_id: Option<Uuid>,
    intent: Option<Value>,
    intent_until: Option<OffsetDateTime>,
    intent_check_at: Option<OffsetDateTime>,
    version: i64,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl TryFrom<SubscriptionRow> for Subscription {
    type Error = StoreError;

    fn try_from(row: SubscriptionRow) -> Result<Self, StoreError> {
        let pending = row.intent.zip(row.intent_until).map(|(intent, until)| {
            let intent = serde_json::from_value(intent).map_err(corrupt)?;
            let check_at = row.intent_check_at.unwrap_or(until);
            Ok::<_, StoreError>(PendingIntent {
                intent,
                until,
                check_at,
            })
        });
        Ok(Self {
            account_id: row.account_id.into(),
            id: row.id.into(),
            plan: row.plan,
            cycle: parse_enum(&row.cycle)?,
            status: parse_enum(&row.status)?,
            billing_type: parse_enum(&row.billing_type)?,
            value: Cents(row.value),
            billing_email: row.billing_email,
            gateway_customer_id: row.gateway_customer_id,
            gateway_subscription_id: row.gateway_subscription_id,
            current_period_start: row.current_period_start,
            current_period_end: row.current_period_end,
            cancelled_at: row.cancelled_at,
            inactivated_at: row.inactivated_at,
            lapsed_at: row.lapsed_at,
            period_granted: row.period_granted,
            anchor_day: row.anchor_day.map(u8::try_from).transpose().map_err(corrupt)?,
            check_at: row.check_at,
            last_event: row.last_event_id.map(Into::into),
            pending: pending.transpose()?,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = billing_history, check_for_backend(Pg))]
pub(super) struct PaymentRow {
    id: Uuid,
    subscription_id: Uuid,
    gateway_payment_id: String,
    billing_type: String,
    value: i64,
    cycle: Option<String>,
    status: String,
    invoice_url: Option<String>,
    bank_slip_url: Option<String>,
    due_date: Option<Date>,
    paid_at: Option<OffsetDateTime>,
    confirmed: bool,
    credited: bool,
    last_event_at: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
}

impl TryFrom<PaymentRow> for Payment {
    type Error = StoreError;

    fn try_from(row: PaymentRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            subscription_id: row.subscription_id.into(),
            gateway_payment_id: row.gateway_payment_id,
            billing_type: row.billing_type,
            value: Cents(row.value),
            cycle: row.cycle.as_deref().map(parse_enum).transpose()?,
            status: row.status.into(),
            invoice_url: row.invoice_url,
            bank_slip_url: row.bank_slip_url,
            due_date: row.due_date,
            paid_at: row.paid_at,
            confirmed: row.confirmed,
            credited: row.credited,
            last_event_at: row.last_event_at,
            created_at: row.created_at,
        })
    }
}
