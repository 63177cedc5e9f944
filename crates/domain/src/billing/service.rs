//! Read use cases of billing, and the error of all billing use cases.

use std::sync::Arc;

use super::workflow::SubscriptionWorkflow;
use super::{BillingError, GatewayPayment, Overview, Payment, PaymentGateway, SubscriptionStore};
use crate::shared::{Clock, Ids, Page, PageQuery, Tenant};

/// Use cases of billing.
pub struct Billing {
    pub(super) core: SubscriptionWorkflow,
}

impl Billing {
    pub fn new(
        store: Arc<dyn SubscriptionStore>,
        gateway: Arc<dyn PaymentGateway>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            core: SubscriptionWorkflow {
                store,
                gateway,
                clock,
                ids,
            },
        }
    }

    /// Returns the account's plan, live subscription and usage.
    pub async fn overview(&self, tenant: &Tenant) -> Result<Overview, BillingError> {
        Ok(self.core.store.overview(tenant.account_id).await?)
    }

    /// Returns one page of the account's payments.
    pub async fn history(&self, tenant: &Tenant, page: PageQuery) -> Result<Page<Payment>, BillingError> {
        Ok(self.core.store.history(tenant.account_id, page).await?)
    }

    /// Reads a payment of the account from the gateway. A payment of another account is `NotFound`.
    pub async fn payment(&self, tenant: &Tenant, id: &str) -> Result<GatewayPayment, BillingError> {
        let payment = self.core.gateway.payment(id).await?.ok_or(BillingError::NotFound)?;
        match self.core.store.owns(tenant.account_id, &payment).await? {
            true => Ok(payment),
            false => Err(BillingError::NotFound),
        }
    }
}
