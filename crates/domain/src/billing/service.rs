//! Read use cases of billing, and the error of all billing use cases.

use std::sync::Arc;

use thiserror::Error;

use super::workflow::SubscriptionWorkflow;
use super::{
    Description, GatewayPayment, Overview, Payment, PaymentGateway, PaymentGatewayError, ReconcileError,
    SubscriptionStore,
};
use crate::shared::{Clock, FieldErrors, Ids, Page, PageQuery, StoreError, Tenant};

/// Error of a billing use case.
#[derive(Debug, Error)]
pub enum BillingError {
    /// The account has no live subscription, or no such payment.
    #[error("there is no such subscription or payment")]
    NotFound,
    /// The input is invalid, or the usage exceeds the plan's limits.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error("the payment gateway refused the input")]
    Refused(Vec<Description>),
    /// The gateway is not configured, unavailable or failing.
    #[error(transparent)]
    Gateway(PaymentGatewayError),
    /// Another request or worker is changing the subscription.
    #[error("The subscription is being changed at the same time; try again")]
    Contended,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PaymentGatewayError> for BillingError {
    fn from(error: PaymentGatewayError) -> Self {
        match error {
            PaymentGatewayError::Refused(descriptions) => Self::Refused(descriptions),
            error @ (PaymentGatewayError::NotConfigured
            | PaymentGatewayError::NotDone(_)
            | PaymentGatewayError::Failed(_)
            | PaymentGatewayError::Unanswered(_)
            | PaymentGatewayError::Missing) => Self::Gateway(error),
        }
    }
}

impl From<ReconcileError> for BillingError {
    /// A refusal during reconciliation concerns Recado's own request, so it does not become `Refused`.
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Gateway(error) => Self::Gateway(error),
            ReconcileError::Store(error) => Self::Store(error),
        }
    }
}

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
