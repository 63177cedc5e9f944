//! The payment gateway: its calls fail before or after their effect, or have it after the client has given up.

use std::sync::Arc;

use async_trait::async_trait;
use time::Duration;

use super::executor::{OTHER_SYSTEMS, Wait};
use super::stores::Stores;
use crate::billing::in_memory::FakePaymentGateway;
use crate::billing::{
    BillingType, Cents, Cycle, GatewayCustomerInput, GatewayPayment, GatewaySubscription, GatewaySubscriptionInput,
    PaymentData, PaymentGateway, PaymentGatewayError, PaymentStatus,
};
use crate::shared::SubscriptionId;

/// The longest time of a call, before and after the gateway acts, in milliseconds.
const LATENCY: usize = 2000;

/// The longest time after which a call without a response has its effect, in seconds. It is shorter than
/// `UNANSWERED_LEASE`.
const LATE_EFFECT: usize = 25;

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureMode {
    NotDone,
    FailedBefore,
    FailedAfter,
    UnansweredBefore,
    UnansweredAfter,
    /// No response, and the effect comes later.
    Late,
}

impl FailureMode {
    fn error(self) -> PaymentGatewayError {
        let text = "injected".to_owned();
        match self {
            Self::NotDone => PaymentGatewayError::NotDone(text),
            Self::FailedBefore | Self::FailedAfter => PaymentGatewayError::Failed(text),
            Self::UnansweredBefore | Self::UnansweredAfter | Self::Late => PaymentGatewayError::Unanswered(text),
        }
    }
}

#[derive(Clone)]
pub(super) struct SimulatedPayments {
    pub(super) stores: Arc<Stores>,
    pub(super) gateway: Arc<FakePaymentGateway>,
}

impl SimulatedPayments {
    /// Makes a call. `late`: its effect if it comes after the client has given up. None: the call only reads.
    async fn call<T: Send>(
        &self,
        label: &'static str,
        effect: impl Future<Output = Result<T, PaymentGatewayError>> + Send,
        late: Option<impl Future<Output = ()> + Send + 'static>,
    ) -> Result<T, PaymentGatewayError> {
        let scheduler = &self.stores.scheduler;
        scheduler.latency(label, LATENCY).await;
        let modes = [
            FailureMode::NotDone,
            FailureMode::FailedBefore,
            FailureMode::FailedAfter,
            FailureMode::UnansweredBefore,
            FailureMode::UnansweredAfter,
            FailureMode::Late,
        ];
        let fails = scheduler.percent(self.stores.failure_rates().payments);
        let failure = scheduler.pick(&modes).filter(|_| fails);
        let output = match failure {
            None | Some(FailureMode::FailedAfter | FailureMode::UnansweredAfter) => effect.await,
            Some(FailureMode::Late) => {
                if let Some(late) = late {
                    let (clock, seconds) = (scheduler.clone(), scheduler.below(LATE_EFFECT));
                    scheduler.spawn("late gateway call", OTHER_SYSTEMS, async move {
                        let delay = Duration::seconds(i64::try_from(seconds).unwrap());
                        clock.sleep_for(delay, Wait::Busy).await;
                        late.await;
                    });
                }
                Err(FailureMode::Late.error())
            }
            Some(mode) => Err(mode.error()),
        };
        scheduler.latency(label, LATENCY).await;
        match failure {
            Some(mode) => output.and(Err(mode.error())),
            None => output,
        }
    }

    async fn read<T: Send>(
        &self,
        label: &'static str,
        effect: impl Future<Output = Result<T, PaymentGatewayError>> + Send,
    ) -> Result<T, PaymentGatewayError> {
        self.call(label, effect, None::<std::future::Ready<()>>).await
    }
}

/// Creates the subscription of a call without a response. It is charged like the one of the call.
async fn subscribe_late(gateway: Arc<FakePaymentGateway>, input: GatewaySubscriptionInput) {
    let is_card = input.billing_type == BillingType::CreditCard;
    let created = gateway.subscribe(&input).await.unwrap();
    let mut state = gateway.state();
    let payment = state
        .payments
        .iter_mut()
        .find(|row| row.subscription.as_ref() == Some(&created.id));
    payment.unwrap().status = match is_card {
        true => PaymentStatus::Confirmed,
        false => PaymentStatus::Pending,
    };
}

#[async_trait]
impl PaymentGateway for SimulatedPayments {
    async fn customer(&self, input: &GatewayCustomerInput) -> Result<String, PaymentGatewayError> {
        self.read("gateway: customer", self.gateway.customer(input)).await
    }

    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError> {
        let without_card = GatewaySubscriptionInput {
            customer: input.customer.clone(),
            description: input.description.clone(),
            card: None,
            ..*input
        };
        let late = subscribe_late(self.gateway.clone(), without_card);
        self.call("gateway: subscribe", self.gateway.subscribe(input), Some(late))
            .await
    }

    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.read("gateway: find", self.gateway.find(reference)).await
    }

    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        self.read("gateway: subscription", self.gateway.subscription(id)).await
    }

    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError> {
        let (gateway, late_id) = (self.gateway.clone(), id.to_owned());
        let late = async move { gateway.change(&late_id, value, cycle).await.unwrap_or_default() };
        self.call("gateway: change", self.gateway.change(id, value, cycle), Some(late))
            .await
    }

    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError> {
        let (gateway, late_id) = (self.gateway.clone(), id.to_owned());
        let late = async move { gateway.cancel(&late_id).await.unwrap_or_default() };
        self.call("gateway: cancel", self.gateway.cancel(id), Some(late)).await
    }

    async fn first_payment(&self, id: &str, billing_type: BillingType) -> PaymentData {
        let read = async { Ok(self.gateway.first_payment(id, billing_type).await) };
        self.read("gateway: first payment", read).await.unwrap_or_default()
    }

    async fn payments(&self, id: &str) -> Result<Vec<GatewayPayment>, PaymentGatewayError> {
        self.read("gateway: payments", self.gateway.payments(id)).await
    }

    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError> {
        self.read("gateway: payment", self.gateway.payment(id)).await
    }
}
