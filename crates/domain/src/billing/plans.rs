//! The plan catalogue: price and limits of each plan.

use super::Cents;
use crate::shared::string_enum;

/// Id of the plan without a price.
pub const FREE_PLAN: &str = "free";

string_enum! {
    /// Billing cycle: how often a subscription is charged.
    Cycle {
        /// Charged every month.
        Monthly = "MONTHLY",
        /// Charged every year.
        Yearly = "YEARLY",
    }
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    pub contacts: i64,
    /// Maximum number of outbound messages in a calendar month (UTC).
    pub messages_per_month: i64,
    pub automations: i64,
    pub team_members: i64,
    pub whatsapp_numbers: i64,
}

/// A plan of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub id: &'static str,
    pub name: &'static str,
    /// The customers that the plan suits.
    pub description: &'static str,
    /// Price of a month.
    pub monthly: Cents,
    pub limits: PlanLimits,
    /// Feature texts for the pricing page.
    pub features: &'static [&'static str],
    /// Whether the pricing page shows it first.
    pub highlighted: bool,
}

/// The price of a year in monthly prices.
const MONTHS_PAID_A_YEAR: i64 = 10;

impl Plan {
    /// Returns the price of one period.
    pub fn price(&self, cycle: Cycle) -> Cents {
        match cycle {
            Cycle::Monthly => self.monthly,
            Cycle::Yearly => Cents(self.monthly.0.saturating_mul(MONTHS_PAID_A_YEAR)),
        }
    }
}

const fn limits(
    contacts: i64,
    messages_per_month: i64,
    automations: i64,
    team_members: i64,
    whatsapp_numbers: i64,
) -> PlanLimits {
    PlanLimits {
        contacts,
        messages_per_month,
        automations,
        team_members,
        whatsapp_numbers,
    }
}

/// All plans, smallest first.
pub static PLANS: &[Plan] = &[
    Plan {
        id: FREE_PLAN,
        name: "Free",
        description: "To try Recado",
        monthly: Cents(0),
        limits: limits(500, 250, 1, 2, 1),
        features: &[
            "500 contacts",
            "250 messages a month",
            "1 WhatsApp number",
            "2 team members",
        ],
        highlighted: false,
    },
    Plan {
        id: "starter",
        name: "Starter",
        description: "For a shop that starts to message its customers",
        monthly: Cents(9_700),
        limits: limits(5_000, 5_000, 5, 5, 1),
        features: &[
            "5,000 contacts",
            "5,000 messages a month",
            "1 WhatsApp number",
            "5 team members",
            "5 automations",
        ],
        highlighted: false,
    },
    Plan {
        id: "growth",
        name: "Growth",
        description: "For a business that sends campaigns every week",
        monthly: Cents(29_700),
        limits: limits(25_000, 30_000, 20, 15, 3),
        features: &[
            "25,000 contacts",
            "30,000 messages a month",
            "3 WhatsApp numbers",
            "15 team members",
            "20 automations",
        ],
        highlighted: true,
    },
    Plan {
        id: "scale",
        name: "Scale",
        description: "For many stores and large audiences",
        monthly: Cents(79_700),
        limits: limits(200_000, 250_000, 100, 50, 10),
        features: &[
            "200,000 contacts",
            "250,000 messages a month",
            "10 WhatsApp numbers",
            "50 team members",
            "100 automations",
        ],
        highlighted: false,
    },
];

/// Finds a plan by id.
pub fn plan(id: &str) -> Option<&'static Plan> {
    PLANS.iter().find(|plan| plan.id == id)
}

/// Returns the better of two plans: the later one in the catalogue. A plan outside the catalogue ranks lowest.
pub fn better_plan<'a>(plan: &'a str, other: Option<&'a str>) -> &'a str {
    let rank = |id: &str| PLANS.iter().position(|plan| plan.id == id);
    match other {
        Some(other) if rank(other) > rank(plan) => other,
        _ => plan,
    }
}

/// Returns the cycle whose price in the catalogue equals `value`. All prices differ.
pub(super) fn cycle_of_price(value: Cents) -> Option<Cycle> {
    let priced = |cycle: Cycle| {
        PLANS
            .iter()
            .any(|plan| plan.id != FREE_PLAN && plan.price(cycle) == value)
    };
    Cycle::ALL.iter().copied().find(|cycle| priced(*cycle))
}

/// Returns the limits of a plan by id.
pub fn plan_limits(id: &str) -> Option<PlanLimits> {
    plan(id).map(|plan| plan.limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_the_published_prices() {
        let prices: Vec<String> = PLANS
            .iter()
            .map(|plan| {
                let (month, year) = (plan.price(Cycle::Monthly), plan.price(Cycle::Yearly));
                format!("{} {} {} {}", plan.id, month.0, year.0, plan.highlighted)
            })
            .collect();
        let expected = [
            "free 0 0 false",
            "starter 9700 97000 false",
            "growth 29700 297000 true",
            "scale 79700 797000 false",
        ];
        assert_eq!(prices, expected);
        assert_eq!(plan_limits("scale").map(|limits| limits.whatsapp_numbers), Some(10));
        assert_eq!(plan("gold"), None);
        for (plan, other, better) in [
            ("free", None, "free"),
            ("growth", Some("starter"), "growth"),
            ("starter", Some("growth"), "growth"),
            ("gold", Some("free"), "free"),
            ("free", Some("gold"), "free"),
        ] {
            assert_eq!(better_plan(plan, other), better, "{plan} {other:?}");
        }
        // All prices differ, so a price determines its cycle.
        let paid = PLANS.iter().filter(|plan| plan.id != FREE_PLAN);
        for (plan, cycle) in paid.flat_map(|plan| Cycle::ALL.iter().map(move |cycle| (plan, *cycle))) {
            assert_eq!(cycle_of_price(plan.price(cycle)), Some(cycle), "{}", plan.id);
        }
        assert_eq!((cycle_of_price(Cents(0)), cycle_of_price(Cents(1_000))), (None, None));
    }
}
