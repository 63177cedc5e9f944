//! The statement that changes a subscription.

use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use recado_domain::billing::{Cents, PublishedSubscription, Subscription};
use recado_domain::shared::StoreError;
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::{corrupt, parse_enum};
use crate::schema::subscriptions;
use crate::sql::{Sql, sql};

/// The published values of a subscription before a change.
#[derive(QueryableByName)]
#[diesel(table_name = subscriptions, check_for_backend(Pg))]
pub(super) struct PreviousRow {
    plan: String,
    cycle: String,
    status: String,
    value: i64,
    current_period_end: Option<OffsetDateTime>,
    attempt: bool,
}

impl TryFrom<PreviousRow> for PublishedSubscription {
    type Error = StoreError;

    fn try_from(row: PreviousRow) -> Result<Self, StoreError> {
        Ok(Self {
            plan: row.plan,
            cycle: parse_enum(&row.cycle)?,
            status: parse_enum(&row.status)?,
            value: Cents(row.value),
            current_period_end: row.current_period_end,
            is_attempt: row.attempt,
        })
    }
}

/// Returns the values before the update.
pub(super) fn update(after: &Subscription) -> Result<Sql<'_>, StoreError> {
    let statement = sql("WITH before AS MATERIALIZED (
           SELECT * FROM subscriptions WHERE account_id = $1 AND id = $2 AND version = $3 FOR UPDATE)
         UPDATE subscriptions s SET plan = $4, cycle = $5, status = $6, value = $7, gateway_customer_id = $8,
           gateway_subscription_id = $9, current_period_start = $10, current_period_end = $11, cancelled_at = $12,
           inactivated_at = $13, lapsed_at = $14, period_granted = $15, anchor_day = $16, check_at = $17,
           last_event_id = $18, intent = $19, intent_until = $20, intent_check_at = $21, attempt = $22, updated_at = $23,
           version = s.version + 1
         FROM before b WHERE s.account_id = $1 AND s.id = b.id AND s.version = $3
         RETURNING b.plan, b.cycle, b.status, b.value, b.current_period_end, b.attempt");
    Ok(statement
        .bind(after.account_id)
        .bind(after.id)
        .bind(after.version)
        .bind(after.plan.as_str())
        .bind(after.cycle.as_str())
        .bind(after.status.as_str())
        .bind(after.value.0)
        .bind(after.gateway_customer_id.as_deref())
        .bind(after.gateway_subscription_id.as_deref())
        .bind(after.current_period_start)
        .bind(after.current_period_end)
        .bind(after.cancelled_at)
        .bind(after.inactivated_at)
        .bind(after.lapsed_at)
        .bind(after.period_granted)
        .bind(after.anchor_day.map(i32::from))
        .bind(after.check_at)
        .bind(after.last_event)
        .bind(intent(after)?)
        .bind(after.pending.as_ref().map(|pending| pending.until))
        .bind(after.pending.as_ref().map(|pending| pending.check_at))
        .bind(after.is_attempt())
        .bind(after.updated_at))
}

pub(super) fn intent(subscription: &Subscription) -> Result<Option<Value>, StoreError> {
    let pending = subscription.pending.as_ref();
    let intent = pending.map(|pending| serde_json::to_value(&pending.intent));
    intent.transpose().map_err(corrupt)
}
