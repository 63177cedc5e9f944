//! The effect of gateway events on a subscription: the documented rule as one pure function.
//!
//! Events apply from any status, in the order in which they were received, with four guards:
//! - An event older than the last one applied to the same payment has no effect.
//! - Money for a payment that was confirmed before (cards: a month later) does not reactivate an ended subscription.
//! - An ended subscription is not reactivated while the account has another live one.
//! - A payment pays for one period.

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::calendar::add_cycle;
use super::plans::cycle_of_price;
use super::{
    Cents, Change, Cycle, GatewayEventData, GatewayEventKind, Payment, PaymentSnapshot, PaymentStatus, Subscription,
    SubscriptionCommand, SubscriptionState, SubscriptionStatus, plan, remaining_plan, transition,
};
use crate::shared::{Event, GatewayEventId, NotificationDraft, NotificationKind, PaymentId};

/// How long a payment may be open without a gateway event before the reconciler asks the gateway.
pub(super) const RECONCILE_AFTER: Duration = Duration::days(1);

/// What [`effect`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionFacts {
    pub subscription: Subscription,
    /// The stored payment; `None` if it is new.
    pub payment: Option<Payment>,
    /// Whether the account has another live subscription or attempt.
    pub other_live: bool,
    /// The account's other subscriptions, without attempts.
    pub others: Vec<SubscriptionState>,
}

/// A received gateway event and its time of receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventReceipt {
    pub event: GatewayEventId,
    pub received_at: OffsetDateTime,
}

/// Returns the change that the event data causes, or `None` if it has no effect. `receipt` is `None` if the reconciler
/// read the data from the gateway.
pub fn effect(
    facts: &SubscriptionFacts,
    data: &GatewayEventData,
    receipt: Option<EventReceipt>,
    new_id: PaymentId,
    now: OffsetDateTime,
) -> Option<Change> {
    let before = &facts.subscription;
    let stored_payment = facts.payment.as_ref();
    let event = receipt.map(|receipt| receipt.event);
    let applied_before = event.is_some() && before.last_event == event;
    if applied_before || is_older(stored_payment, data) || (event.is_none() && has_stored_status(stored_payment, data))
    {
        return None;
    }
    let command = command(stored_payment, data.kind);
    // A subscription that ended after receipt or during its check stays ended. The gateway's end always counts.
    let has_ended = receipt.map_or(!before.status.is_live(), |receipt| {
        ended_after(before, receipt.received_at)
    });
    let ended_later = command != Some(SubscriptionCommand::Inactivate) && has_ended;
    let next = command.and_then(|command| match ended_later {
        true => (!facts.other_live).then_some(before.status),
        false => transition(before.status, command, facts.other_live),
    });
    let mut payment = data
        .payment
        .as_ref()
        .map(|snapshot| payment_row(before, stored_payment, snapshot, data, new_id, now));
    if payment.is_none() && next.is_none_or(|next| next == before.status) {
        return None;
    }
    let mut after = before.clone();
    after.last_event = event.or(before.last_event);
    after.updated_at = now;
    if let Some(next) = next.filter(|_| !ended_later) {
        enter_status(&mut after, next, now);
    }
    let pays = matches!(command, Some(SubscriptionCommand::Pay)) && next.is_some();
    let mut credited = false;
    if let Some(payment) = payment.as_mut().filter(|payment| pays && !payment.credited) {
        (payment.credited, credited) = (true, true);
        credit(&mut after, payment.cycle.unwrap_or(before.cycle), now);
    }
    if next.is_some() {
        after.check_at = next_check_at(&after, now);
    }
    let ends_plan = next == Some(SubscriptionStatus::Inactive) && before.lapsed_at.is_none();
    // The payment event was received before the cancellation but is applied after it: the paid period stays usable.
    let paid_late = ended_later && credited && after.status == SubscriptionStatus::Cancelled && !facts.other_live;
    if paid_late {
        after.lapsed_at = None;
    }
    let account_plan = match next {
        Some(next) if next.is_live() || paid_late => Some(after.plan.clone()),
        _ if ends_plan => remaining_plan(&facts.others, now).map(ToOwned::to_owned),
        _ => None,
    };
    Some(Change {
        events: payment
            .as_ref()
            .and_then(|payment| notification(&after, payment, data.kind))
            .into_iter()
            .collect(),
        account_plan,
        payment,
        applies: event,
        ..Change::of(after)
    })
}

