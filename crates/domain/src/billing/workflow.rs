//! Records the results of gateway calls. Both the request that made the call and the reconciler use it.

use std::sync::Arc;

use serde_json::json;

use super::effects::{RECONCILE_AFTER, credit, enter_status, is_period_over};
use super::{
    BillingError, BillingType, Change, ChangeOutcome, GatewayPayment, GatewaySubscription, Initiator, Intent, Payment,
    PaymentGateway, PaymentGatewayError, PaymentStatus, PendingIntent, Subscription, SubscriptionCommand,
    SubscriptionState, SubscriptionStatus, SubscriptionStore, plan, remaining_plan, transition,
};
use crate::shared::{
    AuditAction, Clock, Event, Ids, NotificationDraft, NotificationKind, StoreError, retry_on_conflict,
};
use time::{Duration, OffsetDateTime};

/// How long the gateway may still process a call to which it did not respond.
pub const UNANSWERED_LEASE: Duration = Duration::seconds(30);

/// Interval at which the reconciler looks for an abandoned attempt at the gateway.
const ABANDONED_PAUSE: Duration = Duration::hours(1);

/// Ports and steps that the use cases and the reconciler share.
#[derive(Clone)]
pub(super) struct SubscriptionWorkflow {
    pub(super) store: Arc<dyn SubscriptionStore>,
    pub(super) gateway: Arc<dyn PaymentGateway>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: Arc<dyn Ids>,
}

impl SubscriptionWorkflow {
    /// Completes an attempt: it becomes a subscription. Another actor may complete it first: then this returns the stored
    /// subscription, or its state after the completion if its status changed since. Returns `None` if another actor ended
    /// the attempt.
    pub(super) async fn complete(
        &self,
        attempt: &Subscription,
        created: &GatewaySubscription,
        first: Option<&GatewayPayment>,
        check_at: OffsetDateTime,
    ) -> Result<Option<Subscription>, StoreError> {
        let Some(Intent::Subscribe { initiator }) = attempt.pending.as_ref().map(|pending| &pending.intent) else {
            return Ok(None);
        };
        let now = self.clock.now();
        let mut change = completion_change(attempt, created, now, initiator);
        change.subscription.check_at = Some(check_at);
        // Stores the first payment only in its initial state. Later states arrive as events or by a check.
        let is_card = attempt.billing_type == BillingType::CreditCard;
        if let Some(first) = first.filter(|first| is_card || first.status == PaymentStatus::Pending) {
            let payment = self.first_payment_row(&mut change.subscription, first, now);
            change.payment = Some(payment);
        } else if first.is_some() {
            change.subscription.check_at = Some(now);
        }
        match self.store.write(&change).await? {
            ChangeOutcome::Done => Ok(Some(change.subscription)),
            ChangeOutcome::Stale | ChangeOutcome::Missing | ChangeOutcome::Exceeds(_) | ChangeOutcome::Repeated => {
                let current = self.store.find(attempt.account_id, attempt.id).await?;
                let is_completed =
                    |current: &Subscription| current.gateway_subscription_id.as_ref() == Some(&created.id);
                let completed = change.subscription;
                Ok(current.filter(is_completed).map(|current| {
                    if current.status == completed.status {
                        current
                    } else {
                        completed
                    }
                }))
            }
        }
    }

    /// Builds the first row of the payment history. With a card it pays for the period that was already granted.
    fn first_payment_row(
        &self,
        subscription: &mut Subscription,
        first: &GatewayPayment,
        now: OffsetDateTime,
    ) -> Payment {
        let granted = std::mem::take(&mut subscription.period_granted);
        let confirmed = first.status == PaymentStatus::Confirmed;
        Payment {
            id: self.ids.next().into(),
            subscription_id: subscription.id,
            gateway_payment_id: first.id.clone(),
            billing_type: first.billing_type.clone(),
            value: first.value.unwrap_or(subscription.value),
            cycle: Some(subscription.cycle),
            status: first.status.clone(),
            invoice_url: first.invoice_url.clone(),
            bank_slip_url: first.bank_slip_url.clone(),
            due_date: first.due_date,
            paid_at: confirmed.then_some(now),
            confirmed,
            credited: granted,
            last_event_at: None,
            created_at: now,
        }
    }

