//! Background work of billing: completes or reverts the intents of crashed requests, asks the gateway about overdue
//! subscriptions, and ends plans after their paid period.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::effects::{RECONCILE_AFTER, effect, lapse};
use super::workflow::SubscriptionWorkflow;
use super::{
    Cents, Change, ChangeOutcome, Cycle, GatewayEventData, GatewayEventKind, GatewayPayment, INTENT_CHECK_PAUSE,
    Intent, PaymentGateway, PaymentGatewayError, PaymentSnapshot, PaymentStatus, ReconcileError, Subscription,
    SubscriptionStore, SubscriptionWorkStore,
};
use crate::shared::{AccountId, Clock, Ids, StoreError, SubscriptionId, retry_on_conflict};

/// Retry delay of a check after the gateway or the store failed.
const CHECK_PAUSE: Duration = Duration::hours(1);

/// How long an abandoned attempt is looked for at the gateway.
const ABANDONED_FOR: Duration = Duration::days(1);

/// Use cases of the billing workers.
pub struct SubscriptionReconciler {
    core: SubscriptionWorkflow,
    work: Arc<dyn SubscriptionWorkStore>,
}

impl SubscriptionReconciler {
    pub fn new(
        store: Arc<dyn SubscriptionStore>,
        work: Arc<dyn SubscriptionWorkStore>,
        gateway: Arc<dyn PaymentGateway>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        let core = SubscriptionWorkflow {
            store,
            gateway,
            clock,
            ids,
        };
        Self { core, work }
    }

    /// Reconciles one due intent with the gateway's state. Returns false if none is due.
    pub async fn reconcile_next(&self) -> Result<bool, ReconcileError> {
        let Some((account, id)) = self.work.claim_intent(INTENT_CHECK_PAUSE).await? else {
            return Ok(false);
        };
        if let Some(subscription) = self.core.store.find(account, id).await? {
            let reconciled = self.core.reconcile(&subscription).await.map(|_| ());
            reconciled.or_else(ReconcileError::ignore_not_configured)?;
        }
        Ok(true)
    }

    /// Reads the payments of one subscription whose check is due from the gateway. Returns false if none is due.
    pub async fn check_next(&self) -> Result<bool, ReconcileError> {
        let Some((account, id)) = self.work.claim_check(CHECK_PAUSE).await? else {
            return Ok(false);
        };
        let checked = self.core.check(account, id).await;
        checked.or_else(ReconcileError::ignore_not_configured)?;
        Ok(true)
    }

    /// Removes the plan of one cancelled subscription whose paid period is over. Returns false if there is none.
    pub async fn lapse_next(&self) -> Result<bool, StoreError> {
        let Some((account, id)) = self.work.next_lapse().await? else {
            return Ok(false);
        };
        if let Some(facts) = self.core.store.facts(account, id, None).await? {
            let change = lapse(&facts, self.core.clock.now());
            self.core.store.write(&change).await?;
        }
        Ok(true)
    }
}

impl SubscriptionWorkflow {
    /// Completes or reverts an intent according to the gateway's state. Completing is safe at any time, by any request
    /// or worker. Reverting requires that the lease is over, because before that the call may be in flight. Returns
    /// false if the intent stays pending.
    pub(super) async fn reconcile(&self, subscription: &Subscription) -> Result<bool, ReconcileError> {
        let Some(pending) = &subscription.pending else {
            return Ok(true);
        };
        let is_over = pending.is_lease_over(self.clock.now());
        match &pending.intent {
            Intent::Subscribe { .. } => self.reconcile_attempt(subscription, is_over).await,
            Intent::Abandoned => self.check_abandoned(subscription).await.map(|()| true),
            Intent::Change { value, cycle, .. } => match self.is_changed(subscription, *value, *cycle).await? {
                true => Ok(self.finish_change(subscription).await.map(|_| true)?),
                false => self.revert_if_over(subscription, is_over).await,
            },
            Intent::Cancel { .. } => match self.is_cancelled(subscription).await? {
                true => Ok(self.finish_cancel(subscription).await.map(|_| true)?),
                false => self.revert_if_over(subscription, is_over).await,
            },
        }
    }

    /// Whether the gateway has this price and cycle. True for a subscription without a gateway id: nothing is to change
    /// there.
    async fn is_changed(
        &self,
        subscription: &Subscription,
        value: Cents,
        cycle: Cycle,
    ) -> Result<bool, PaymentGatewayError> {
        let Some(id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(true);
        };
        let found = self.gateway.subscription(id).await?;
        Ok(found.is_some_and(|found| found.value == Some(value) && found.cycle == Some(cycle)))
    }

