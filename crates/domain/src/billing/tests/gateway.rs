//! A gateway in memory. It fails as scripted, before or after it did what it was asked.

use async_trait::async_trait;

use super::fakes::Fixture;
use crate::billing::*;
use crate::shared::*;

#[async_trait]
impl PaymentGateway for Fixture {
    async fn customer(&self, _: &GatewayCustomerInput) -> Result<String, PaymentGatewayError> {
        self.called("customer", |_| Ok("cus_1".into()))
    }

    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError> {
        self.called("subscribe", |state| {
            let number = state.remote.len() + 1;
            let made = GatewaySubscription {
                id: format!("sub_{number}"),
                customer: input.customer.clone(),
                value: Some(input.value),
                cycle: input.cycle.as_str().into(),
                deleted: false,
            };
            state.remote.push((input.reference, made.clone()));
            let is_card = input.card.is_some();
            state.remote_payments.push(GatewayPayment {
                id: format!("pay_{number}"),
                subscription: Some(made.id.clone()),
                customer: Some(input.customer.clone()),
                billing_type: input.billing_type.as_str().into(),
                status: if is_card { "CONFIRMED" } else { "PENDING" }.into(),
                value: Some(input.value),
                invoice_url: None,
                bank_slip_url: None,
                due_date: Some(input.first_due),
            });
            Ok(made)
        })
    }

    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.called("find", |state| {
            let mut known = state.remote.iter();
            let found = known.find(|(of, known)| *of == reference && !known.deleted);
            Ok(found.map(|(_, known)| known.clone()))
        })
    }

    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.called("subscription", |state| {
            let mut known = state.remote.iter();
            Ok(known.find(|(_, known)| known.id == id).map(|(_, known)| known.clone()))
        })
    }

    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError> {
        self.called("change", |state| {
            let mut known = state.remote.iter_mut();
            let (_, known) = known
                .find(|(_, known)| known.id == id)
                .ok_or(PaymentGatewayError::Missing)?;
            (known.value, known.cycle) = (Some(value), cycle.as_str().into());
            Ok(())
        })
    }

    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError> {
        self.called("cancel", |state| {
            let known = state.remote.iter_mut().filter(|(_, known)| known.id == id);
            known.for_each(|(_, known)| known.deleted = true);
            Ok(())
        })
    }

    async fn first_payment(&self, id: &str, _: BillingType) -> PaymentData {
        let payment = self.called("first_payment", |state| {
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
        self.called("payments", |state| {
            let payments = state.remote_payments.iter();
            let of_this = payments.filter(|payment| payment.subscription.as_deref() == Some(id));
            Ok(of_this.cloned().collect())
        })
    }

    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError> {
        self.called("payment", |state| {
            Ok(state.remote_payments.iter().find(|payment| payment.id == id).cloned())
        })
    }
}
