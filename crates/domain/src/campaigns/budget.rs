//! The budget of a campaign: the most that its messages may cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::CampaignRefusal;
use crate::costs::{CampaignCost, CostFacts, markets_without_rate};
use crate::messaging::Category;
use crate::shared::{Amount, FieldErrors};

/// The pause reason of a run whose next message would exceed the budget, or has no rate in its currency.
pub const BUDGET_REACHED: &str = "budget";

/// The limits of an amount.
const MIN: (i64, i64) = (1, 100);
const MAX: i64 = 10_000_000;
const DECIMALS: u32 = 6;

/// The most that the messages of a campaign may cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// The amount: from 0.01 to 10,000,000, with at most 6 decimals.
    #[schemars(example = 250)]
    pub amount: Amount,
    /// The currency as an ISO 4217 code.
    #[schemars(example = &"USD")]
    pub currency: String,
}

impl Budget {
    pub(super) fn check(&self, path: &str, errors: &mut FieldErrors) {
        let (numerator, denominator) = MIN;
        let is_enough = self.amount * Amount::from(denominator) >= Amount::from(numerator);
        if !is_enough || self.amount > Amount::from(MAX) || self.amount.decimals() > DECIMALS {
            errors.add(
                format!("{path}.amount"),
                "must be from 0.01 to 10000000 with at most 6 decimals",
            );
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            errors.add(format!("{path}.currency"), "must be three capital letters, such as USD");
        }
    }

    /// Refuses a run if a recipient's market has no rate in the budget's currency: its message could never start.
    pub fn check_rates(
        &self,
        costs: &CostFacts,
        category: Category,
        now: OffsetDateTime,
    ) -> Result<(), CampaignRefusal> {
        let markets = markets_without_rate(costs, category, &self.currency, now);
        match markets.is_empty() {
            true => Ok(()),
            false => Err(CampaignRefusal::NoRate { markets }),
        }
    }

    /// Refuses a resume if the campaign has spent more than the budget. Reservations are spent: their messages have left,
    /// and have no price yet. The run would pause again at once.
    pub(super) fn check_spent(&self, cost: &CampaignCost) -> Result<(), CampaignRefusal> {
        let committed = cost.amount.unwrap_or_default() + cost.reserved.unwrap_or_default();
        match committed > self.amount {
            false => Ok(()),
            true => Err(CampaignRefusal::Budget {
                committed: committed.to_string(),
                currency: self.currency.clone(),
            }),
        }
    }
}

/// The recipients to whom a run still has to start messages.
#[derive(Clone, Debug, PartialEq)]
pub struct RemainingCosts {
    /// The category of the template now.
    pub category: Category,
    pub costs: CostFacts,
    /// The time of the store's clock.
    pub now: OffsetDateTime,
}

impl RemainingCosts {
    /// Refuses a budget in whose currency a recipient's market has no rate.
    pub fn check(&self, budget: &Budget) -> Result<(), CampaignRefusal> {
        budget.check_rates(&self.costs, self.category, self.now)
    }
}