    /// Deletes an attempt of which the gateway has nothing. The account can subscribe again at once.
    pub(super) async fn delete_attempt(&self, attempt: &Subscription) -> Result<(), StoreError> {
        self.store.remove(attempt).await.map(|_| ())
    }

    /// Ends an attempt, so that the account can subscribe again. The reconciler still looks for it at the gateway,
    /// because a late call may yet create the subscription there.
    pub(super) async fn abandon(&self, attempt: &Subscription) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut after = attempt.clone();
        after.status = SubscriptionStatus::Inactive;
        after.pending = Some(PendingIntent::abandoned(now + ABANDONED_PAUSE));
        after.updated_at = now;
        self.store.write(&Change::of(after)).await.map(|_| ())
    }

    /// Restarts the lease of an intent with length `lease`. After it the reconciler or the next request resolves the
    /// intent.
    pub(super) async fn defer_intent(&self, subscription: &Subscription, lease: Duration) -> Result<(), StoreError> {
        self.write_with_retry(subscription, |current, now| {
            let mut after = has_lease_of(current, subscription).then(|| current.clone())?;
            let leased = |pending: PendingIntent| PendingIntent::leased(pending.intent, now, lease);
            after.pending = after.pending.map(leased);
            Some(Change::of(after))
        })
        .await
        .or_else(left_on_conflict)
        .map(|_| ())
    }

    /// Resolves an intent whose gateway call failed. `looked_up`: the gateway was asked afterwards and had not applied
    /// the change.
    pub(super) async fn resolve_failed_intent(
        &self,
        subscription: &Subscription,
        error: &PaymentGatewayError,
        looked_up: bool,
    ) -> Result<(), StoreError> {
        match (error, looked_up) {
            (PaymentGatewayError::Failed(_), true) => self.clear_intent(subscription).await,
            // The call has ended with an unknown outcome: the next request or the reconciler looks it up.
            (PaymentGatewayError::Failed(_), false) => self.defer_intent(subscription, Duration::ZERO).await,
            // The gateway may still apply an unanswered call: the reconciler looks it up after the lease.
            _ => self.defer_intent(subscription, UNANSWERED_LEASE).await,
        }
    }

    /// Removes an intent that had no effect at the gateway.
    pub(super) async fn clear_intent(&self, subscription: &Subscription) -> Result<(), StoreError> {
        self.write_with_retry(subscription, |current, now| {
            let mut after = has_lease_of(current, subscription).then(|| current.clone())?;
            after.pending = None;
            after.updated_at = now;
            Some(Change::of(after))
        })
        .await
        .or_else(left_on_conflict)
        .map(|_| ())
    }

    /// Applies the plan change that the gateway has applied.
    pub(super) async fn finish_change(&self, subscription: &Subscription) -> Result<Option<Subscription>, StoreError> {
        if let Some(changed) = self.write_with_retry(subscription, plan_change).await? {
            return Ok(Some(changed));
        }
        self.find_if_finished(subscription).await
    }

    /// Applies the cancellation that the gateway has applied.
    pub(super) async fn finish_cancel(&self, subscription: &Subscription) -> Result<Option<Subscription>, StoreError> {
        // The account cannot start another subscription while this one is live, so `others` stays correct.
        let facts = self.store.facts(subscription.account_id, subscription.id, None).await?;
        let others = facts.map(|facts| facts.others).unwrap_or_default();
        let cancel = |current: &Subscription, now| cancellation_change(current, &others, now);
        if let Some(cancelled) = self.write_with_retry(subscription, cancel).await? {
            return Ok(Some(cancelled));
        }
        self.find_if_finished(subscription).await
    }

    /// Returns the subscription if a worker or the account's next request has already recorded the intent's result.
    async fn find_if_finished(&self, subscription: &Subscription) -> Result<Option<Subscription>, StoreError> {
        let current = self.store.find(subscription.account_id, subscription.id).await?;
        let is_done = |current: &Subscription| match subscription.pending.as_ref().map(|pending| &pending.intent) {
            Some(Intent::Change { plan, cycle, value, .. }) => {
                (&current.plan, current.cycle, current.value) == (plan, *cycle, *value)
            }
            Some(Intent::Cancel { .. }) => current.status == SubscriptionStatus::Cancelled,
            Some(Intent::Subscribe { .. } | Intent::Abandoned) | None => false,
        };
        Ok(current.filter(is_done))
    }

    /// Optimistic locking: decides and writes a change, and repeats both on the newer version after a concurrent write.
    /// Returns `None` if the intent is gone or `decide` returns none. Fails with `Conflict` after too many lost attempts.
    async fn write_with_retry(
        &self,
        subscription: &Subscription,
        decide: impl Fn(&Subscription, OffsetDateTime) -> Option<Change> + Send + Sync,
    ) -> Result<Option<Subscription>, StoreError> {
        let intent = |subscription: &Subscription| subscription.pending.as_ref().map(|pending| pending.intent.clone());
        let mut first = Some(subscription.clone());
        retry_on_conflict(|| {
            let first = first.take();
            async {
                let current = match first {
                    Some(subscription) => Some(subscription),
                    None => self.store.find(subscription.account_id, subscription.id).await?,
                };
                let current = current.filter(|current| intent(current) == intent(subscription));
                let Some(change) = current.and_then(|current| decide(&current, self.clock.now())) else {
                    return Ok(Some(None));
                };
                Ok(match self.store.write(&change).await? {
                    ChangeOutcome::Done => Some(Some(change.subscription)),
                    ChangeOutcome::Missing | ChangeOutcome::Exceeds(_) | ChangeOutcome::Repeated => Some(None),
                    ChangeOutcome::Stale => None,
                })
            }
        })
        .await
    }

    /// Stores an intent before the gateway call. A concurrent payment event does not fail it: the decision holds while
    /// the subscription is live, plan and cycle are unchanged and no other intent is stored.
    pub(super) async fn store_intent(
        &self,
        subscription: &Subscription,
        intent: Intent,
        change: Change,
        lease: Duration,
    ) -> Result<Subscription, BillingError> {
        let still_valid = |newer: &Subscription| {
            newer.pending.is_none()
                && newer.status.is_live()
                && (&newer.plan, newer.cycle) == (&subscription.plan, subscription.cycle)
        };
        let mut first = Some(subscription.clone());
        retry_on_conflict(|| {
            let (first, mut change) = (first.take(), change.clone());
            let pending = PendingIntent::leased(intent.clone(), self.clock.now(), lease);
            async move {
                change.subscription = match first {
                    Some(subscription) => subscription,
                    None => {
                        let newer = self.store.find(subscription.account_id, subscription.id).await?;
                        newer.filter(still_valid).ok_or(BillingError::Contended)?
                    }
                };
                change.subscription.pending = Some(pending);
                match self.store.write(&change).await? {
                    ChangeOutcome::Done => {
                        change.subscription.version += 1;
                        Ok(Some(change.subscription))
                    }
                    ChangeOutcome::Stale | ChangeOutcome::Repeated => Ok(None),
                    ChangeOutcome::Missing => Err(BillingError::NotFound),
                    ChangeOutcome::Exceeds(errors) => Err(errors.into()),
                }
            }
        })
        .await
    }
}