/// Removes the account's plan at the end of the paid period, unless another subscription entitles the account to one.
pub(super) fn lapse(facts: &SubscriptionFacts, now: OffsetDateTime) -> Change {
    let mut after = facts.subscription.clone();
    after.lapsed_at = Some(now);
    after.updated_at = now;
    Change {
        account_plan: remaining_plan(&facts.others, now).map(ToOwned::to_owned),
        ..Change::of(after)
    }
}

/// Whether the paid period has ended.
pub(super) fn is_period_over(subscription: &Subscription, now: OffsetDateTime) -> bool {
    subscription.current_period_end.is_none_or(|end| end <= now)
}

/// Whether the subscription ended after `time`.
fn ended_after(subscription: &Subscription, time: OffsetDateTime) -> bool {
    let ended_at = match subscription.status {
        SubscriptionStatus::Cancelled => subscription.cancelled_at,
        SubscriptionStatus::Inactive => subscription.inactivated_at,
        SubscriptionStatus::Active | SubscriptionStatus::Pending | SubscriptionStatus::PastDue => None,
    };
    ended_at.is_some_and(|ended_at| ended_at > time)
}

/// Whether the event precedes the last one applied to the payment. The gateway's times are whole seconds, the
/// reconciler's are not: an event may have happened until the end of its second.
fn is_older(stored: Option<&Payment>, data: &GatewayEventData) -> bool {
    let last = stored.and_then(|payment| payment.last_event_at);
    let until = data.created_at.map(|created| created + Duration::SECOND);
    until.zip(last).is_some_and(|(until, last)| until <= last)
}

fn has_stored_status(stored: Option<&Payment>, data: &GatewayEventData) -> bool {
    let status = data.payment.as_ref().and_then(|payment| payment.status.as_ref());
    stored.is_some_and(|stored| Some(&stored.status) == status)
}

fn command(stored: Option<&Payment>, kind: GatewayEventKind) -> Option<SubscriptionCommand> {
    match kind {
        GatewayEventKind::Received if stored.is_some_and(|payment| payment.confirmed) => {
            Some(SubscriptionCommand::Settle)
        }
        GatewayEventKind::Confirmed | GatewayEventKind::Received => Some(SubscriptionCommand::Pay),
        GatewayEventKind::Overdue => Some(SubscriptionCommand::Overdue),
        GatewayEventKind::Inactivated => Some(SubscriptionCommand::Inactivate),
        GatewayEventKind::Other => None,
    }
}

/// Sets the status and its timestamps. A repeated end keeps its first timestamp.
pub(super) fn enter_status(subscription: &mut Subscription, next: SubscriptionStatus, now: OffsetDateTime) {
    let entered = subscription.status != next;
    subscription.status = next;
    match next {
        SubscriptionStatus::Active | SubscriptionStatus::Pending | SubscriptionStatus::PastDue => {
            subscription.cancelled_at = None;
            subscription.inactivated_at = None;
            subscription.lapsed_at = None;
        }
        SubscriptionStatus::Cancelled => {
            subscription.cancelled_at = Some(now);
            subscription.lapsed_at = is_period_over(subscription, now).then_some(now);
            subscription.check_at = None;
        }
        SubscriptionStatus::Inactive => {
            if entered {
                subscription.inactivated_at = Some(now);
            }
            subscription.lapsed_at = subscription.lapsed_at.or(Some(now));
            subscription.check_at = None;
        }
    }
}

/// Returns the cycle that a payment pays for. The account may have changed its cycle after the payment, so the paid
/// value decides: a payment with its first seen value pays for the cycle stored with it.
fn paid_cycle(subscription: &Subscription, stored: Option<&Payment>, value: Option<Cents>) -> Cycle {
    let stored_cycle = stored.and_then(|payment| payment.cycle);
    let current_cycle = subscription.cycle;
    let Some(value) = value.or(stored.map(|payment| payment.value)) else {
        return stored_cycle.unwrap_or(current_cycle);
    };
    match stored_cycle {
        Some(stored_cycle) if stored.is_some_and(|payment| payment.value == value) => stored_cycle,
        _ if value == subscription.value => current_cycle,
        stored_cycle => cycle_of_price(value).or(stored_cycle).unwrap_or(current_cycle),
    }
}

