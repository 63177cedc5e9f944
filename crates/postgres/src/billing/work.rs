//! Scheduled billing work of all accounts: intents to reconcile, subscriptions to check, periods that lapsed.

use async_trait::async_trait;
use recado_domain::billing::SubscriptionWorkStore;
use recado_domain::shared::{AccountId, StoreError, SubscriptionId};
use time::Duration;

use super::events::OwnerRow;
use crate::pool::OwnerPool;
use crate::sql::{Sql, sql};

#[derive(Clone, Debug)]
pub struct PgBillingWork(OwnerPool);

impl PgBillingWork {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    async fn find_subscription(&self, query: Sql<'_>) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        Ok(self.0.row_if_any::<OwnerRow>(query).await?.map(Into::into))
    }
}

#[async_trait]
impl SubscriptionWorkStore for PgBillingWork {
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        // Servers of the previous version write no `intent_check_at`: their intents are due when the lease ends.
        let query = sql(
            "UPDATE subscriptions SET intent_check_at = now() + $1 * interval '1 microsecond'
             WHERE (account_id, id) = (SELECT account_id, id FROM subscriptions
               WHERE intent_until IS NOT NULL AND coalesce(intent_check_at, intent_until) <= now()
               ORDER BY coalesce(intent_check_at, intent_until) LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING account_id, id",
        );
        self.find_subscription(query.bind(pause)).await
    }

    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        let query = sql(
            "UPDATE subscriptions SET check_at = now() + $1 * interval '1 microsecond'
             WHERE (account_id, id) = (SELECT account_id, id FROM subscriptions WHERE check_at <= now()
               ORDER BY check_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING account_id, id",
        );
        self.find_subscription(query.bind(pause)).await
    }

    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        let query = sql("SELECT s.account_id, s.id FROM subscriptions s
             WHERE s.status = 'cancelled' AND s.lapsed_at IS NULL
               AND (s.current_period_end IS NULL OR s.current_period_end <= now())
             ORDER BY s.current_period_end NULLS FIRST LIMIT 1");
        self.find_subscription(query).await
    }
}
