//! Subscriptions and payments as they are kept.

use serde::{Deserialize, Serialize};
use time::{Date, Duration, OffsetDateTime};

use super::{Cents, SubscriptionStatus, Usage, better_plan};
use crate::shared::{
    AccountId, Audit, AuditAction, GatewayEventId, PaymentId, SubscriptionId, Tenant, UserId, string_enum,
};

string_enum! {
    /// How often is paid.
    Cycle {
        /// Every month.
        Monthly = "MONTHLY",
        /// Every year.
        Yearly = "YEARLY",
    }
}

string_enum! {
    /// How is paid.
    BillingType {
        /// An instant transfer, by a QR code.
        Pix = "PIX",
        /// A slip that a bank takes.
        Boleto = "BOLETO",
        /// A card, charged by the gateway.
        CreditCard = "CREDIT_CARD",
    }
}

/// Who began what may be finished by somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initiator {
    /// The person.
    pub user_id: UserId,
    /// From which address.
    pub ip_address: Option<String>,
    /// Where they did it in support mode: the address of the platform administrator.
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
    /// An audit entry about a subscription, in their name.
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

/// What is being done at the gateway, written down before it is asked, so that whoever finds it can finish it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Intent {
    /// The gateway is creating the subscription. Until then the row is a subscription attempt.
    Subscribe { initiator: Initiator },
    /// The attempt failed and the gateway has no subscription for it. If one appears later, it is cancelled there.
    Abandoned,
    /// Its plan or cycle is being changed.
    Change {
        /// By whom.
        initiator: Initiator,
        /// The new plan.
        plan: String,
        /// The new cycle.
        cycle: Cycle,
        /// What a period then costs.
        value: Cents,
    },
    /// The subscription is being cancelled.
    Cancel { initiator: Initiator },
}

impl Intent {
    /// Whether the row is no subscription yet, or never became one.
    pub fn is_attempt(&self) -> bool {
        match self {
            Self::Subscribe { .. } | Self::Abandoned => true,
            Self::Change { .. } | Self::Cancel { .. } => false,
        }
    }
}

/// How often a worker asks the gateway about an intent. It asks before the lease is over: what the gateway has done can
/// be recorded at any time. Longer than one call of the gateway may take.
pub const INTENT_CHECK_PAUSE: Duration = Duration::seconds(30);

/// An intent with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingIntent {
    /// What is being done.
    pub intent: Intent,
    /// The lease: before this time a call may be under way, so that what the gateway has not done may yet be done.
    pub until: OffsetDateTime,
    /// When a worker next asks the gateway.
    pub check_at: OffsetDateTime,
}

impl PendingIntent {
    /// Leased from `now` on to the request that makes the call.
    pub fn leased(intent: Intent, now: OffsetDateTime, lease: Duration) -> Self {
        Self {
            intent,
            until: now + lease,
            check_at: now + lease.min(INTENT_CHECK_PAUSE),
        }
    }

    /// An attempt that came to nothing; the gateway is asked about it at this time.
    pub fn abandoned(check_at: OffsetDateTime) -> Self {
        Self {
            intent: Intent::Abandoned,
            until: check_at,
            check_at,
        }
    }

    /// Whether no call is under way any more: what the gateway has not done by then is not done.
    pub fn is_lease_over(&self, now: OffsetDateTime) -> bool {
        self.until <= now
    }
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Whose.
    pub account_id: AccountId,
    /// Its id, and what the gateway knows it by.
    pub id: SubscriptionId,
    /// The plan id.
    pub plan: String,
    /// How often is paid.
    pub cycle: Cycle,
    /// Where it stands.
    pub status: SubscriptionStatus,
    /// How is paid.
    pub billing_type: BillingType,
    /// What a period costs.
    pub value: Cents,
    /// Where the gateway writes to.
    pub billing_email: Option<String>,
    /// The gateway's customer.
    pub gateway_customer_id: Option<String>,
    /// The gateway's subscription.
    pub gateway_subscription_id: Option<String>,
    /// Since when the present period runs; none before the first payment.
    pub current_period_start: Option<OffsetDateTime>,
    /// Until when it is paid.
    pub current_period_end: Option<OffsetDateTime>,
    /// When the account ended it.
    pub cancelled_at: Option<OffsetDateTime>,
    /// When the gateway ended it.
    pub inactivated_at: Option<OffsetDateTime>,
    /// When its end took the account's plan.
    pub lapsed_at: Option<OffsetDateTime>,
    /// Whether the present period was given before a payment of it was known (cards): the next one adds none.
    pub period_granted: bool,
    /// The day of the month that periods begin on, where the month has it.
    pub anchor_day: Option<u8>,
    /// When the gateway is asked, unless it tells before.
    pub check_at: Option<OffsetDateTime>,
    /// The last event of the gateway that was applied.
    pub last_event: Option<GatewayEventId>,
    /// What is being done at the gateway.
    pub pending: Option<PendingIntent>,
    /// Counts the writes: a decision is good for one version.
    pub version: i64,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it last changed.
    pub updated_at: OffsetDateTime,
}

impl Subscription {
    /// Whether it is no subscription yet, or never became one.
    pub fn is_attempt(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.intent.is_attempt())
    }
}

/// A payment: a row of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Its id.
    pub id: PaymentId,
    /// Of which subscription.
    pub subscription_id: SubscriptionId,
    /// The gateway's id.
    pub gateway_payment_id: String,
    /// How it is paid, in the gateway's word.
    pub billing_type: String,
    /// How much.
    pub value: Cents,
    /// The period that it pays for. None: first seen by an earlier version, the value decides.
    pub cycle: Option<Cycle>,
    /// The gateway's word for where it stands.
    pub status: String,
    /// Where it can be seen.
    pub invoice_url: Option<String>,
    /// Where its slip is.
    pub bank_slip_url: Option<String>,
    /// When it is due.
    pub due_date: Option<Date>,
    /// When we learned that it is paid.
    pub paid_at: Option<OffsetDateTime>,
    /// Whether the gateway confirmed it: the money may follow much later, and is no news then.
    pub confirmed: bool,
    /// Whether it paid for a period.
    pub credited: bool,
    /// The gateway's time of the last event about it that was applied.
    pub last_event_at: Option<OffsetDateTime>,
    /// When we first heard of it.
    pub created_at: OffsetDateTime,
}

/// What an account has and uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// What the account is called.
    pub account_name: String,
    /// Its plan.
    pub account_plan: String,
    /// The plan that an administrator granted.
    pub granted_plan: Option<String>,
    /// Its live subscription.
    pub subscription: Option<Subscription>,
    /// What it uses.
    pub usage: Usage,
}

impl Overview {
    /// The plan that is shown: of the live subscription's and the granted one the better, else the account's.
    pub fn plan(&self) -> &str {
        match &self.subscription {
            Some(subscription) => better_plan(&subscription.plan, self.granted_plan.as_deref()),
            None => &self.account_plan,
        }
    }
}

/// The answer to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Until when the plan can be used; none where nothing was paid yet.
    pub effective_until: Option<OffsetDateTime>,
}
