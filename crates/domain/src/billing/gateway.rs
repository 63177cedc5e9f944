//! Port to the payment gateway, with its inputs, results and errors.

use async_trait::async_trait;
use serde::Serialize;
use thiserror::Error;
use time::{Date, OffsetDateTime};

use super::{BillingType, CardPayment, Cents, Cycle, PaymentStatus, TaxNumber};
use crate::shared::{AccountId, SubscriptionId, redacted_debug};

/// One error that the gateway reports about refused input. Never contains a card number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    pub code: String,
    /// Human-readable text.
    pub description: String,
}

/// Why a gateway call failed. The variants differ in whether the call may have had an effect.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PaymentGatewayError {
    /// URL or API key is missing.
    #[error("the payment gateway is not configured")]
    NotConfigured,
    /// No effect: the gateway was unreachable, refused our API key, or limited our request rate.
    #[error("the payment gateway was not asked: {0}")]
    NotDone(String),
    /// The gateway responded with a server error or an unreadable body. The call may have had its effect and has ended.
    #[error("the payment gateway failed: {0}")]
    Failed(String),
    /// No response. The gateway may still be processing the call.
    #[error("the payment gateway did not answer: {0}")]
    Unanswered(String),
    /// The gateway refused the input.
    #[error("the payment gateway refused the input")]
    Refused(Vec<Description>),
    /// The gateway has no such customer, subscription or payment.
    #[error("the payment gateway has no such object")]
    Missing,
}

/// The payer.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayCustomerInput {
    /// External reference of the customer at the gateway.
    pub account_id: AccountId,
    /// Name of the account.
    pub name: String,
    /// The gateway sends its mails about payments to this address.
    pub email: Option<String>,
    /// CPF or CNPJ.
    pub tax_number: TaxNumber,
}

redacted_debug!(GatewayCustomerInput {});

/// A subscription to create at the gateway.
#[derive(Debug)]
pub struct GatewaySubscriptionInput {
    /// External reference of the subscription at the gateway.
    pub reference: SubscriptionId,
    /// The gateway's customer id.
    pub customer: String,
    pub billing_type: BillingType,
    /// Price of a period.
    pub value: Cents,
    pub cycle: Cycle,
    /// Due date of the first payment.
    pub first_due: Date,
    /// Text on the payer's invoice.
    pub description: String,
    /// Card and holder; only for `BillingType::CreditCard`.
    pub card: Option<CardPayment>,
}

/// A subscription at the gateway. Its ids are the gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySubscription {
    pub id: String,
    pub customer: String,
    /// Price of a period; `None` if it cannot be parsed.
    pub value: Option<Cents>,
    /// `None` if the gateway has another cycle.
    pub cycle: Option<Cycle>,
    /// Whether it was deleted at the gateway.
    pub deleted: bool,
}

/// A payment at the gateway. Its ids are the gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPayment {
    pub id: String,
    pub subscription: Option<String>,
    pub customer: Option<String>,
    /// Payment method as the gateway names it.
    pub billing_type: String,
    pub status: PaymentStatus,
    /// `None` if the amount cannot be parsed.
    pub value: Option<Cents>,
    pub invoice_url: Option<String>,
    pub bank_slip_url: Option<String>,
    pub due_date: Option<Date>,
}

/// The data that a payer needs for the first payment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaymentData {
    /// The payment; `None` until the gateway has created it.
    pub payment: Option<GatewayPayment>,
    /// Pix QR code as a base64 image.
    pub pix_qr_code: Option<String>,
    /// Pix code as text.
    pub pix_payload: Option<String>,
    pub pix_expires_at: Option<OffsetDateTime>,
    /// Digits of the boleto that the payer types in.
    pub boleto_line: Option<String>,
}

/// Port to the payment gateway.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PaymentGateway: Send + Sync {
    /// Returns the gateway's customer id of the account. MUST find the customer by account id and update it, or create
    /// it. After a lost response MUST search again before creating, because a second creation makes a second customer.
    async fn customer(&self, input: &GatewayCustomerInput) -> Result<String, PaymentGatewayError>;

    /// Creates a subscription. MUST NOT retry: the gateway does not deduplicate.
    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError>;

    /// Finds a subscription that is not deleted by its external reference.
    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError>;

    /// Finds a subscription by the gateway's id.
    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError>;

    /// Changes price and cycle. MUST also change the open payments.
    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError>;

    /// Deletes a subscription with its open payments. Succeeds if it is already deleted.
    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError>;

    /// Returns the first payment of a new subscription and its payment data. Waits a short time for the gateway to
    /// create it. Fields that cannot be read are `None`.
    async fn first_payment(&self, id: &str, billing_type: BillingType) -> PaymentData;

    /// Returns the newest payments of a subscription, at most 100.
    async fn payments(&self, id: &str) -> Result<Vec<GatewayPayment>, PaymentGatewayError>;

    /// Finds a payment by the gateway's id.
    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError>;
}