/// Adds one period: after the last one, or from now if that period would already be over.
pub(super) fn credit(subscription: &mut Subscription, cycle: Cycle, now: OffsetDateTime) {
    if std::mem::take(&mut subscription.period_granted) {
        return;
    }
    let anchor = subscription.anchor_day;
    let following = subscription.current_period_end.map(|end| {
        let day = anchor.unwrap_or(end.day());
        (end, day, add_cycle(end, cycle, day))
    });
    let (start, day, end) = match following {
        Some(following @ (_, _, end)) if end > now => following,
        _ => (now, now.day(), add_cycle(now, cycle, now.day())),
    };
    subscription.current_period_start = Some(start);
    subscription.current_period_end = Some(end);
    subscription.anchor_day = Some(day);
}

/// When the reconciler asks the gateway next, unless a gateway event arrives first.
fn next_check_at(subscription: &Subscription, now: OffsetDateTime) -> Option<OffsetDateTime> {
    match subscription.status {
        SubscriptionStatus::Active => Some(subscription.current_period_end.unwrap_or(now).max(now) + RECONCILE_AFTER),
        SubscriptionStatus::Pending | SubscriptionStatus::PastDue => Some(now + RECONCILE_AFTER),
        SubscriptionStatus::Inactive | SubscriptionStatus::Cancelled => None,
    }
}

/// Returns the status of a payment of which the gateway reported only the event's kind.
fn status_of(kind: GatewayEventKind) -> PaymentStatus {
    match kind {
        GatewayEventKind::Confirmed => PaymentStatus::Confirmed,
        GatewayEventKind::Received => PaymentStatus::Received,
        GatewayEventKind::Overdue => PaymentStatus::Overdue,
        GatewayEventKind::Inactivated | GatewayEventKind::Other => PaymentStatus::Other(kind.as_str().to_owned()),
    }
}

/// Builds the new or updated row of the payment history. Absent fields keep their stored value.
fn payment_row(
    subscription: &Subscription,
    stored: Option<&Payment>,
    snapshot: &PaymentSnapshot,
    data: &GatewayEventData,
    new_id: PaymentId,
    now: OffsetDateTime,
) -> Payment {
    let status = snapshot.status.clone().unwrap_or_else(|| status_of(data.kind));
    let mut payment = stored.cloned().unwrap_or_else(|| Payment {
        id: new_id,
        subscription_id: subscription.id,
        gateway_payment_id: snapshot.id.clone(),
        billing_type: subscription.billing_type.as_str().to_owned(),
        value: subscription.value,
        cycle: None,
        status: status.clone(),
        invoice_url: None,
        bank_slip_url: None,
        due_date: None,
        paid_at: None,
        confirmed: false,
        credited: false,
        last_event_at: None,
        created_at: now,
    });
    payment.cycle = Some(paid_cycle(subscription, stored, snapshot.value));
    payment.status = status;
    payment.billing_type = snapshot.billing_type.clone().unwrap_or(payment.billing_type);
    payment.value = snapshot.value.unwrap_or(payment.value);
    payment.invoice_url = snapshot.invoice_url.clone().or(payment.invoice_url);
    payment.bank_slip_url = snapshot.bank_slip_url.clone().or(payment.bank_slip_url);
    payment.due_date = snapshot.due_date.or(payment.due_date);
    let paid = matches!(data.kind, GatewayEventKind::Confirmed | GatewayEventKind::Received);
    payment.paid_at = payment.paid_at.or(paid.then_some(now));
    payment.confirmed |= data.kind == GatewayEventKind::Confirmed;
    payment.last_event_at = data.created_at.max(payment.last_event_at);
    payment
}

/// Builds the notification about a payment event.
fn notification(subscription: &Subscription, payment: &Payment, kind: GatewayEventKind) -> Option<Event> {
    let plan = plan(&subscription.plan).map_or(subscription.plan.as_str(), |plan| plan.name);
    let value = payment.value;
    let (kind, title, message) = match kind {
        GatewayEventKind::Confirmed => (
            NotificationKind::Success,
            "Payment confirmed",
            format!("The payment of {value} for the plan {plan} was confirmed."),
        ),
        GatewayEventKind::Received => (
            NotificationKind::Success,
            "Payment received",
            format!("The payment of {value} for the plan {plan} was received."),
        ),
        GatewayEventKind::Overdue => (
            NotificationKind::Warning,
            "Payment overdue",
            format!("The payment of {value} for the plan {plan} is overdue."),
        ),
        GatewayEventKind::Inactivated | GatewayEventKind::Other => return None,
    };
    Some(Event::Notification(NotificationDraft {
        kind,
        title: title.to_owned(),
        message,
        data: json!({
            "subscription_id": subscription.id, "payment_id": payment.gateway_payment_id, "plan": subscription.plan,
            "value": value, "status": subscription.status,
        }),
    }))
}
