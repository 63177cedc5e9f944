//! Read use cases of billing, and the error of all billing use cases.

use std::sync::Arc;

use super::workflow::SubscriptionWorkflow;
use super::{BillingAccountStore, BillingError, GatewayPayment, Overview, Payment, PaymentGateway, SubscriptionStore};
use crate::shared::{Clock, Ids, Page, PageQuery, Tenant};

/// Use cases of billing.
pub struct Billing {
    pub(super) accounts: Arc<dyn BillingAccountStore>,
    pub(super) core: SubscriptionWorkflow,
}

impl Billing {
    pub fn new(
        accounts: Arc<dyn BillingAccountStore>,
        store: Arc<dyn SubscriptionStore>,
        gateway: Arc<dyn PaymentGateway>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            accounts,
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
        Ok(self.accounts.overview(tenant.account_id).await?)
    }

    /// Returns one page of the account's payments.
    pub async fn history(&self, tenant: &Tenant, page: PageQuery) -> Result<Page<Payment>, BillingError> {
        Ok(self.accounts.history(tenant.account_id, page).await?)
    }

    /// Reads a payment of the account from the gateway. A payment of another account is `NotFound`.
    pub async fn payment(&self, tenant: &Tenant, id: &str) -> Result<GatewayPayment, BillingError> {
        let payment = self.core.gateway.payment(id).await?.ok_or(BillingError::NotFound)?;
        match self.accounts.owns(tenant.account_id, &payment).await? {
            true => Ok(payment),
            false => Err(BillingError::NotFound),
        }
    }
}
