//! Plans, subscriptions to them, and what the payment gateway tells of their payments.
//!
//! Owns the catalogue, the life of a subscription, the rule by which the gateway's events change it, the history of
//! payments, and the question whether an account's plan is active. Does not own how the gateway is called (the
//! gateways crate) nor the counting of messages (campaigns).

mod calendar;
mod cancel;
mod card;
mod change;
mod completion;
mod effects;
mod events;
mod gateway;
mod input;
mod model;
mod money;
mod news;
mod plans;
mod ports;
mod service;
mod settlement;
mod standing;
mod status;
mod subscribe;
mod tax_number;
mod usage;

#[cfg(test)]
mod tests;

pub use calendar::{gateway_date, gateway_day, gateway_moment};
pub use card::{Card, CardHolder, CardInput, CardPayment, HolderInput};
pub use change::{PlanChange, PlanChangeInput};
pub use completion::UNANSWERED_DOUBT;
pub use effects::{Facts, Told, effect};
pub use events::{EVENT_LEASE, GatewayEvents};
pub use gateway::{
    CustomerOrder, Description, GatewayFault, GatewayPayment, GatewaySubscription, PaymentData, PaymentGateway,
    SubscriptionOrder,
};
pub use input::{SubscribeInput, Subscribed};
pub use model::{
    BillingType, By, Cancelled, Cycle, INTENT_CHECK_PAUSE, Intent, Overview, Payment, PendingIntent, Subscription,
};
pub use money::Cents;
pub use news::{GatewayEvent, GatewayNews, NewsKind, PaymentNews, Recorded, StoredEvent};
pub use plans::{FREE_PLAN, PLANS, Plan, PlanLimits, better_plan, plan, plan_limits};
pub use ports::{Change, EventStore, Reserved, SubscriptionStore, WorkStore, Writing};
pub use service::{Billing, BillingError};
pub use settlement::{Settlement, SettlementError};
pub use standing::{Standing, SubscriptionState, remaining_plan};
pub use status::{SubscriptionCommand, SubscriptionStatus, transition};
pub use tax_number::TaxNumber;
pub use usage::{Usage, exceeded};

#[cfg(any(test, feature = "mocks"))]
pub use gateway::MockPaymentGateway;
#[cfg(any(test, feature = "mocks"))]
pub use ports::{MockEventStore, MockSubscriptionStore, MockWorkStore};