/// How many of the next messages may start, in their order. A message without a rate does not start. `committed`: what
/// the started messages of the campaign cost and have reserved.
pub fn admitted(budget: &Budget, mut committed: Amount, rates: &[Option<Amount>]) -> usize {
    let mut count = 0;
    for rate in rates {
        let Some(rate) = rate else { break };
        committed += *rate;
        if committed > budget.amount {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::service::tests::{NOW, campaign, campaigns_over, tenant};
    use super::super::{
        Campaign, CampaignError, CampaignInput, CampaignStatus, MockCampaignStore, MockRunRetryStore, MockRunStartStore,
    };
    use super::*;
    use crate::costs::{CountryRecipients, RateTable};
    use crate::shared::{CampaignId, WriteOutcome};

    fn budget(amount: &str) -> Budget {
        Budget {
            amount: Amount::parse(amount).unwrap(),
            currency: "USD".into(),
        }
    }

    fn count(amount: &str, committed: &str, rates: &[Option<&str>]) -> usize {
        let rates: Vec<Option<Amount>> = rates.iter().map(|rate| Amount::parse((*rate)?)).collect();
        admitted(&budget(amount), Amount::parse(committed).unwrap(), &rates)
    }

    #[test]
    fn budget_admits_exactly_what_fits() {
        let rate = Some("0.0625");
        assert_eq!(count("0.25", "0", &[rate; 6]), 4);
        assert_eq!(count("0.25", "0.125", &[rate; 6]), 2);
        assert_eq!(count("0.249999", "0.125", &[rate; 6]), 1);
        assert_eq!(count("0.25", "0.3", &[rate; 6]), 0);
        assert_eq!(count("0.25", "0.25", &[Some("0"), Some("0"), rate]), 2);
        assert_eq!(count("0.25", "0", &[rate, None, rate]), 1);
        assert_eq!(count("0.25", "0", &[]), 0);
    }

    #[test]
    fn budget_is_checked() {
        for (amount, currency, fields) in [
            ("0.01", "USD", vec![]),
            ("10000000", "BRL", vec![]),
            ("0.009", "USD", vec!["budget.amount"]),
            ("10000000.01", "USD", vec!["budget.amount"]),
            ("1.1234567", "usd", vec!["budget.amount", "budget.currency"]),
        ] {
            let mut errors = FieldErrors::default();
            let budget = Budget {
                currency: currency.into(),
                ..budget(amount)
            };
            budget.check("budget", &mut errors);
            assert_eq!(errors.0.keys().collect::<Vec<_>>(), fields, "{amount} {currency}");
        }
    }

    #[test]
    fn resume_needs_a_budget_above_what_is_spent() {
        let cost = |amount: &str, reserved: &str| CampaignCost {
            amount: Amount::parse(amount),
            currency: Some("USD".into()),
            reserved: Amount::parse(reserved),
            unpriced: 0,
        };
        assert!(budget("1").check_spent(&cost("0.5", "0.5")).is_ok());
        assert!(budget("1").check_spent(&cost("0.5", "0.6")).is_err());
        assert!(budget("1").check_spent(&CampaignCost::default()).is_ok());
    }

    /// The remaining recipient of a run is in this country, for which no card has a rate. None: no recipient is left.
    fn starts_with(country: Option<&str>) -> MockRunStartStore {
        let recipients: Vec<CountryRecipients> = country
            .into_iter()
            .map(|country| CountryRecipients {
                country: Some(country.to_owned()),
                recipients: 1,
                in_window: 0,
            })
            .collect();
        let mut starts = MockRunStartStore::new();
        starts.expect_remaining_costs().returning(move |_, _| {
            Ok(Some(RemainingCosts {
                category: Category::Marketing,
                costs: CostFacts {
                    has_card: true,
                    rates: RateTable::default(),
                    recipients: recipients.clone(),
                },
                now: NOW,
            }))
        });
        starts
    }

    #[tokio::test]
    async fn budget_of_a_run_needs_a_rate_for_every_remaining_market() {
        for (status, simulated, is_refused) in [
            (CampaignStatus::Sending, false, true),
            (CampaignStatus::Sending, true, false),
            (CampaignStatus::Draft, false, false),
        ] {
            let mut store = MockCampaignStore::new();
            store.expect_unknown_references().returning(|_, _| Ok(vec![]));
            store.expect_find().returning(move |_, _| {
                Ok(Some(Campaign {
                    simulated,
                    ..campaign(status)
                }))
            });
            store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
            let campaigns = campaigns_over(store, starts_with(Some("PT")), MockRunRetryStore::new());
            let input = CampaignInput {
                budget: Some(Some(budget("5"))),
                ..CampaignInput::default()
            };
            let updated = campaigns.update(&tenant(), CampaignId(Uuid::nil()), input).await;
            let markets = vec!["PT".to_owned()];
            match is_refused {
                false => assert!(updated.is_ok(), "{status}"),
                true => assert!(
                    matches!(&updated, Err(CampaignError::Refused(CampaignRefusal::NoRate { markets: found }))
                        if *found == markets),
                    "{updated:?}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn budget_alone_is_set_while_the_campaign_sends() {
        let budget = |currency: &str| Budget {
            amount: 5.into(),
            currency: currency.into(),
        };
        let update = async |stored_budget: Option<Budget>, input: CampaignInput| {
            let mut store = MockCampaignStore::new();
            store.expect_unknown_references().returning(|_, _| Ok(vec![]));
            store.expect_find().returning(move |_, _| {
                let sending = campaign(CampaignStatus::Sending);
                Ok(Some(Campaign {
                    budget: stored_budget.clone(),
                    ..sending
                }))
            });
            store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
            let campaigns = campaigns_over(store, starts_with(None), MockRunRetryStore::new());
            campaigns.update(&tenant(), CampaignId(Uuid::nil()), input).await
        };
        let alone = |budget: Option<Budget>| CampaignInput {
            budget: Some(budget),
            ..CampaignInput::default()
        };
        let set = update(None, alone(Some(budget("USD")))).await.unwrap();
        assert_eq!((set.budget, set.status), (Some(budget("USD")), CampaignStatus::Sending));
        let cleared = update(Some(budget("USD")), alone(None)).await.unwrap();
        assert_eq!(cleared.budget, None);
        let other = update(Some(budget("USD")), alone(Some(budget("BRL")))).await;
        assert!(matches!(other, Err(CampaignError::Invalid(_))));
        let with_name = CampaignInput {
            name: Some("x".into()),
            ..alone(None)
        };
        assert!(matches!(update(None, with_name).await, Err(CampaignError::Refused(_))));
    }
}
