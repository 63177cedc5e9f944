//! Stored subscriptions and payments.

use serde::{Deserialize, Serialize};
use time::{Date, Duration, OffsetDateTime};

use super::{Cents, Cycle, PaymentStatus, PlanLimits, SubscriptionStatus, Usage, better_plan};
use crate::shared::{
    AccountId, Audit, AuditAction, Event, FieldErrors, GatewayEventId, PaymentId, SubscriptionId, Tenant, UserId,
    string_enum,
};

string_enum! {
    /// Payment method of a subscription.
    BillingType {
        /// Instant transfer by QR code.
        Pix = "PIX",
        /// Bank slip.
        Boleto = "BOLETO",
        /// Card that the gateway charges.
        CreditCard = "CREDIT_CARD",
    }
}

/// The actor of an intent. Stored with it, because a worker or a later request may complete the intent in their name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initiator {
    pub user_id: UserId,
    /// Client IP address.
    pub ip_address: Option<String>,
    /// E-mail address of the platform administrator, if they acted in support mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub support_admin: Option<String>,
}

impl From<&Tenant> for Initiator {
    fn from(tenant: &Tenant) -> Self {
        Self {
            user_id: tenant.actor.user_id,
            ip_address: tenant.actor.ip_address.clone(),
            support_admin: tenant.actor.support_admin.clone(),
        }
    }
}

impl Initiator {
    /// Builds an audit entry about a subscription with this actor.
    pub fn audit(&self, action: AuditAction, subscription: SubscriptionId) -> Audit {
        Audit {
            user_id: Some(self.user_id),
            action,
            entity_type: "subscription".to_owned(),
            entity_id: Some(subscription.0),
            changes: None,
            ip_address: self.ip_address.clone(),
            support_admin: self.support_admin.clone(),
        }
    }
}

/// Write-ahead record of a change at the gateway. It is stored before the call. After a crash or a lost response any
/// worker or request can complete or revert the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Intent {
    /// The gateway is creating the subscription. Until then the row is a subscription attempt.
    Subscribe { initiator: Initiator },
    /// The attempt failed and the gateway has no subscription for it. If one appears later, it is cancelled there.
    Abandoned,
    /// The plan or cycle is changing.
    Change {
        initiator: Initiator,
        plan: String,
        cycle: Cycle,
        /// New price of a period.
        value: Cents,
    },
    /// The subscription is being cancelled.
    Cancel { initiator: Initiator },
}

impl Intent {
    /// Whether the row is a subscription attempt: not yet a subscription, or abandoned before it became one.
    pub fn is_attempt(&self) -> bool {
        match self {
            Self::Subscribe { .. } | Self::Abandoned => true,
            Self::Change { .. } | Self::Cancel { .. } => false,
        }
    }
}

/// Interval at which a worker checks an intent at the gateway. The first check may precede the lease's end, because a
/// completed change can be recorded at any time. MUST be longer than one gateway call.
pub const INTENT_CHECK_PAUSE: Duration = Duration::seconds(30);

/// An intent with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingIntent {
    pub intent: Intent,
    /// End of the lease. Until then a gateway call may be in flight, so an unapplied change MUST NOT be reverted.
    pub until: OffsetDateTime,
    /// When a worker next checks the intent at the gateway.
    pub check_at: OffsetDateTime,
}

impl PendingIntent {
    /// An intent whose lease starts at `now` and belongs to the request that calls the gateway.
    pub fn leased(intent: Intent, now: OffsetDateTime, lease: Duration) -> Self {
        Self {
            intent,
            until: now + lease,
            check_at: now + lease.min(INTENT_CHECK_PAUSE),
        }
    }

    /// The intent of an abandoned attempt. A worker looks for it at the gateway at `check_at`.
    pub fn abandoned(check_at: OffsetDateTime) -> Self {
        Self {
            intent: Intent::Abandoned,
            until: check_at,
            check_at,
        }
    }

