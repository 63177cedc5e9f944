//! Subscribes an account: inserts an attempt, calls the gateway, then completes or ends the attempt. After a crash in
//! between, the reconciler or the next request finds the attempt and resolves it by the gateway's state.

use time::{Duration, OffsetDateTime};

use super::effects::RECONCILE_AFTER;
use super::input::ValidatedSubscribe;
use super::workflow::{UNANSWERED_LEASE, plan_name};
use super::{
    Billing, BillingError, BillingType, CardPayment, GatewayCustomerInput, GatewaySubscription,
    GatewaySubscriptionInput, Initiator, Intent, PaymentGatewayError, PendingIntent, ReserveOutcome, SubscribeInput,
    Subscribed, Subscription, SubscriptionStatus, gateway_day,
};
use crate::shared::{FieldErrors, Tenant};

/// Lease of an attempt. MUST be longer than all its gateway calls together.
const ATTEMPT_LEASE: Duration = Duration::minutes(3);

/// Time until the first payment is due. A boleto takes days to pay; a card is charged at once.
fn time_to_pay(billing_type: BillingType) -> Duration {
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
        // Zeroizes the entered card data before the first await.
        drop(input);
        // Read before anything is inserted or called: the gateway's customer must always have the account's name.
        let payer = self.accounts.overview(tenant.account_id).await?.account_name;
        let attempt = self.reserve(tenant, &validated).await?;
        let created = match self.create_at_gateway(tenant, &attempt, payer, validated).await {
            Ok(created) => created,
            Err(error) => return Err(self.end_failed_attempt(&attempt, error).await?),
        };
        let payment_data = self.core.gateway.first_payment(&created.id, attempt.billing_type).await;
        let check_at = self.core.clock.now() + RECONCILE_AFTER;
        let first = payment_data.payment.as_ref();
        match self.core.complete(&attempt, &created, first, check_at).await? {
            Some(subscription) => Ok(Subscribed {
                subscription,
                payment_data,
            }),
            None => {
                // Another actor ended the attempt without seeing this subscription: it must not be charged.
                self.core.gateway.cancel(&created.id).await?;
                Err(BillingError::Contended)
            }
        }
    }

    /// Inserts an attempt as the account's live subscription. Reconciles an existing attempt first: its request may
    /// have lost the gateway's response, or its server may have crashed.
    async fn reserve(&self, tenant: &Tenant, validated: &ValidatedSubscribe) -> Result<Subscription, BillingError> {
        for _ in 0..2 {
            let now = self.core.clock.now();
            let attempt = attempt(tenant, validated, self.core.ids.next(), now);
            match self.core.store.reserve(&attempt).await? {
                ReserveOutcome::Done => return Ok(attempt),
                ReserveOutcome::Taken(other) if other.is_attempt() => {
                    if !self.core.reconcile(&other).await? {
                        let text = "has a subscription attempt in progress; try again in a minute";
                        return Err(FieldErrors::one("plan", text).into());
                    }
                }
                ReserveOutcome::Taken(_) => break,
            }
        }
        let text = "cannot be subscribed to: the account already has a subscription; change its plan instead";
        Err(FieldErrors::one("plan", text).into())
    }

    /// Creates the customer and the subscription at the gateway.
    async fn create_at_gateway(
        &self,
        tenant: &Tenant,
        attempt: &Subscription,
        name: String,
        validated: ValidatedSubscribe,
    ) -> Result<GatewaySubscription, (PaymentGatewayError, FailedCall)> {
        let not_created = |error| (error, FailedCall::NotCreated);
        let remote_address = tenant.actor.ip_address.clone().unwrap_or_default();
        let holder_email = validated.card.as_ref().map(|(_, holder)| holder.email.clone());
        let customer = GatewayCustomerInput {
            account_id: tenant.account_id,
            name,
            email: validated.billing_email.or(holder_email),
            tax_number: validated.tax_number,
        };
        let customer = self.core.gateway.customer(&customer).await.map_err(not_created)?;
        let input = GatewaySubscriptionInput {
            reference: attempt.id,
            customer,
            billing_type: validated.billing_type,
            value: attempt.value,
            cycle: validated.cycle,
            first_due: gateway_day(attempt.created_at + time_to_pay(validated.billing_type)),
            description: format!("Recado {}", plan_name(validated.plan.id)),
            card: validated.card.map(|(card, holder)| CardPayment {
                card,
                holder,
                remote_address,
            }),
        };
        match self.core.gateway.subscribe(&input).await {
            Ok(created) => Ok(created),
            Err(error @ (PaymentGatewayError::Failed(_) | PaymentGatewayError::Unanswered(_))) => {
                self.find_after_error(attempt, error).await
            }
            Err(error) => Err((error, FailedCall::NotCreated)),
        }
    }

    /// Looks up the subscription after a missing response or a server error: the gateway may have created it.
    async fn find_after_error(
        &self,
        attempt: &Subscription,
        error: PaymentGatewayError,
    ) -> Result<GatewaySubscription, (PaymentGatewayError, FailedCall)> {
        let has_ended = matches!(error, PaymentGatewayError::Failed(_));
        match self.core.gateway.find(attempt.id).await {
            Ok(Some(created)) => Ok(created),
            Ok(None) if has_ended => Err((error, FailedCall::NotFound)),
            Err(_) if has_ended => Err((error, FailedCall::Unknown(Duration::ZERO))),
            Ok(None) | Err(_) => Err((error, FailedCall::Unknown(UNANSWERED_LEASE))),
        }
    }

    /// Deletes, abandons or defers the attempt of a failed call. Returns the error for the caller.
    async fn end_failed_attempt(
        &self,
        attempt: &Subscription,
        (error, failed_call): (PaymentGatewayError, FailedCall),
    ) -> Result<BillingError, BillingError> {
        match failed_call {
            FailedCall::NotCreated => self.core.delete_attempt(attempt).await?,
            FailedCall::NotFound => self.core.abandon(attempt).await?,
            FailedCall::Unknown(lease) => self.core.defer_intent(attempt, lease).await?,
        }
        Ok(error.into())
    }
}

/// What is known about the gateway after a failed call.
#[derive(Clone, Copy)]
enum FailedCall {
    /// The gateway created nothing.
    NotCreated,
    /// The call has ended, and a lookup found no subscription.
    NotFound,
    /// The gateway may still process the call or could not be asked. The reconciler asks after this time.
    Unknown(Duration),
}

/// Builds the row of an attempt.
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
