//! What billing does by itself: finishing what somebody died on, asking a silent gateway, ending plans whose paid time
//! is over.

use std::sync::Arc;

use time::Duration;

use super::completion::Completion;
use super::effects::{SILENCE, effect, lapse};
use super::{
    GatewayFault, GatewayNews, GatewayPayment, Intent, NewsKind, PaymentGateway, PaymentNews, Subscription,
    SubscriptionStore, WorkStore, Writing,
};
use crate::shared::{AccountId, Clock, Ids, StoreError, SubscriptionId};

/// How long one finishing may take before somebody else begins it anew.
pub const SETTLEMENT_LEASE: Duration = Duration::minutes(2);

/// How long a gateway that cannot be asked, or an account that could not be settled, is left alone.
const CHECK_PAUSE: Duration = Duration::hours(1);

/// How long an attempt that came to nothing is kept an eye on.
const ABANDONED_FOR: Duration = Duration::days(1);

/// The work that nobody asked for.
pub struct Settlement {
    core: Completion,
    work: Arc<dyn WorkStore>,
}

impl Settlement {
    pub fn new(
        store: Arc<dyn SubscriptionStore>,
        work: Arc<dyn WorkStore>,
        gateway: Arc<dyn PaymentGateway>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        let core = Completion {
            store,
            gateway,
            clock,
            ids,
        };
        Self { core, work }
    }

    /// Settles one intent whose time is over; false when there is none.
    pub async fn settle_next(&self) -> Result<bool, StoreError> {
        let Some((account, id)) = self.work.claim_intent(SETTLEMENT_LEASE).await? else {
            return Ok(false);
        };
        if let Some(subscription) = self.core.store.find(account, id).await? {
            self.core.settle(&subscription).await?;
        }
        Ok(true)
    }

    /// Asks the gateway about one subscription that it is silent about; false when there is none.
    pub async fn check_next(&self) -> Result<bool, StoreError> {
        let Some((account, id)) = self.work.claim_check(CHECK_PAUSE).await? else {
            return Ok(false);
        };
        self.core.check(account, id).await?;
        Ok(true)
    }

    /// Takes one plan whose paid time is over; false when there is none.
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

impl Completion {
    /// Makes true here what is true at the gateway. A gateway that cannot be asked is asked again when the lease is over.
    pub(super) async fn settle(&self, subscription: &Subscription) -> Result<(), StoreError> {
        let Some(pending) = &subscription.pending else {
            return Ok(());
        };
        match &pending.intent {
            Intent::Subscribe { .. } => self.settle_attempt(subscription).await,
            Intent::Abandoned => self.watch(subscription).await,
            Intent::Change { value, cycle, .. } => {
                let Some(id) = subscription.gateway_subscription_id.as_deref() else {
                    return self.finish_change(subscription).await.map(|_| ());
                };
                match self.gateway.subscription(id).await {
                    Ok(Some(known)) if known.value == Some(*value) && known.cycle == cycle.as_str() => {
                        self.finish_change(subscription).await.map(|_| ())
                    }
                    Ok(_) => self.clear(subscription).await,
                    Err(fault) => unasked(&fault),
                }
            }
            Intent::Cancel { .. } => {
                let Some(id) = subscription.gateway_subscription_id.as_deref() else {
                    return self.finish_cancel(subscription).await.map(|_| ());
                };
                match self.gateway.subscription(id).await {
                    Ok(Some(known)) if !known.deleted => self.clear(subscription).await,
                    Ok(_) => self.finish_cancel(subscription).await.map(|_| ()),
                    Err(fault) => unasked(&fault),
                }
            }
        }
    }

    async fn settle_attempt(&self, attempt: &Subscription) -> Result<(), StoreError> {
        match self.gateway.find(attempt.id).await {
            // What was paid meanwhile is asked for at once.
            Ok(Some(made)) => self.complete(attempt, &made, None, self.clock.now()).await.map(|_| ()),
            Ok(None) => self.abandon(attempt).await,
            Err(fault) => unasked(&fault),
        }
    }

    /// What came to nothing must stay nothing.
    async fn watch(&self, attempt: &Subscription) -> Result<(), StoreError> {
        match self.gateway.find(attempt.id).await {
            Ok(Some(made)) => match self.gateway.cancel(&made.id).await {
                Ok(()) => self.abandon(attempt).await,
                Err(fault) => unasked(&fault),
            },
            Ok(None) if attempt.created_at + ABANDONED_FOR <= self.clock.now() => self.release(attempt).await,
            Ok(None) => self.abandon(attempt).await,
            Err(fault) => unasked(&fault),
        }
    }

    /// Applies what the gateway says of a subscription's payments as if it had told. The oldest due first.
    async fn check(&self, account: AccountId, id: SubscriptionId) -> Result<(), StoreError> {
        let Some(subscription) = self.store.find(account, id).await? else {
            return Ok(());
        };
        let Some(gateway_id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(());
        };
        let mut payments = match self.gateway.payments(gateway_id).await {
            Ok(payments) => payments,
            // Gone there: nothing more will come of it.
            Err(GatewayFault::Missing) => vec![],
            Err(fault) => return unasked(&fault),
        };
        payments.sort_by(|one, other| (one.due_date, &one.id).cmp(&(other.due_date, &other.id)));
        for payment in &payments {
            self.apply_asked(account, id, payment).await?;
        }
        self.rest(account, id).await
    }

    async fn apply_asked(
        &self,
        account: AccountId,
        id: SubscriptionId,
        payment: &GatewayPayment,
    ) -> Result<(), StoreError> {
        let news = asked(payment);
        for _ in 0..super::completion::ATTEMPTS {
            let facts = self.store.facts(account, id, Some(payment.id.clone())).await?;
            let Some(facts) = facts else { return Ok(()) };
            let change = effect(&facts, &news, None, self.ids.next().into(), self.clock.now());
            let Some(change) = change else { return Ok(()) };
            if self.store.write(&change).await? != Writing::Stale {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Having been asked, the gateway is asked again in a day, or when the period ends.
    async fn rest(&self, account: AccountId, id: SubscriptionId) -> Result<(), StoreError> {
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
            } + SILENCE,
        );
        self.store.write(&super::completion::bare(after)).await.map(|_| ())
    }
}

/// Not our store's fault: the lease, or the pause, brings it up again.
fn unasked(fault: &GatewayFault) -> Result<(), StoreError> {
    match fault {
        // Nobody will ever answer: trying on would fill the log.
        GatewayFault::NotConfigured => Ok(()),
        fault => Err(StoreError::Unavailable(Box::new(fault.clone()))),
    }
}

/// A payment as it was found, as news.
fn asked(payment: &GatewayPayment) -> GatewayNews {
    let kind = match payment.status.as_str() {
        "CONFIRMED" => NewsKind::Confirmed,
        "RECEIVED" | "RECEIVED_IN_CASH" => NewsKind::Received,
        "OVERDUE" => NewsKind::Overdue,
        _ => NewsKind::Other,
    };
    GatewayNews {
        kind,
        payment: Some(PaymentNews {
            id: payment.id.clone(),
            billing_type: Some(payment.billing_type.clone()),
            value: payment.value,
            status: Some(payment.status.clone()),
            invoice_url: payment.invoice_url.clone(),
            bank_slip_url: payment.bank_slip_url.clone(),
            due_date: payment.due_date,
        }),
        created_at: None,
    }
}
