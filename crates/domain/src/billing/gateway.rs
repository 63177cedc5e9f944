//! The payment gateway as the domain knows it: what it is asked, and how it can fail.

use async_trait::async_trait;
use serde::Serialize;
use thiserror::Error;
use time::{Date, OffsetDateTime};

use super::{BillingType, CardPayment, Cents, Cycle, TaxNumber};
use crate::shared::{AccountId, SubscriptionId, redacted_debug};

/// One of the gateway's own words about what it refused. Never holds a card number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Its code.
    pub code: String,
    /// Its text, for people.
    pub description: String,
}

/// Why the gateway did not do as asked. What matters is what may have happened there all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PaymentGatewayError {
    /// It has no address or key.
    #[error("the payment gateway is not configured")]
    NotConfigured,
    /// Surely nothing was done: it was not reached, our key was refused, or we asked too often.
    #[error("the payment gateway was not asked: {0}")]
    NotDone(String),
    /// It answered with a fault of its own, or in words nobody can read; it may have done as asked, and is over with it.
    #[error("the payment gateway failed: {0}")]
    Failed(String),
    /// There was no answer; it may still be at it.
    #[error("the payment gateway did not answer: {0}")]
    Unanswered(String),
    /// It refused the input.
    #[error("the payment gateway refused the input")]
    Refused(Vec<Description>),
    /// The gateway has no such customer, subscription or payment.
    #[error("the payment gateway has no such object")]
    Missing,
}

/// Who pays.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayCustomerInput {
    /// The account: what the gateway knows the customer by.
    pub account_id: AccountId,
    /// The account's name.
    pub name: String,
    /// Where the gateway writes to.
    pub email: Option<String>,
    /// CPF or CNPJ.
    pub tax_number: TaxNumber,
}

redacted_debug!(GatewayCustomerInput {});

/// What is to be paid.
#[derive(Debug)]
pub struct GatewaySubscriptionInput {
    /// Our subscription: what the gateway knows it by.
    pub reference: SubscriptionId,
    /// The gateway's customer.
    pub customer: String,
    /// How is paid.
    pub billing_type: BillingType,
    /// What a period costs.
    pub value: Cents,
    /// How often is paid.
    pub cycle: Cycle,
    /// When the first payment is due.
    pub first_due: Date,
    /// What for, in words.
    pub description: String,
    /// The card and whose it is; for cards alone.
    pub card: Option<CardPayment>,
}

/// A subscription at the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySubscription {
    /// Its id there.
    pub id: String,
    /// Whose it is there.
    pub customer: String,
    /// What a period costs; none when that cannot be read.
    pub value: Option<Cents>,
    /// How often is paid, in the gateway's word.
    pub cycle: String,
    /// Whether it was removed there.
    pub deleted: bool,
}

/// A payment at the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPayment {
    /// Its id there.
    pub id: String,
    /// Of which subscription there.
    pub subscription: Option<String>,
    /// Whose it is there.
    pub customer: Option<String>,
    /// How it is paid, in the gateway's word.
    pub billing_type: String,
    /// The gateway's word for where it stands.
    pub status: String,
    /// How much; none when that cannot be read.
    pub value: Option<Cents>,
    /// Where it can be seen.
    pub invoice_url: Option<String>,
    /// Where its slip is.
    pub bank_slip_url: Option<String>,
    /// When it is due.
    pub due_date: Option<Date>,
}

/// What a payer needs for the first payment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaymentData {
    /// The payment; none while the gateway has not made it.
    pub payment: Option<GatewayPayment>,
    /// The Pix code as a picture, in base64.
    pub pix_qr_code: Option<String>,
    /// The Pix code as text.
    pub pix_payload: Option<String>,
    /// Until when the Pix code is good.
    pub pix_expires_at: Option<OffsetDateTime>,
    /// The line of digits of a slip.
    pub boleto_line: Option<String>,
}

/// The gateway.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait PaymentGateway: Send + Sync {
    /// The gateway's id of the account's customer: found by the account's id, brought up to date, or made. Made twice
    /// it would be two customers, so that it is looked for again after an answer that was lost.
    async fn customer(&self, input: &GatewayCustomerInput) -> Result<String, PaymentGatewayError>;

    /// Makes a subscription; asked once.
    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError>;

    /// The subscription that was made for ours, if it was and is still there.
    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError>;

    /// A subscription by the gateway's id.
    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError>;

    /// Another price and cycle, for open payments too.
    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError>;

    /// Ends a subscription, with its open payments; one that is gone already is fine.
    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError>;

    /// The first payment of a new subscription and how to pay it: waits a little for the gateway to make it. What cannot
    /// be had is missing.
    async fn first_payment(&self, id: &str, billing_type: BillingType) -> PaymentData;

    /// The newest payments of a subscription, a hundred at most.
    async fn payments(&self, id: &str) -> Result<Vec<GatewayPayment>, PaymentGatewayError>;

    /// One payment.
    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError>;
}