/// Builds the change that completes an attempt. A card is charged at once, so its first period starts now. Other
/// payment methods wait for the payment.
fn completion_change(
    attempt: &Subscription,
    created: &GatewaySubscription,
    now: OffsetDateTime,
    initiator: &Initiator,
) -> Change {
    let mut after = attempt.clone();
    after.pending = None;
    after.gateway_customer_id = Some(created.customer.clone());
    after.gateway_subscription_id = Some(created.id.clone());
    after.updated_at = now;
    after.check_at = Some(now + RECONCILE_AFTER);
    if after.billing_type == BillingType::CreditCard {
        enter_status(&mut after, SubscriptionStatus::Active, now);
        let cycle = after.cycle;
        credit(&mut after, cycle, now);
        after.period_granted = true;
    }
    let audit = initiator.audit(AuditAction::Create, after.id).with_changes(json!({
        "plan": after.plan, "cycle": after.cycle, "billing_type": after.billing_type, "value": after.value,
        "status": after.status,
    }));
    let name = plan_name(&after.plan);
    let (kind, message) = match after.status {
        SubscriptionStatus::Active => (
            NotificationKind::Success,
            format!("The plan {name} is active, for {}.", after.value),
        ),
        _ => (
            NotificationKind::Info,
            format!("The plan {name} starts when the payment of {} arrives.", after.value),
        ),
    };
    let events = vec![
        Event::Audit(audit),
        notification(&after, kind, &format!("Subscribed to {name}"), message),
    ];
    Change {
        account_plan: Some(after.plan.clone()),
        events,
        ..Change::of(after)
    }
}

