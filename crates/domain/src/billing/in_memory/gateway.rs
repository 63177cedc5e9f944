//! An in-memory payment gateway. Injected faults make a call fail before or after its effect.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::super::{
    BillingType, Cents, Cycle, GatewayCustomerInput, GatewayPayment, GatewaySubscription, GatewaySubscriptionInput,
    PaymentData, PaymentGateway, PaymentGatewayError, PaymentStatus,
};
use crate::shared::SubscriptionId;

/// An error that the gateway returns for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The call has no effect.
    Before(PaymentGatewayError),
    /// The call has its effect before it fails.
    After(PaymentGatewayError),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayState {
    /// The subscriptions with our ids.
    pub subscriptions: Vec<(SubscriptionId, GatewaySubscription)>,
    pub payments: Vec<GatewayPayment>,
    /// Each fails the next call of this name.
    pub injected_faults: VecDeque<(&'static str, InjectedFault)>,
    /// The names of all calls.
    pub calls: Vec<&'static str>,
}

/// A payment gateway over [`GatewayState`]. The number of a subscription is part of its id and of the id of its first
/// payment: `sub_1`, `pay_1`.
#[derive(Debug, Default)]
pub struct FakePaymentGateway(Mutex<GatewayState>);

impl FakePaymentGateway {
    pub fn new(state: GatewayState) -> Self {
        Self(Mutex::new(state))
    }

    pub fn state(&self) -> MutexGuard<'_, GatewayState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        call: &'static str,
        act: impl FnOnce(&mut GatewayState) -> Result<T, PaymentGatewayError>,
    ) -> Result<T, PaymentGatewayError> {
        let mut state = self.state();
        state.calls.push(call);
        let at = state.injected_faults.iter().position(|(name, _)| *name == call);
        match at.and_then(|at| state.injected_faults.remove(at)) {
            Some((_, InjectedFault::Before(error))) => Err(error),
            Some((_, InjectedFault::After(error))) => act(&mut state).and(Err(error)),
            None => act(&mut state),
        }
    }
}

#[async_trait]
impl PaymentGateway for FakePaymentGateway {
    async fn customer(&self, input: &GatewayCustomerInput) -> Result<String, PaymentGatewayError> {
        self.call("customer", |_| Ok(format!("cus_{}", input.account_id)))
    }

    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError> {
        self.call("subscribe", |state| {
            let number = state.subscriptions.len() + 1;
            let created = GatewaySubscription {
                id: format!("sub_{number}"),
                customer: input.customer.clone(),
                value: Some(input.value),
                cycle: Some(input.cycle),
                deleted: false,
            };
            state.subscriptions.push((input.reference, created.clone()));
            let is_card = input.card.is_some();
            state.payments.push(GatewayPayment {
                id: format!("pay_{number}"),
                subscription: Some(created.id.clone()),
                customer: Some(input.customer.clone()),
                billing_type: input.billing_type.as_str().into(),
                status: match is_card {
                    true => PaymentStatus::Confirmed,
                    false => PaymentStatus::Pending,
                },
                value: Some(input.value),
                invoice_url: None,
                bank_slip_url: None,
                due_date: Some(input.first_due),
            });
            Ok(created)
        })
    }

    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.call("find", |state| {
            let mut remote = state.subscriptions.iter();
            let found = remote.find(|(id, subscription)| *id == reference && !subscription.deleted);
            Ok(found.map(|(_, subscription)| subscription.clone()))
        })
    }

    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.call("subscription", |state| {
            let mut remote = state.subscriptions.iter();
            let found = remote.find(|(_, subscription)| subscription.id == id);
            Ok(found.map(|(_, subscription)| subscription.clone()))
        })
    }

    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError> {
        self.call("change", |state| {
            let mut remote = state.subscriptions.iter_mut();
            let (_, subscription) = remote
                .find(|(_, subscription)| subscription.id == id)
                .ok_or(PaymentGatewayError::Missing)?;
            (subscription.value, subscription.cycle) = (Some(value), Some(cycle));
            Ok(())
        })
    }

    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError> {
        self.call("cancel", |state| {
            let remote = state
                .subscriptions
                .iter_mut()
                .filter(|(_, subscription)| subscription.id == id);
            remote.for_each(|(_, subscription)| subscription.deleted = true);
            Ok(())
        })
    }

    async fn first_payment(&self, id: &str, _: BillingType) -> PaymentData {
        let payment = self.call("first_payment", |state| {
            let mut payments = state.payments.iter();
            Ok(payments
                .find(|payment| payment.subscription.as_deref() == Some(id))
                .cloned())
        });
        PaymentData {
            payment: payment.ok().flatten(),
            ..PaymentData::default()
        }
    }

    async fn payments(&self, id: &str) -> Result<Vec<GatewayPayment>, PaymentGatewayError> {
        self.call("payments", |state| {
            let payments = state.payments.iter();
            let own = payments.filter(|payment| payment.subscription.as_deref() == Some(id));
            Ok(own.cloned().collect())
        })
    }

    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError> {
        self.call("payment", |state| {
            Ok(state.payments.iter().find(|payment| payment.id == id).cloned())
        })
    }
}
