//! In-memory payment gateway. Injected faults make a call fail before or after its effect.

use async_trait::async_trait;

use super::fakes::Fixture;
use crate::billing::*;
use crate::shared::*;

#[async_trait]
impl PaymentGateway for Fixture {
    async fn customer(&self, _: &GatewayCustomerInput) -> Result<String, PaymentGatewayError> {
        self.call("customer", |_| Ok("cus_1".into()))
    }

    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError> {
        self.call("subscribe", |state| {
            let number = state.remote.len() + 1;
            let created = GatewaySubscription {
                id: format!("sub_{number}"),
                customer: input.customer.clone(),
                value: Some(input.value),
                cycle: Some(input.cycle),
                deleted: false,
            };
            state.remote.push((input.reference, created.clone()));
            let is_card = input.card.is_some();
            state.remote_payments.push(GatewayPayment {
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
            let mut remote = state.remote.iter();
            let found = remote.find(|(id, subscription)| *id == reference && !subscription.deleted);
            Ok(found.map(|(_, subscription)| subscription.clone()))
        })
    }

    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.call("subscription", |state| {
            let mut remote = state.remote.iter();
            let found = remote.find(|(_, subscription)| subscription.id == id);
            Ok(found.map(|(_, subscription)| subscription.clone()))
        })
    }

    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError> {
        self.call("change", |state| {
            let mut remote = state.remote.iter_mut();
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
                .remote
                .iter_mut()
                .filter(|(_, subscription)| subscription.id == id);
            remote.for_each(|(_, subscription)| subscription.deleted = true);
            Ok(())
        })
    }

    async fn first_payment(&self, id: &str, _: BillingType) -> PaymentData {
        let payment = self.call("first_payment", |state| {
            let mut payments = state.remote_payments.iter();
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
            let payments = state.remote_payments.iter();
            let own = payments.filter(|payment| payment.subscription.as_deref() == Some(id));
            Ok(own.cloned().collect())
        })
    }

    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError> {
        self.call("payment", |state| {
            Ok(state.remote_payments.iter().find(|payment| payment.id == id).cloned())
        })
    }
}