/// Completes a plan change that the gateway has applied: builds the change that stores the plan, cycle and value of the
/// pending intent. `None` if no plan change is pending.
fn plan_change(current: &Subscription, now: OffsetDateTime) -> Option<Change> {
    let Some(Intent::Change {
        initiator,
        plan,
        cycle,
        value,
    }) = current.pending.as_ref().map(|pending| &pending.intent)
    else {
        return None;
    };
    let is_live = transition(current.status, SubscriptionCommand::ChangePlan, false).is_some();
    let mut after = current.clone();
    after.pending = None;
    after.updated_at = now;
    (after.plan, after.cycle, after.value) = (plan.clone(), *cycle, *value);
    let audit = initiator.audit(AuditAction::Update, after.id).with_changes(json!({
        "plan": { "from": current.plan, "to": after.plan }, "cycle": { "from": current.cycle, "to": after.cycle },
        "value": { "from": current.value, "to": after.value },
    }));
    let (previous, new) = (plan_name(&current.plan), plan_name(&after.plan));
    let message = match previous == new {
        // Only the cycle changed.
        true => format!("The plan {new} is now paid {}.", after.cycle.as_str().to_lowercase()),
        false => format!("The plan changed from {previous} to {new}."),
    };
    let notice = Event::Notification(NotificationDraft {
        kind: NotificationKind::Info,
        title: "Plan changed".to_owned(),
        message,
        data: json!({
            "subscription_id": after.id, "status": after.status, "previous_plan": current.plan, "new_plan": after.plan,
        }),
    });
    Some(Change {
        // A subscription that ended in the meantime does not change the account's plan.
        account_plan: is_live.then(|| after.plan.clone()),
        events: vec![Event::Audit(audit), notice],
        ..Change::of(after)
    })
}

/// Whether the intent is the one that was read. Another request may have stored an equal one, whose gateway call is in
/// flight.
fn has_lease_of(current: &Subscription, read: &Subscription) -> bool {
    let lease = |subscription: &Subscription| subscription.pending.as_ref().map(|pending| pending.until);
    lease(current) == lease(read)
}

/// Accepts that an intent stays as it is after too many lost attempts: the reconciler looks it up.
fn left_on_conflict(error: StoreError) -> Result<Option<Subscription>, StoreError> {
    match error.is_conflict() {
        true => Ok(None),
        false => Err(error),
    }
}

/// Builds the change that cancels the subscription. The paid period stays usable.
fn cancellation_change(current: &Subscription, others: &[SubscriptionState], now: OffsetDateTime) -> Option<Change> {
    let Some(Intent::Cancel { initiator }) = current.pending.as_ref().map(|pending| &pending.intent) else {
        return None;
    };
    let mut after = current.clone();
    after.pending = None;
    after.updated_at = now;
    let Some(next) = transition(current.status, SubscriptionCommand::Cancel, false) else {
        // The gateway had already ended the subscription.
        return Some(Change::of(after));
    };
    enter_status(&mut after, next, now);
    let audit = initiator.audit(AuditAction::Delete, after.id).with_changes(json!({
        "plan": after.plan, "previousStatus": current.status,
    }));
    let name = plan_name(&after.plan);
    let message = match after.current_period_end.filter(|_| !is_period_over(&after, now)) {
        Some(end) => format!("The plan {name} can be used until {}.", end.date()),
        None => format!("The plan {name} has ended."),
    };
    let notice = notification(&after, NotificationKind::Warning, "Subscription cancelled", message);
    Some(Change {
        account_plan: remaining_plan(others, now)
            .filter(|_| is_period_over(&after, now))
            .map(ToOwned::to_owned),
        events: vec![Event::Audit(audit), notice],
        ..Change::of(after)
    })
}

pub(super) fn plan_name(id: &str) -> &str {
    plan(id).map_or(id, |plan| plan.name)
}

fn notification(subscription: &Subscription, kind: NotificationKind, title: &str, message: String) -> Event {
    Event::Notification(NotificationDraft {
        kind,
        title: title.to_owned(),
        message,
        data: json!({ "subscription_id": subscription.id, "plan": subscription.plan, "status": subscription.status }),
    })
}
