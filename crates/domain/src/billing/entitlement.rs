//! Decides which plan of an account is active.

use time::OffsetDateTime;

use super::{FREE_PLAN, SubscriptionStatus, better_plan, plan_limits};

/// The fields of a subscription that decide whether its plan is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionState {
    pub plan: String,
    pub status: SubscriptionStatus,
    /// End of the paid time.
    pub current_period_end: Option<OffsetDateTime>,
}

impl SubscriptionState {
    /// Whether its plan is usable: always while active, and until the end of the paid period if past due or cancelled.
    pub fn is_usable(&self, now: OffsetDateTime) -> bool {
        match self.status {
            SubscriptionStatus::Active => true,
            SubscriptionStatus::PastDue | SubscriptionStatus::Cancelled => {
                self.current_period_end.is_some_and(|end| end > now)
            }
            SubscriptionStatus::Pending | SubscriptionStatus::Inactive => false,
        }
    }
}

/// Returns the subscription whose plan is usable. Of several it is the live one, else the one with the latest end.
fn usable(subscriptions: &[SubscriptionState], now: OffsetDateTime) -> Option<&SubscriptionState> {
    let usable = subscriptions.iter().filter(|state| state.is_usable(now));
    usable.max_by_key(|state| (state.status.is_live(), state.current_period_end))
}

/// Returns the account's plan after one of its subscriptions ended: the plan that is still paid for, else the free
/// plan. `None` if another subscription is live, because it has already set the plan.
pub fn remaining_plan(others: &[SubscriptionState], now: OffsetDateTime) -> Option<&str> {
    if others.iter().any(|other| other.status.is_live()) {
        return None;
    }
    Some(usable(others, now).map_or(FREE_PLAN, |other| other.plan.as_str()))
}

/// An account's plan, its granted plan and all its subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntitlement {
    /// Plan id of the account.
    pub plan: String,
    /// The plan that an administrator granted, until they withdraw it.
    pub granted: Option<String>,
    /// Current and former subscriptions without attempts, in no order.
    pub subscriptions: Vec<SubscriptionState>,
}

impl PlanEntitlement {
    /// Returns the monthly messages of the active plan. `None` if no plan is active or it is not in the catalogue.
    pub fn messages_per_month(&self, now: OffsetDateTime) -> Option<i64> {
        let limits = self.active_plan(now).and_then(plan_limits);
        limits.map(|limits| limits.messages_per_month)
    }

    /// Returns the better of the paid and the granted plan. Without both, the free plan is active. So is any plan of an
    /// account that never had a subscription: it was granted before grants were stored separately.
    fn active_plan(&self, now: OffsetDateTime) -> Option<&str> {
        match (self.paid_plan(now), self.granted.as_deref()) {
            (Some(paid), granted) => Some(better_plan(paid, granted)),
            (None, Some(granted)) => Some(granted),
            (None, None) if self.plan == FREE_PLAN || self.subscriptions.is_empty() => Some(&self.plan),
            (None, None) => None,
        }
    }

    /// Returns the plan that is paid for.
    pub fn paid_plan(&self, now: OffsetDateTime) -> Option<&str> {
        usable(&self.subscriptions, now).map(|state| state.plan.as_str())
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn state(plan: &str, status: SubscriptionStatus, end: Option<OffsetDateTime>) -> SubscriptionState {
        SubscriptionState {
            plan: plan.into(),
            status,
            current_period_end: end,
        }
    }

    #[test]
    fn entitlement_depends_on_status_and_paid_period() {
        let now = datetime!(2026-03-01 12:00 UTC);
        let allowed = |plan: &str, subscription: Option<(SubscriptionStatus, _)>| {
            let state = |(status, end)| state(plan, status, end);
            let entitlement = PlanEntitlement {
                plan: plan.into(),
                granted: None,
                subscriptions: subscription.map(state).into_iter().collect(),
            };
            entitlement.messages_per_month(now)
        };
        let subscribed = |status, end| Some((status, end));
        let (ahead, past) = (
            Some(datetime!(2026-03-02 0:00 UTC)),
            Some(datetime!(2026-03-01 12:00 UTC)),
        );
        use SubscriptionStatus::{Active, Cancelled, Inactive, PastDue, Pending};
        assert_eq!(allowed("free", subscribed(Inactive, None)), Some(250));
        assert_eq!(allowed("growth", None), Some(30_000));
        assert_eq!(allowed("scale", subscribed(Active, None)), Some(250_000));
        for status in [PastDue, Cancelled] {
            assert_eq!(allowed("starter", subscribed(status, ahead)), Some(5_000));
            assert_eq!(allowed("starter", subscribed(status, past)), None);
        }
        for status in [Pending, Inactive] {
            assert_eq!(allowed("starter", subscribed(status, ahead)), None);
        }
        assert_eq!(allowed("gold", None), None);
    }

    #[test]
    fn entitlement_is_the_better_of_paid_and_granted_plan() {
        let now = datetime!(2026-03-01 12:00 UTC);
        let (ahead, past) = (Some(now + time::Duration::DAY), Some(now));
        use SubscriptionStatus::{Active, Cancelled, Inactive, PastDue, Pending};
        let allowed = |granted: &str, status, end| {
            let entitlement = PlanEntitlement {
                plan: granted.into(),
                granted: Some(granted.into()),
                subscriptions: vec![state("growth", status, end)],
            };
            entitlement.messages_per_month(now)
        };
        for (status, end) in [(Active, None), (PastDue, ahead), (Cancelled, ahead)] {
            assert_eq!(allowed("scale", status, end), Some(250_000), "{status}");
            assert_eq!(allowed("starter", status, end), Some(30_000), "{status}");
        }
        // A former subscriber, and one who has not paid yet.
        for (status, end) in [(Cancelled, past), (PastDue, past), (Inactive, ahead), (Pending, None)] {
            assert_eq!(allowed("starter", status, end), Some(5_000), "{status}");
        }
        assert_eq!(allowed("gold", Inactive, None), None, "gold is not in the catalogue");
    }

    #[test]
    fn entitlement_keeps_a_paid_plan_beside_later_subscriptions() {
        let now = datetime!(2026-03-01 12:00 UTC);
        let (soon, later) = (
            Some(datetime!(2026-03-02 0:00 UTC)),
            Some(datetime!(2026-04-01 0:00 UTC)),
        );
        use SubscriptionStatus::{Active, Cancelled, Inactive, PastDue, Pending};
        let growth = state("growth", Cancelled, soon);
        let allowed = |plan: &str, other: SubscriptionState| {
            let subscriptions = vec![growth.clone(), other];
            let entitlement = PlanEntitlement {
                plan: plan.into(),
                granted: None,
                subscriptions,
            };
            entitlement.messages_per_month(now)
        };
        for status in [Pending, PastDue] {
            assert_eq!(
                allowed("scale", state("scale", status, None)),
                Some(30_000),
                "{status:?}"
            );
        }
        assert_eq!(allowed("scale", state("scale", Active, None)), Some(250_000));
        assert_eq!(allowed("growth", state("starter", Inactive, later)), Some(30_000));
        let waiting = state("scale", Pending, None);
        assert_eq!(remaining_plan(&[], now), Some("free"));
        assert_eq!(remaining_plan(&[growth.clone(), waiting], now), None);
        let longest = [state("starter", Cancelled, later), growth.clone()];
        assert_eq!(remaining_plan(&longest, now), Some("starter"));
        assert_eq!(
            remaining_plan(&[growth, state("starter", Inactive, later)], now),
            Some("growth")
        );
        assert_eq!(remaining_plan(&longest[1..], later.unwrap()), Some("free"));
    }
}
