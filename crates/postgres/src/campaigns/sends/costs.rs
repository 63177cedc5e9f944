//! What sends cost: their prices, and what they return to the budget of their campaign.

use std::collections::BTreeMap;

use recado_domain::costs::{CostEntry, CostRollupDelta};
use recado_domain::messaging::{PriceChange, ReturnedReservation, SendStatus, StatusPricing};
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
        self.price_change = self.price_change.max(change);
        if let Some(pricing) = self.pricing.as_mut().filter(|pricing| pricing.profile_id.is_none()) {
            pricing.profile_id = self.row.profile_id.map(Into::into);
            pricing.template_id = self.row.template_id.map(Into::into);
        }
    }

    /// Sets the rate of the price again.
    pub(crate) fn reprice(&mut self) {
        if self.pricing.is_some() {
            self.price_change = PriceChange::Price;
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

    /// Whether the budget needs no reservation for the message: it did not leave, failed, is free, or was delivered and
    /// has its price.
    fn needs_no_reservation(&self) -> bool {
        let has_left = self.status != SendStatus::Pending || self.row.started_at.is_some();
        let is_settled = |price: &StatusPricing| {
            let pricing = &price.pricing;
            let is_priced = pricing.amount.is_some() && pricing.currency == self.row.budget_currency;
            !pricing.billable || (self.status.is_charged() && is_priced)
        };
        !has_left || self.status == SendStatus::Failed || self.pricing.as_ref().is_some_and(is_settled)
    }

    /// Sets what the budget reserves for the message now. A correction to a price that is unknown in the budget's currency
    /// takes the reservation again that an earlier price had returned.
    pub(super) fn set_reservation(&mut self) -> DbResult<()> {
        self.reserved = self.row.reserved_amount.as_deref().map(amount).transpose()?;
        self.reserved_before = self.reserved;
        let currency = self.row.budget_currency.clone();
        let is_final = self.needs_no_reservation();
        if let Some(amount) = self.reserved.take_if(|_| is_final) {
            if let (Some(price), Some(currency)) = (&mut self.pricing, currency) {
                price.returned = Some(ReturnedReservation { amount, currency });
            }
        } else if !is_final && self.reserved.is_none() {
            let returned = self.pricing.as_mut().and_then(|price| price.returned.take());
            let returned = returned.filter(|returned| Some(&returned.currency) == currency.as_ref());
            self.reserved = returned.map(|returned| returned.amount);
        }
        Ok(())
    }

    /// How the reservations of each campaign's budget change.
    pub(super) fn reservation_changes(sends: &[Self]) -> BTreeMap<Uuid, Amount> {
        let mut changes: BTreeMap<Uuid, Amount> = BTreeMap::new();
        for send in sends.iter().filter(|send| send.reserved != send.reserved_before) {
            let change = send.reserved.unwrap_or_default() - send.reserved_before.unwrap_or_default();
            *changes.entry(send.row.campaign_id).or_default() += change;
        }
        changes
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
    fn price_change(&self) -> PriceChange {
        self.price_change
    }

    fn contact(&self) -> Uuid {
        self.row.contact_id
    }

    fn price(&self) -> Option<&StatusPricing> {
        self.pricing.as_ref()
    }

    fn price_mut(&mut self) -> Option<(&mut StatusPricing, Option<&str>)> {
        Some((self.pricing.as_mut()?, self.row.budget_currency.as_deref()))
    }
}
