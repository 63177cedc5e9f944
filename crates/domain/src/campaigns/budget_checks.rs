//! Whether the budget of a campaign can pay for the rest of its run, and the cost in the response of a command.

use super::{Budget, Campaign, CampaignError, Campaigns};

impl Campaign {
    /// The budget that limits the run. A simulated run costs nothing.
    pub fn payable_budget(&self) -> Option<&Budget> {
        self.budget.as_ref().filter(|_| !self.simulated)
    }
}

impl Campaigns {
    /// Refuses a campaign whose run would pause at a recipient that has no rate in the currency of the budget.
    pub(super) async fn check_remaining_rates(&self, campaign: &Campaign) -> Result<(), CampaignError> {
        let Some(budget) = campaign.payable_budget() else {
            return Ok(());
        };
        let remaining = self.starts.remaining_costs(campaign.account_id, campaign.id).await?;
        match remaining {
            Some(remaining) => Ok(remaining.check(budget)?),
            None => Ok(()),
        }
    }

    /// The campaign with its cost of now. The cost in a command's campaign is from before the command.
    pub(super) async fn with_current_cost(&self, campaign: Campaign) -> Campaign {
        let stored = self.store.find(campaign.account_id, campaign.id).await;
        // The command has succeeded: a failed read does not change that.
        match stored {
            Ok(Some(stored)) => Campaign {
                cost: stored.cost,
                ..campaign
            },
            Ok(None) | Err(_) => campaign,
        }
    }
}