    /// Whether the lease has expired: no gateway call is in flight, so an unapplied change can be reverted.
    pub fn is_lease_over(&self, now: OffsetDateTime) -> bool {
        self.until <= now
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub account_id: AccountId,
    /// Also the external reference under which the gateway stores the subscription.
    pub id: SubscriptionId,
    /// Plan id.
    pub plan: String,
    pub cycle: Cycle,
    pub status: SubscriptionStatus,
    pub billing_type: BillingType,
    /// Price of a period.
    pub value: Cents,
    /// The gateway sends its mails about payments to this address.
    pub billing_email: Option<String>,
    pub gateway_customer_id: Option<String>,
    pub gateway_subscription_id: Option<String>,
    /// Start of the current period; `None` before the first payment.
    pub current_period_start: Option<OffsetDateTime>,
    /// End of the paid time.
    pub current_period_end: Option<OffsetDateTime>,
    /// When the account cancelled it.
    pub cancelled_at: Option<OffsetDateTime>,
    /// When the gateway ended it.
    pub inactivated_at: Option<OffsetDateTime>,
    /// When its end removed the account's plan.
    pub lapsed_at: Option<OffsetDateTime>,
    /// The current period started before its payment was seen (cards). The next payment pays for it and adds no period.
    pub period_granted: bool,
    /// Day of the month on which periods start. Shorter months use their last day.
    pub anchor_day: Option<u8>,
    /// When the reconciler asks the gateway, unless a gateway event arrives first.
    pub check_at: Option<OffsetDateTime>,
    /// The gateway event that was applied last.
    pub last_event: Option<GatewayEventId>,
    /// The change that is in progress at the gateway.
    pub pending: Option<PendingIntent>,
    /// Row version for optimistic locking; every write increments it.
    pub version: i64,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
}

impl Subscription {
    /// Whether it is a subscription attempt: not yet a subscription, or abandoned before it became one.
    pub fn is_attempt(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.intent.is_attempt())
    }
}

/// A row of the payment history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    pub id: PaymentId,
    pub subscription_id: SubscriptionId,
    pub gateway_payment_id: String,
    /// Payment method as the gateway names it.
    pub billing_type: String,
    pub value: Cents,
    /// Length of the period that it pays for. `None` in rows of an earlier version: then the value decides.
    pub cycle: Option<Cycle>,
    pub status: PaymentStatus,
    pub invoice_url: Option<String>,
    pub bank_slip_url: Option<String>,
    pub due_date: Option<Date>,
    /// When Recado first learned that it is paid.
    pub paid_at: Option<OffsetDateTime>,
    /// The gateway confirmed it. The money may arrive much later and then has no further effect.
    pub confirmed: bool,
    /// Whether it paid for a period.
    pub credited: bool,
    /// The gateway's time of the last event about it that was applied.
    pub last_event_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

/// An account's plan, live subscription and usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    pub account_name: String,
    pub account_plan: String,
    /// The plan that an administrator granted.
    pub granted_plan: Option<String>,
    /// The live subscription.
    pub subscription: Option<Subscription>,
    pub usage: Usage,
}

impl Overview {
    /// The plan to display: the better of the live subscription's plan and the granted plan. Without a live
    /// subscription it is the account's plan.
    pub fn plan(&self) -> &str {
        match &self.subscription {
            Some(subscription) => better_plan(&subscription.plan, self.granted_plan.as_deref()),
            None => &self.account_plan,
        }
    }
}

/// Result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// When the plan ends; `None` if no payment was made, because then it ended at once.
    pub effective_until: Option<OffsetDateTime>,
}

/// A change of a subscription with everything that commits in the same transaction. Every write of a subscription is a
/// `Change`.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The new state. Its `version` is the one on which the change was decided (optimistic locking).
    pub subscription: Subscription,
    /// The new plan that the account's subscriptions entitle it to; `None` if it does not change. The store MUST write
    /// the better of this plan and the granted plan.
    pub account_plan: Option<String>,
    /// Removes the plan that an administrator granted, because the subscription now has the plan that they chose.
    /// Requires `account_plan`.
    pub withdraws_grant: bool,
    /// The gateway event that this change applies.
    pub applies: Option<GatewayEventId>,
    /// Row of the payment history to insert or update. There is one row for each payment of the gateway.
    pub payment: Option<Payment>,
    /// The store MUST reject the change if the usage, counted in the same transaction, exceeds these limits.
    pub limits: Option<PlanLimits>,
    /// Outbox events that commit with the change, without `subscription.changed`.
    pub events: Vec<Event>,
}

impl Change {
    /// A change that writes only the subscription.
    pub fn of(subscription: Subscription) -> Self {
        Self {
            subscription,
            account_plan: None,
            withdraws_grant: false,
            applies: None,
            payment: None,
            limits: None,
            events: vec![],
        }
    }
}

/// Outcome of writing a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    Done,
    /// Not written: this subscription or another one of the account changed after it was read.
    Stale,
    /// The subscription does not exist.
    Missing,
    /// Not written: the usage exceeds the limits.
    Exceeds(FieldErrors),
    /// Not written: the gateway event was already applied.
    Repeated,
}

/// Outcome of inserting a subscription attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOutcome {
    Done,
    /// The account already has this live subscription or attempt.
    Taken(Box<Subscription>),
}
