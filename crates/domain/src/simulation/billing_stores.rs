//! The stores of billing.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::bugs::SimulationBug;
use super::stores::{Stores, Written};
use crate::billing::{
    BillingAccountStore, Change, ChangeOutcome, GatewayEvent, GatewayEventStore, GatewayPayment, Intent, Overview,
    Payment, RecordOutcome, ReserveOutcome, StoredEvent, Subscription, SubscriptionFacts, SubscriptionStore,
    SubscriptionWorkStore,
};
use crate::shared::{AccountId, GatewayEventId, GuardOutcome, Page, PageQuery, StoreError, SubscriptionId};

#[async_trait]
impl SubscriptionStore for Stores {
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError> {
        self.write("reserve subscription", Written::Billing, async {
            let outcome = self.billing.reserve(attempt).await?;
            if self.has_bug(SimulationBug::SecondSubscriptionReserved) && outcome != ReserveOutcome::Done {
                let mut tables = self.billing.tables();
                let account = tables.accounts.get_mut(&attempt.account_id).unwrap();
                account.subscriptions.insert(attempt.id, attempt.clone());
                return Ok(ReserveOutcome::Done);
            }
            Ok(outcome)
        })
        .await
    }

    async fn find(&self, account: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError> {
        self.call("find subscription", async {
            let mut found = self.billing.find(account, id).await?;
            if self.has_bug(SimulationBug::IntentLeaseIgnored)
                && let Some(pending) = found.as_mut().and_then(|found| found.pending.as_mut())
            {
                pending.until = OffsetDateTime::UNIX_EPOCH;
            }
            Ok(found)
        })
        .await
    }

    async fn facts(
        &self,
        account: AccountId,
        id: SubscriptionId,
        gateway_payment_id: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError> {
        let hidden = self.has_bug(SimulationBug::PaymentNotFound);
        let facts = self.billing.facts(account, id, gateway_payment_id.filter(|_| !hidden));
        self.call("subscription facts", facts).await
    }

    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError> {
        let (account, id) = (change.subscription.account_id, change.subscription.id);
        self.write("write subscription", Written::Billing, async {
            let before = self.billing.find(account, id).await?.map(|before| before.version);
            let decided_on = change.subscription.version;
            let change = self.changed(change, before);
            let outcome = self.billing.write(&change).await?;
            if outcome == ChangeOutcome::Done && before != Some(decided_on) {
                let violation = format!("subscription {id} is overwritten: {before:?}, decided on {decided_on}");
                self.ledger().violation(violation);
            }
            Ok(outcome)
        })
        .await
    }

    async fn mark_applied(&self, account: AccountId, event: GatewayEventId) -> Result<(), StoreError> {
        let mark = self.billing.mark_applied(account, event);
        self.write("mark gateway event", Written::Billing, mark).await
    }

    async fn remove(&self, attempt: &Subscription) -> Result<GuardOutcome, StoreError> {
        let remove = self.billing.remove(attempt);
        self.write("remove attempt", Written::Billing, remove).await
    }
}

impl Stores {
    /// The bugs of changes. `version`: that of the stored subscription.
    fn changed(&self, change: &Change, version: Option<i64>) -> Change {
        let mut change = change.clone();
        match self.bug {
            Some(SimulationBug::WriteIgnoresVersion) => {
                change.subscription.version = version.unwrap_or(change.subscription.version);
            }
            Some(SimulationBug::IntentNotStored) => {
                let is_cancel = |intent: &Intent| matches!(intent, Intent::Cancel { .. });
                change
                    .subscription
                    .pending
                    .take_if(|pending| is_cancel(&pending.intent));
            }
            Some(SimulationBug::PaymentNotStored) => change.payment = None,
            Some(SimulationBug::AccountPlanNotWritten) if !change.subscription.status.is_live() => {
                change.account_plan = None;
            }
            _ => {}
        }
        change
    }
}

#[async_trait]
impl BillingAccountStore for Stores {
    async fn overview(&self, account: AccountId) -> Result<Overview, StoreError> {
        self.call("overview", self.billing.overview(account)).await
    }

    async fn history(&self, _: AccountId, _: PageQuery) -> Result<Page<Payment>, StoreError> {
        unreachable!("a simulation lists no payments")
    }

    async fn owns(&self, _: AccountId, _: &GatewayPayment) -> Result<bool, StoreError> {
        unreachable!("a simulation shows no payment")
    }
}

#[async_trait]
impl GatewayEventStore for Stores {
    async fn record(
        &self,
        id: GatewayEventId,
        event: &GatewayEvent,
        received_at: OffsetDateTime,
        lease: Duration,
    ) -> Result<RecordOutcome, StoreError> {
        let mut event = event.clone();
        if self.has_bug(SimulationBug::GatewayEventNotDeduplicated) {
            event.key = id.to_string();
        }
        let record = self.billing.record(id, &event, received_at, lease);
        self.write("record gateway event", Written::Billing, record).await
    }

    async fn claim(&self, subject: Option<String>, lease: Duration) -> Result<Option<StoredEvent>, StoreError> {
        self.call("claim gateway event", self.billing.claim(subject, lease))
            .await
    }

    async fn finish(&self, id: GatewayEventId) -> Result<(), StoreError> {
        self.write("finish gateway event", Written::Billing, self.billing.finish(id))
            .await
    }

    async fn defer(&self, id: GatewayEventId, delay: Duration) -> Result<(), StoreError> {
        self.write("defer gateway event", Written::Billing, self.billing.defer(id, delay))
            .await
    }

    async fn owner(&self, subject: &str) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        self.call("subscription owner", self.billing.owner(subject)).await
    }

    async fn purge(&self, _: Duration, _: i64) -> Result<usize, StoreError> {
        unreachable!("a simulation purges nothing")
    }
}

#[async_trait]
impl SubscriptionWorkStore for Stores {
    async fn claim_intent(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        self.call("claim intent", self.billing.claim_intent(pause)).await
    }

    async fn claim_check(&self, pause: Duration) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        self.call("claim check", self.billing.claim_check(pause)).await
    }

    async fn next_lapse(&self) -> Result<Option<(AccountId, SubscriptionId)>, StoreError> {
        self.call("next lapse", self.billing.next_lapse()).await
    }
}