    async fn is_cancelled(&self, subscription: &Subscription) -> Result<bool, PaymentGatewayError> {
        let Some(id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(true);
        };
        Ok(self.gateway.subscription(id).await?.is_none_or(|found| found.deleted))
    }

    async fn revert_if_over(&self, subscription: &Subscription, is_over: bool) -> Result<bool, ReconcileError> {
        if is_over {
            self.clear_intent(subscription).await?;
        }
        Ok(is_over)
    }

    async fn reconcile_attempt(&self, attempt: &Subscription, is_over: bool) -> Result<bool, ReconcileError> {
        match self.gateway.find(attempt.id).await? {
            // The check is due at once, because the subscription may have been paid in the meantime.
            Some(created) => {
                self.complete(attempt, &created, None, self.clock.now()).await?;
                Ok(true)
            }
            None if is_over => Ok(self.abandon(attempt).await.map(|()| true)?),
            None => Ok(false),
        }
    }

    /// Cancels an abandoned attempt that appeared at the gateway late. Deletes the attempt after `ABANDONED_FOR`.
    async fn check_abandoned(&self, attempt: &Subscription) -> Result<(), ReconcileError> {
        match self.gateway.find(attempt.id).await? {
            Some(created) => {
                self.gateway.cancel(&created.id).await?;
                self.abandon(attempt).await?;
            }
            None if attempt.created_at + ABANDONED_FOR <= self.clock.now() => self.delete_attempt(attempt).await?,
            None => self.abandon(attempt).await?,
        }
        Ok(())
    }

    /// Applies the gateway's payments of a subscription as if they had arrived as events, by ascending due date.
    async fn check(&self, account: AccountId, id: SubscriptionId) -> Result<(), ReconcileError> {
        let Some(subscription) = self.store.find(account, id).await? else {
            return Ok(());
        };
        let Some(gateway_id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(());
        };
        // What the gateway returns is at least as new as this. An event during the call may be newer.
        let asked_at = self.clock.now();
        let mut payments = match self.gateway.payments(gateway_id).await {
            Ok(payments) => payments,
            // The gateway no longer has the subscription, so there are no payments.
            Err(PaymentGatewayError::Missing) => vec![],
            Err(error) => return Err(error.into()),
        };
        payments.sort_by(|a, b| (a.due_date, &a.id).cmp(&(b.due_date, &b.id)));
        for payment in &payments {
            self.apply_payment(account, id, payment, asked_at).await?;
        }
        Ok(self.schedule_next_check(account, id).await?)
    }

    pub(super) async fn apply_payment(
        &self,
        account: AccountId,
        id: SubscriptionId,
        payment: &GatewayPayment,
        asked_at: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let data = event_data(payment, asked_at);
        retry_on_conflict(async || {
            let facts = self.store.facts(account, id, Some(payment.id.clone())).await?;
            let change = facts.and_then(|facts| effect(&facts, &data, None, self.ids.next().into(), self.clock.now()));
            let Some(change) = change else { return Ok(Some(())) };
            Ok((self.store.write(&change).await? != ChangeOutcome::Stale).then_some(()))
        })
        .await
    }

    /// Schedules the next check: `RECONCILE_AFTER` from now, or from the period's end if the subscription is active.
    async fn schedule_next_check(&self, account: AccountId, id: SubscriptionId) -> Result<(), StoreError> {
        let Some(subscription) = self.store.find(account, id).await? else {
            return Ok(());
        };
        if !subscription.status.is_live() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut after = subscription;
        let end = after.current_period_end.unwrap_or(now).max(now);
        after.check_at = Some(
            if after.status == super::SubscriptionStatus::Active {
                end
            } else {
                now
            } + RECONCILE_AFTER,
        );
        self.store.write(&Change::of(after)).await.map(|_| ())
    }
}

/// Converts a payment that was read from the gateway into event data.
fn event_data(payment: &GatewayPayment, asked_at: OffsetDateTime) -> GatewayEventData {
    let kind = match &payment.status {
        PaymentStatus::Confirmed => GatewayEventKind::Confirmed,
        PaymentStatus::Received | PaymentStatus::ReceivedInCash => GatewayEventKind::Received,
        PaymentStatus::Overdue => GatewayEventKind::Overdue,
        PaymentStatus::Pending | PaymentStatus::Other(_) => GatewayEventKind::Other,
    };
    GatewayEventData {
        kind,
        payment: Some(PaymentSnapshot {
            id: payment.id.clone(),
            billing_type: Some(payment.billing_type.clone()),
            value: payment.value,
            status: Some(payment.status.clone()),
            invoice_url: payment.invoice_url.clone(),
            bank_slip_url: payment.bank_slip_url.clone(),
            due_date: payment.due_date,
        }),
        created_at: Some(asked_at),
    }
}
