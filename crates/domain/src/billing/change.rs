//! Changes the plan or the cycle: stores an intent, calls the gateway, then applies the change here.

use time::Duration;

use super::input::{paid_plan, parse_enum};
use super::{Billing, BillingError, Change, Cycle, Initiator, Intent, PaymentGatewayError, Subscription, exceeded};
use crate::shared::{FieldErrors, Tenant};

/// Lease of the intent of a change or cancellation. MUST be longer than the gateway call and the lookup after it.
pub(super) const CHANGE_LEASE: Duration = Duration::seconds(60);

/// Plan change request, not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChangeInput {
    /// Plan id.
    pub plan: Option<String>,
    /// `None` keeps the current cycle.
    pub cycle: Option<String>,
}

/// Result of a plan change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChange {
    /// The subscription after the change.
    pub subscription: Subscription,
    /// Plan id before the change.
    pub previous_plan: String,
    /// Plan id after the change.
    pub new_plan: String,
}

impl Billing {
    /// Changes the plan, the cycle, or both.
    pub async fn change(&self, tenant: &Tenant, input: &PlanChangeInput) -> Result<PlanChange, BillingError> {
        let mut errors = FieldErrors::default();
        let plan = paid_plan(&mut errors, input.plan.as_deref());
        let cycle: Option<Cycle> = match &input.cycle {
            None => None,
            Some(value) => parse_enum(&mut errors, "cycle", Some(value)),
        };
        let plan = match (plan, errors.into_result()) {
            (Some(plan), Ok(())) => plan,
            (_, Err(errors)) => return Err(errors.into()),
            (None, Ok(())) => return Err(FieldErrors::one("plan", "is required").into()),
        };
        let current = self.live(tenant).await?;
        let cycle = cycle.unwrap_or(current.cycle);
        let changes_plan = current.plan != plan.id;
        if !changes_plan && current.cycle == cycle {
            return Err(FieldErrors::one("plan", "and cycle are already those of the subscription").into());
        }
        let limits = changes_plan.then_some(plan.limits);
        if let Some(limits) = &limits {
            let usage = self.accounts.overview(tenant.account_id).await?.usage;
            exceeded(&usage, limits)?;
        }
        let intent = Intent::Change {
            initiator: Initiator::from(tenant),
            plan: plan.id.to_owned(),
            cycle,
            value: plan.price(cycle),
        };
        // The store counts the usage again in its transaction, so that no concurrent insert exceeds the limits.
        let change = Change {
            limits,
            ..Change::of(current.clone())
        };
        let intended = self.core.store_intent(&current, intent, change, CHANGE_LEASE).await?;
        self.change_at_gateway(&intended, plan.price(cycle), cycle).await?;
        let changed = self.core.finish_change(&intended).await?;
        Ok(PlanChange {
            subscription: changed.ok_or(BillingError::Contended)?,
            previous_plan: current.plan,
            new_plan: plan.id.to_owned(),
        })
    }

    async fn change_at_gateway(
        &self,
        subscription: &Subscription,
        value: super::Cents,
        cycle: Cycle,
    ) -> Result<(), BillingError> {
        let Some(id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(());
        };
        let error = match self.core.gateway.change(id, value, cycle).await {
            Ok(()) => return Ok(()),
            Err(error @ (PaymentGatewayError::Failed(_) | PaymentGatewayError::Unanswered(_))) => error,
            Err(error) => {
                self.core.clear_intent(subscription).await?;
                return Err(error.into());
            }
        };
        match self.core.gateway.subscription(id).await {
            Ok(Some(found)) if found.value == Some(value) && found.cycle == Some(cycle) => return Ok(()),
            lookup => {
                self.core
                    .resolve_failed_intent(subscription, &error, lookup.is_ok())
                    .await?
            }
        }
        Err(error.into())
    }

    /// Returns the live subscription, without a pending intent. Reconciles a pending intent first: its request may have
    /// lost the gateway's response, or its server may have crashed.
    pub(super) async fn live(&self, tenant: &Tenant) -> Result<Subscription, BillingError> {
        for _ in 0..2 {
            let overview = self.accounts.overview(tenant.account_id).await?;
            let current = overview.subscription.ok_or(BillingError::NotFound)?;
            if current.pending.is_none() {
                return Ok(current);
            }
            if !self.core.reconcile(&current).await? {
                return Err(BillingError::Contended);
            }
        }
        Err(BillingError::Contended)
    }
}
