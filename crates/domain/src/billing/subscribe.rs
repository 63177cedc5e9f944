//! Subscribing: the account's place is reserved, the gateway called, and what came of it written down. Whatever
//! breaks in between is found by the reservation and settled by what the gateway says.

use time::{Duration, OffsetDateTime};

use super::completion::{UNANSWERED_DOUBT, plan_name};
use super::effects::SILENCE;
use super::input::Order;
use super::{
    Billing, BillingError, BillingType, By, CardPayment, CustomerOrder, GatewayFault, GatewaySubscription, Intent,
    PendingIntent, Reserved, SubscribeInput, Subscribed, Subscription, SubscriptionOrder, SubscriptionStatus,
    gateway_day,
};
use crate::shared::{FieldErrors, Tenant};

/// How long an attempt is left to whoever began it: longer than all its calls together may take.
const ATTEMPT_LEASE: Duration = Duration::minutes(3);

/// How soon the first payment is due, in days. A slip takes a while to be paid; a card is charged at once.
fn days_to_pay(billing_type: BillingType) -> Duration {
    match billing_type {
        BillingType::CreditCard => Duration::ZERO,
        BillingType::Pix => Duration::days(1),
        BillingType::Boleto => Duration::days(3),
    }
}

impl Billing {
    /// Subscribes the account to a plan.
    pub async fn subscribe(&self, tenant: &Tenant, input: SubscribeInput) -> Result<Subscribed, BillingError> {
        let order = input.checked()?;
        // The typed card is wiped before anybody waits for anything.
        drop(input);
        // Before anything is reserved or asked: the gateway's customer must never bear another name than the account's.
        let payer = self.core.store.overview(tenant.account_id).await?.account_name;
        let attempt = self.reserve(tenant, &order).await?;
        let made = match self.make(tenant, &attempt, payer, order).await {
            Ok(made) => made,
            Err(fault) => return Err(self.give_up(&attempt, fault).await?),
        };
        let payment_data = self.core.gateway.first_payment(&made.id, attempt.billing_type).await;
        let check_at = self.core.clock.now() + SILENCE;
        let first = payment_data.payment.as_ref();
        match self.core.complete(&attempt, &made, first, check_at).await? {
            Some(subscription) => Ok(Subscribed {
                subscription,
                payment_data,
            }),
            None => {
                // Given up by somebody who could not know: it must not be paid.
                self.core.gateway.cancel(&made.id).await?;
                Err(BillingError::Contended)
            }
        }
    }

    /// Takes the account's place. An attempt that has it already is settled first: its answer may be lost, or its server
    /// dead.
    async fn reserve(&self, tenant: &Tenant, order: &Order) -> Result<Subscription, BillingError> {
        for _ in 0..2 {
            let now = self.core.clock.now();
            let attempt = attempt(tenant, order, self.core.ids.next(), now);
            match self.core.store.reserve(&attempt).await? {
                Reserved::Done => return Ok(attempt),
                Reserved::Taken(other) if other.is_attempt() => {
                    if !self.core.settle(&other).await? {
                        let text = "is being subscribed to already; try again in a minute";
                        return Err(FieldErrors::one("plan", text).into());
                    }
                }
                Reserved::Taken(_) => break,
            }
        }
        let text = "cannot be subscribed to: the account has a subscription already";
        Err(FieldErrors::one("plan", text).into())
    }

    /// The calls to the gateway.
    async fn make(
        &self,
        tenant: &Tenant,
        attempt: &Subscription,
        name: String,
        order: Order,
    ) -> Result<GatewaySubscription, (GatewayFault, Sent)> {
        let not_yet = |fault| (fault, Sent::No);
        let remote_address = tenant.actor.ip_address.clone().unwrap_or_default();
        let holder_email = order.card.as_ref().map(|(_, holder)| holder.email.clone());
        let customer = CustomerOrder {
            account_id: tenant.account_id,
            name,
            email: order.billing_email.or(holder_email),
            tax_number: order.tax_number,
        };
        let customer = self.core.gateway.customer(&customer).await.map_err(not_yet)?;
        let wanted = SubscriptionOrder {
            reference: attempt.id,
            customer,
            billing_type: order.billing_type,
            value: attempt.value,
            cycle: order.cycle,
            first_due: gateway_day(attempt.created_at + days_to_pay(order.billing_type)),
            description: format!("Recado {}", plan_name(order.plan.id)),
            card: order.card.map(|(card, holder)| CardPayment {
                card,
                holder,
                remote_address,
            }),
        };
        match self.core.gateway.subscribe(&wanted).await {
            Ok(made) => Ok(made),
            Err(fault @ (GatewayFault::Failed(_) | GatewayFault::Unanswered(_))) => self.look(attempt, fault).await,
            Err(fault) => Err((fault, Sent::No)),
        }
    }

    /// The answer is missing, or is a fault: it may have been made all the same.
    async fn look(
        &self,
        attempt: &Subscription,
        fault: GatewayFault,
    ) -> Result<GatewaySubscription, (GatewayFault, Sent)> {
        match self.core.gateway.find(attempt.id).await {
            Ok(Some(made)) => Ok(made),
            Ok(None) if matches!(fault, GatewayFault::Failed(_)) => Err((fault, Sent::AndOver)),
            Err(_) if matches!(fault, GatewayFault::Failed(_)) => Err((fault, Sent::Perhaps(Duration::ZERO))),
            Ok(None) | Err(_) => Err((fault, Sent::Perhaps(UNANSWERED_DOUBT))),
        }
    }

    /// Leaves nothing half done. Returns what the caller is told.
    async fn give_up(
        &self,
        attempt: &Subscription,
        (fault, sent): (GatewayFault, Sent),
    ) -> Result<BillingError, BillingError> {
        match sent {
            Sent::No => self.core.release(attempt).await?,
            Sent::AndOver => self.core.abandon(attempt).await?,
            Sent::Perhaps(pause) => self.core.leave(attempt, pause).await?,
        }
        Ok(fault.into())
    }
}

/// How far a call got that brought no subscription.
#[derive(Clone, Copy)]
enum Sent {
    /// The gateway made nothing.
    No,
    /// It made nothing that could be found, and is over with it.
    AndOver,
    /// What it made can be asked in so long: it may still be at it, or could not be asked.
    Perhaps(Duration),
}

/// The row that holds the place.
fn attempt(tenant: &Tenant, order: &Order, id: uuid::Uuid, now: OffsetDateTime) -> Subscription {
    let intent = Intent::Subscribe { by: By::from(tenant) };
    Subscription {
        account_id: tenant.account_id,
        id: id.into(),
        plan: order.plan.id.to_owned(),
        cycle: order.cycle,
        status: SubscriptionStatus::Pending,
        billing_type: order.billing_type,
        value: order.plan.price(order.cycle),
        billing_email: order.billing_email.clone(),
        gateway_customer_id: None,
        gateway_subscription_id: None,
        current_period_start: None,
        current_period_end: None,
        cancelled_at: None,
        inactivated_at: None,
        lapsed_at: None,
        period_granted: false,
        anchor_day: None,
        check_at: None,
        last_event: None,
        pending: Some(PendingIntent::leased(intent, now, ATTEMPT_LEASE)),
        version: 0,
        created_at: now,
        updated_at: now,
    }
}
