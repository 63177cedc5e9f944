//! Whether an account's plan is active.

use time::OffsetDateTime;

use super::{FREE_PLAN, SubscriptionStatus, plan_limits};

/// What of a subscription decides whether its plan is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionState {
    /// Where it stands.
    pub status: SubscriptionStatus,
    /// Until when it is paid.
    pub current_period_end: Option<OffsetDateTime>,
}

/// An account's plan and its newest subscription, if it ever had one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The plan id.
    pub plan: String,
    /// The newest subscription.
    pub subscription: Option<SubscriptionState>,
}

impl Standing {
    /// The messages a month of the account's plan; none when the plan is not active (or not of the catalogue).
    ///
    /// Active are: the free plan; a paid plan without any subscription (an administrator granted it); an active
    /// subscription; one that is past due or cancelled, while its paid period lasts.
    pub fn messages_per_month(&self, now: OffsetDateTime) -> Option<i64> {
        let active = self.plan == FREE_PLAN
            || self.subscription.is_none_or(|subscription| match subscription.status {
                SubscriptionStatus::Active => true,
                SubscriptionStatus::PastDue | SubscriptionStatus::Cancelled => {
                    subscription.current_period_end.is_some_and(|end| end > now)
                }
                SubscriptionStatus::Pending | SubscriptionStatus::Inactive => false,
            });
        plan_limits(&self.plan)
            .filter(|_| active)
            .map(|limits| limits.messages_per_month)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn what_counts_as_an_active_plan() {
        let now = datetime!(2026-03-01 12:00 UTC);
        let allowed = |plan: &str, subscription| {
            let standing = Standing {
                plan: plan.into(),
                subscription,
            };
            standing.messages_per_month(now)
        };
        let subscribed = |status, end| {
            Some(SubscriptionState {
                status,
                current_period_end: end,
            })
        };
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
}
