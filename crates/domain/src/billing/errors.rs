//! Errors of the billing use cases.

use thiserror::Error;

use super::{Description, PaymentGatewayError};
use crate::shared::{Conflict, FieldErrors, StoreError};

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
    Store(StoreError),
}

impl From<Conflict> for BillingError {
    fn from(Conflict: Conflict) -> Self {
        Self::Contended
    }
}

impl From<StoreError> for BillingError {
    fn from(error: StoreError) -> Self {
        if error.is_conflict() {
            Self::Contended
        } else {
            Self::Store(error)
        }
    }
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
            ReconcileError::Store(error) => error.into(),
        }
    }
}

/// Why a subscription could not be reconciled.
#[derive(Debug, Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Gateway(#[from] PaymentGatewayError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReconcileError {
    /// Ignores a missing gateway configuration: reporting it in every iteration would only fill the log.
    pub(super) fn ignore_not_configured(self) -> Result<(), Self> {
        match self {
            Self::Gateway(PaymentGatewayError::NotConfigured) => Ok(()),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_in_the_store_is_contention_and_no_outage() {
        assert!(matches!(StoreError::from(Conflict).into(), BillingError::Contended));
        let outage = StoreError::Unavailable("down".into());
        assert!(matches!(outage.into(), BillingError::Store(_)));
    }
}
