//! Plans, subscriptions and the events that the payment gateway reports about their payments.
//!
//! Owns the plan catalogue, the subscription states, the rule by which gateway events change them, the payment history
//! and the entitlement (whether an account's plan is active). The HTTP calls to the gateway are in the gateways crate.
//! The campaigns context counts messages.

mod calendar;
mod cancel;
mod card;
mod change;
mod effects;
mod entitlement;
mod errors;
mod events;
mod gateway;
mod gateway_event;
#[cfg(any(test, feature = "mocks"))]
pub mod in_memory;
mod input;
mod model;
mod money;
mod payment_status;
mod plans;
mod ports;
mod reconciler;
mod service;
mod status;
mod subscribe;
mod tax_number;
mod usage;
mod webhooks;
mod workflow;

#[cfg(test)]
mod tests;

pub use calendar::gateway_day;
pub use card::{Card, CardHolder, CardInput, CardPayment, HolderInput};
pub use change::{PlanChange, PlanChangeInput};
pub use effects::{EventReceipt, SubscriptionFacts, effect};
pub use entitlement::{PlanEntitlement, SubscriptionState, remaining_plan};
pub use errors::{BillingError, ReconcileError};
pub use events::{EVENT_LEASE, GatewayEvents};
pub use gateway::{
    Description, GatewayCustomerInput, GatewayPayment, GatewaySubscription, GatewaySubscriptionInput, PaymentData,
    PaymentGateway, PaymentGatewayError,
};
pub use gateway_event::{
    GatewayEvent, GatewayEventData, GatewayEventKind, PaymentSnapshot, RecordOutcome, StoredEvent,
};
pub use input::{SubscribeInput, Subscribed};
pub use model::{
    BillingType, Cancelled, Change, ChangeOutcome, INTENT_CHECK_PAUSE, Initiator, Intent, Overview, Payment,
    PendingIntent, ReserveOutcome, Subscription,
};
pub use money::Cents;
pub use payment_status::PaymentStatus;
pub use plans::{Cycle, FREE_PLAN, PLANS, Plan, PlanLimits, better_plan, plan, plan_limits};
pub use ports::{BillingAccountStore, GatewayEventReader, GatewayEventStore, SubscriptionStore, SubscriptionWorkStore};
pub use reconciler::SubscriptionReconciler;
pub use service::Billing;
pub use status::{SubscriptionCommand, SubscriptionStatus, transition};
pub use tax_number::TaxNumber;
pub use usage::{Usage, exceeded};
pub use webhooks::{PublishedSubscription, changed_event};
pub use workflow::UNANSWERED_LEASE;

#[cfg(any(test, feature = "mocks"))]
pub use gateway::MockPaymentGateway;
#[cfg(any(test, feature = "mocks"))]
pub use ports::{
    MockBillingAccountStore, MockGatewayEventReader, MockGatewayEventStore, MockSubscriptionStore,
    MockSubscriptionWorkStore,
};
