//! Events that the payment gateway reports: a deduplication key and the few fields that are stored.

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use super::{Cents, PaymentStatus};
use crate::shared::{GatewayEventId, string_enum};

string_enum! {
    /// Kind of a gateway event.
    GatewayEventKind {
        /// The payment is guaranteed; the money may arrive later.
        Confirmed = "PAYMENT_CONFIRMED",
        /// The money of the payment arrived.
        Received = "PAYMENT_RECEIVED",
        /// The payment is late.
        Overdue = "PAYMENT_OVERDUE",
        /// The gateway ended the subscription.
        Inactivated = "SUBSCRIPTION_INACTIVATED",
        /// Any other kind. A received event has no effect; a payment read by the reconciler updates the history.
        Other = "OTHER",
    }
}

/// State of a payment as an event reports it. Its id is the gateway's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentSnapshot {
    pub id: String,
    pub billing_type: Option<String>,
    pub value: Option<Cents>,
    pub status: Option<PaymentStatus>,
    pub invoice_url: Option<String>,
    pub bank_slip_url: Option<String>,
    pub due_date: Option<Date>,
}

/// The fields of a gateway event that decide its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEventData {
    pub kind: GatewayEventKind,
    pub payment: Option<PaymentSnapshot>,
    /// The gateway's time of the event. Of a payment that the reconciler read: when it asked.
    pub created_at: Option<OffsetDateTime>,
}

/// A parsed gateway event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEvent {
    /// Deduplication key: two events with the same key are the same event.
    pub key: String,
    /// Event name of the gateway; empty if there is none.
    pub event: String,
    /// The gateway's id of the subscription.
    pub subject: Option<String>,
    pub data: GatewayEventData,
}

/// A gateway event as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub id: GatewayEventId,
    /// The gateway's id of the subscription.
    pub subject: String,
    pub data: GatewayEventData,
    pub received_at: OffsetDateTime,
    /// How many times applying it was deferred.
    pub attempts: u32,
}

/// Outcome of storing a gateway event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Not stored: an event with this key exists.
    Known,
    /// Stored. It waits behind other events or has no effect.
    Stored,
    /// Stored and claimed: the caller applies it before the lease expires.
    Claimed,
}

impl GatewayEvent {
    /// The stored event, before its first deferral.
    pub fn received(&self, id: GatewayEventId, received_at: OffsetDateTime) -> StoredEvent {
        StoredEvent {
            id,
            subject: self.subject.clone().unwrap_or_default(),
            data: self.data.clone(),
            received_at,
            attempts: 0,
        }
    }

    /// Whether the event can have an effect: its kind is known, and it names a subscription, and a payment if its kind
    /// needs one.
    pub fn has_effect(&self) -> bool {
        self.subject.is_some()
            && match self.data.kind {
                GatewayEventKind::Confirmed | GatewayEventKind::Received | GatewayEventKind::Overdue => {
                    self.data.payment.is_some()
                }
                GatewayEventKind::Inactivated => true,
                GatewayEventKind::Other => false,
            }
    }
}
