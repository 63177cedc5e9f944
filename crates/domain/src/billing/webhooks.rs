//! The webhook events of subscriptions.

use serde_json::json;
use time::OffsetDateTime;

use super::{Cents, Cycle, Subscription, SubscriptionStatus};
use crate::shared::{Event, WebhookKind, timestamp};

/// What `subscription.changed` publishes of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedSubscription {
    pub plan: String,
    pub cycle: Cycle,
    pub status: SubscriptionStatus,
    pub value: Cents,
    pub current_period_end: Option<OffsetDateTime>,
    /// An attempt is not published: it is not yet a subscription.
    pub is_attempt: bool,
}

impl From<&Subscription> for PublishedSubscription {
    fn from(subscription: &Subscription) -> Self {
        Self {
            plan: subscription.plan.clone(),
            cycle: subscription.cycle,
            status: subscription.status,
            value: subscription.value,
            current_period_end: subscription.current_period_end,
            is_attempt: subscription.is_attempt(),
        }
    }
}

/// `subscription.changed`, if a published value of the subscription changed. Without a previous status if it was only an
/// attempt before.
pub fn changed_event(before: &PublishedSubscription, after: &Subscription) -> Option<Event> {
    let now = PublishedSubscription::from(after);
    if now.is_attempt || now == *before {
        return None;
    }
    let previous_status = (!before.is_attempt).then_some(before.status);
    let item = json!({ "id": after.id, "plan": now.plan, "cycle": now.cycle, "status": now.status,
                       "previous_status": previous_status, "value": now.value.0,
                       "current_period_end": now.current_period_end.map(timestamp::format) });
    Some(Event::webhook(WebhookKind::SubscriptionChanged, vec![item]))
}
