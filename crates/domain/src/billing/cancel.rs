//! Cancels a subscription: stores an intent, calls the gateway, then applies the cancellation here.

use super::change::CHANGE_LEASE;
use super::{Billing, BillingError, Cancelled, Change, Initiator, Intent, PaymentGatewayError, Subscription};
use crate::shared::Tenant;

impl Billing {
    /// Cancels the subscription. The plan stays usable until the end of the paid period.
    pub async fn cancel(&self, tenant: &Tenant) -> Result<Cancelled, BillingError> {
        let current = self.live(tenant).await?;
        let intent = Intent::Cancel {
            initiator: Initiator::from(tenant),
        };
        let intended = self
            .core
            .store_intent(&current, intent, Change::of(current.clone()), CHANGE_LEASE)
            .await?;
        self.cancel_at_gateway(&intended).await?;
        let cancelled = self
            .core
            .finish_cancel(&intended)
            .await?
            .ok_or(BillingError::Contended)?;
        Ok(Cancelled {
            effective_until: cancelled.current_period_end,
        })
    }

    async fn cancel_at_gateway(&self, subscription: &Subscription) -> Result<(), BillingError> {
        let Some(id) = subscription.gateway_subscription_id.as_deref() else {
            return Ok(());
        };
        let error = match self.core.gateway.cancel(id).await {
            Ok(()) => return Ok(()),
            Err(error @ (PaymentGatewayError::Failed(_) | PaymentGatewayError::Unanswered(_))) => error,
            Err(error) => {
                self.core.clear_intent(subscription).await?;
                return Err(error.into());
            }
        };
        match self.core.gateway.subscription(id).await {
            Ok(None) => return Ok(()),
            Ok(Some(found)) if found.deleted => return Ok(()),
            lookup => {
                self.core
                    .resolve_failed_intent(subscription, &error, lookup.is_ok())
                    .await?
            }
        }
        Err(error.into())
    }
}
