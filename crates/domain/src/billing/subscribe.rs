//! Subscribing: the account's place is reserved, the gateway called, and what came of it written down. Whatever
//! breaks in between is found by the reservation and settled by what the gateway says.

use time::{Duration, OffsetDateTime};

use super::effects::RECONCILE_AFTER;
use super::input::ValidatedSubscribe;
use super::workflow::{UNANSWERED_DOUBT, plan_name};
use super::{
    Billing, BillingError, BillingType, CardPayment, GatewayCustomerInput, GatewaySubscription,
    GatewaySubscriptionInput, Initiator, Intent, PaymentGatewayError, PendingIntent, ReserveOutcome, SubscribeInput,
    Subscribed, Subscription, SubscriptionStatus, gateway_day,
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
        let validated = input.checked()?;
        // The typed card is wiped before anybody waits for anything.
        drop(input);
        // Before anything is reserved or asked: the gateway's customer must never bear another name than the account's.
        let payer = self.core.store.overview(tenant.account_id).await?.account_name;
        let attempt = self.reserve(tenant, &validated).await?;
        let made = match self.make(tenant, &attempt, payer, validated).await {
            Ok(made) => made,
            Err(error) => return Err(self.give_up(&attempt, error).await?),
        };
        let payment_data = self.core.gateway.first_payment(&made.id, attempt.billing_type).await;
        let check_at = self.core.clock.now() + RECONCILE_AFTER;
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
    async fn reserve(&self, tenant: &Tenant, validated: &ValidatedSubscribe) -> Result<Subscription, BillingError> {
        for _ in 0..2 {
            let now = self.core.clock.now();
            let attempt = attempt(tenant, validated, self.core.ids.next(), now);
            match self.core.store.reserve(&attempt).await? {
                ReserveOutcome::Done => return Ok(attempt),
                ReserveOutcome::Taken(other) if other.is_attempt() => {
                    if !self.core.reconcile(&other).await? {
                        let text = "is being subscribed to already; try again in a minute";
                        return Err(FieldErrors::one("plan", text).into());
                    }
                }
                ReserveOutcome::Taken(_) => break,
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
        validated: ValidatedSubscribe,
    ) -> Result<GatewaySubscription, (PaymentGatewayError, Sent)> {
        let not_yet = |error| (error, Sent::No);
        let remote_address = tenant.actor.ip_address.clone().unwrap_or_default();
        let holder_email = validated.card.as_ref().map(|(_, holder)| holder.email.clone());
        let customer = GatewayCustomerInput {
            account_id: tenant.account_id,
            name,
            email: validated.billing_email.or(holder_email),
            tax_number: validated.tax_number,
        };
        let customer = self.core.gateway.customer(&customer).await.map_err(not_yet)?;
        let wanted = GatewaySubscriptionInput {
            reference: attempt.id,
            customer,
            billing_type: validated.billing_type,
            value: attempt.value,
            cycle: validated.cycle,
            first_due: gateway_day(attempt.created_at + days_to_pay(validated.billing_type)),
            description: format!("Recado {}", plan_name(validated.plan.id)),
            card: validated.card.map(|(card, holder)| CardPayment {
                card,
                holder,
                remote_address,
            }),
        };
        match self.core.gateway.subscribe(&wanted).await {
            Ok(made) => Ok(made),
            Err(error @ (PaymentGatewayError::Failed(_) | PaymentGatewayError::Unanswered(_))) => {
                self.look(attempt, error).await
            }
            Err(error) => Err((error, Sent::No)),
        }
    }

    /// The answer is missing, or is a fault: it may have been made all the same.
    async fn look(
        &self,
        attempt: &Subscription,
        error: PaymentGatewayError,
    ) -> Result<GatewaySubscription, (PaymentGatewayError, Sent)> {
        match self.core.gateway.find(attempt.id).await {
            Ok(Some(made)) => Ok(made),
            Ok(None) if matches!(error, PaymentGatewayError::Failed(_)) => Err((error, Sent::AndOver)),
            Err(_) if matches!(error, PaymentGatewayError::Failed(_)) => Err((error, Sent::Perhaps(Duration::ZERO))),
            Ok(None) | Err(_) => Err((error, Sent::Perhaps(UNANSWERED_DOUBT))),
        }
    }

    /// Leaves nothing half done. Returns what the caller is told.
    async fn give_up(
        &self,
        attempt: &Subscription,
        (error, sent): (PaymentGatewayError, Sent),
    ) -> Result<BillingError, BillingError> {
        match sent {
            Sent::No => self.core.release(attempt).await?,
            Sent::AndOver => self.core.abandon(attempt).await?,
            Sent::Perhaps(pause) => self.core.leave(attempt, pause).await?,
        }
        Ok(error.into())
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
fn attempt(tenant: &Tenant, validated: &ValidatedSubscribe, id: uuid::Uuid, now: OffsetDateTime) -> Subscription {
    let intent = Intent::Subscribe {
        initiator: Initiator::from(tenant),
    };
    Subscription {
        account_id: tenant.account_id,
        id: id.into(),
        plan: validated.plan.id.to_owned(),
        cycle: validated.cycle,
        status: SubscriptionStatus::Pending,
        billing_type: validated.billing_type,
        value: validated.plan.price(validated.cycle),
        billing_email: validated.billing_email.clone(),
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
