//! The use cases of people: what there is to choose, what the account has, its history, a payment as it stands.

use std::sync::Arc;

use thiserror::Error;

use super::workflow::SubscriptionWorkflow;
use super::{
    Description, GatewayPayment, Overview, Payment, PaymentGateway, PaymentGatewayError, ReconcileError,
    SubscriptionStore,
};
use crate::shared::{Clock, FieldErrors, Ids, Page, PageQuery, StoreError, Tenant};

/// Why something about billing did not happen.
#[derive(Debug, Error)]
pub enum BillingError {
    /// There is no live subscription, or no such payment.
    #[error("there is no such subscription or payment")]
    NotFound,
    /// The input is wrong, or the usage does not fit.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The gateway refused the input.
    #[error("the payment gateway refused the input")]
    Refused(Vec<Description>),
    /// The gateway cannot be used now.
    #[error(transparent)]
    Gateway(PaymentGatewayError),
    /// Somebody else changes the subscription.
    #[error("The subscription is being changed at the same time; try again")]
    Contended,
    /// The store failed.
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
    /// What the gateway refuses here is a question of ours, not the caller's input.
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Gateway(error) => Self::Gateway(error),
            ReconcileError::Store(error) => Self::Store(error),
        }
    }
}

/// The use cases of billing.
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

    /// What the account has and uses.
    pub async fn overview(&self, tenant: &Tenant) -> Result<Overview, BillingError> {
        Ok(self.core.store.overview(tenant.account_id).await?)
    }

    /// The account's payments.
    pub async fn history(&self, tenant: &Tenant, page: PageQuery) -> Result<Page<Payment>, BillingError> {
        Ok(self.core.store.history(tenant.account_id, page).await?)
    }

    /// A payment of the account as the gateway has it now. Another account's is no payment.
    pub async fn payment(&self, tenant: &Tenant, id: &str) -> Result<GatewayPayment, BillingError> {
        let payment = self.core.gateway.payment(id).await?.ok_or(BillingError::NotFound)?;
        match self.core.store.owns(tenant.account_id, &payment).await? {
            true => Ok(payment),
            false => Err(BillingError::NotFound),
        }
    }
}
