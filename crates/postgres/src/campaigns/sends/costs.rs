//! What sends cost: their prices, and what they return to the budget of their campaign.

use std::collections::BTreeMap;

use recado_domain::costs::{CostEntry, CostRollupDelta};
use recado_domain::messaging::{PriceChange, SendStatus, StatusPricing};
use recado_domain::shared::Amount;
use uuid::Uuid;

use super::LockedSend;
use crate::costs::Priced;
use crate::errors::DbResult;
use crate::ingestion::amount;

impl LockedSend {
    /// Stores the pricing of a status update.
    pub(crate) fn set_pricing(&mut self, pricing: Option<StatusPricing>) {
        let change = StatusPricing::apply(&mut self.pricing, pricing);
        self.changed |= change != PriceChange::Nothing;
        self.needs_rate |= change == PriceChange::Price;
        if let Some(pricing) = self.pricing.as_mut().filter(|pricing| pricing.profile_id.is_none()) {
            pricing.profile_id = self.row.profile_id.map(Into::into);
            pricing.template_id = self.row.template_id.map(Into::into);
        }
    }

    /// Sets the rate of the price again.
    pub(crate) fn reprice(&mut self) {
        if self.pricing.is_some() {
            self.needs_rate = true;
            self.changed = true;
        }
    }

    /// What the send added to the rollup of costs, and what it adds now.
    fn costs(&self) -> (Option<CostEntry>, Option<CostEntry>) {
        let before = self.pricing_before.as_ref().filter(|price| price.since.is_some());
        let entry = |price: Option<&StatusPricing>, status: SendStatus| {
            let charged = price.filter(|_| status.is_charged())?;
            Some(CostEntry::of(charged, self.row.campaign_id))
        };
        (
            entry(before, self.status_before),
            entry(self.pricing.as_ref(), self.status),
        )
    }

    /// Whether the budget gets back what it has reserved: the message did not leave, failed, is free, or has its price.
    pub(super) fn releases_budget(&self) -> bool {
        if self.row.reserved_amount.is_none() {
            return false;
        }
        let has_left = self.status != SendStatus::Pending || self.row.started_at.is_some();
        let price = self.pricing.as_ref().map(|price| &price.pricing);
        let is_free = price.is_some_and(|price| !price.billable);
        let is_priced = self.status.is_charged()
            && price.is_some_and(|price| price.amount.is_some() && price.currency == self.row.budget_currency);
        !has_left || self.status == SendStatus::Failed || is_free || is_priced
    }

    /// What each campaign's budget gets back.
    pub(super) fn released(sends: &[Self]) -> DbResult<BTreeMap<Uuid, Amount>> {
        let mut released = BTreeMap::new();
        for send in sends.iter().filter(|send| send.releases_budget()) {
            if let Some(reserved) = &send.row.reserved_amount {
                *released.entry(send.row.campaign_id).or_default() += amount(reserved)?;
            }
        }
        Ok(released)
    }

    /// The changes of the rollup of costs.
    pub(super) fn cost_delta(sends: &[Self]) -> CostRollupDelta {
        let mut costs = CostRollupDelta::default();
        for send in sends {
            let (before, after) = send.costs();
            costs.replace(before, after);
        }
        costs
    }
}

impl Priced for LockedSend {
    fn needs_rate(&self) -> bool {
        self.needs_rate
    }

    fn contact(&self) -> Uuid {
        self.row.contact_id
    }

    fn price_mut(&mut self) -> Option<(&mut StatusPricing, Option<&str>)> {
        Some((self.pricing.as_mut()?, self.row.budget_currency.as_deref()))
    }
}
