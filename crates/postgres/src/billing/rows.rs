//! Row types of subscriptions and payments.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Date as SqlDate, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::billing::{Cents, Payment, PendingIntent, Subscription};
use recado_domain::shared::StoreError;
use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{corrupt, parse_enum};

macro_rules! subscription_columns {
    () => {
        "account_id, id, plan, cycle, status, billing_type, value, billing_email, gateway_customer_id,
         gateway_subscription_id, current_period_start, current_period_end, cancelled_at, inactivated_at, lapsed_at,
         period_granted, anchor_day, check_at, last_event_id, intent, intent_until, intent_check_at, version, created_at, updated_at"
    };
}
pub(super) use subscription_columns;

#[derive(QueryableByName)]
pub(super) struct SubscriptionRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    plan: String,
    #[diesel(sql_type = Text)]
    cycle: String,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Text)]
    billing_type: String,
    #[diesel(sql_type = BigInt)]
    value: i64,
    #[diesel(sql_type = Nullable<Text>)]
    billing_email: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    gateway_customer_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    gateway_subscription_id: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    current_period_start: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    current_period_end: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    cancelled_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    inactivated_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    lapsed_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Bool)]
    period_granted: bool,
    #[diesel(sql_type = Nullable<Integer>)]
    anchor_day: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    check_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    last_event_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    intent: Option<Value>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    intent_until: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    intent_check_at: Option<OffsetDateTime>,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
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

macro_rules! payment_columns {
    () => {
        "id, subscription_id, gateway_payment_id, billing_type, value, cycle, status, invoice_url, bank_slip_url, due_date,
         paid_at, confirmed, credited, last_event_at, created_at"
    };
}
pub(super) use payment_columns;

#[derive(QueryableByName)]
pub(super) struct PaymentRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    subscription_id: Uuid,
    #[diesel(sql_type = Text)]
    gateway_payment_id: String,
    #[diesel(sql_type = Text)]
    billing_type: String,
    #[diesel(sql_type = BigInt)]
    value: i64,
    #[diesel(sql_type = Nullable<Text>)]
    cycle: Option<String>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Nullable<Text>)]
    invoice_url: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    bank_slip_url: Option<String>,
    #[diesel(sql_type = Nullable<SqlDate>)]
    due_date: Option<Date>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    paid_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Bool)]
    confirmed: bool,
    #[diesel(sql_type = Bool)]
    credited: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_event_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
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
            status: row.status,
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
