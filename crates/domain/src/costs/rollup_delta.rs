//! Rollup delta of the costs of messages.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::ingestion::Granularity;
use crate::messaging::StatusPricing;
use crate::shared::Amount;

/// The key of a cost rollup. A message without a value has zeros or an empty text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostKey {
    /// The start of the 15 minutes in which the message got its price.
    pub bucket_start: OffsetDateTime,
    pub campaign_id: Uuid,
    pub profile_id: Uuid,
    pub template_id: Uuid,
    pub category: String,
    pub market: String,
    pub currency: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostSums {
    pub amount: Amount,
    pub messages: i64,
    pub billable: i64,
    pub free: i64,
    /// Billable messages without an amount.
    pub unpriced: i64,
}

impl CostSums {
    pub(crate) fn add(&mut self, other: Self) {
        self.amount += other.amount;
        self.messages += other.messages;
        self.billable += other.billable;
        self.free += other.free;
        self.unpriced += other.unpriced;
    }

    fn negated(self) -> Self {
        Self {
            amount: -self.amount,
            messages: -self.messages,
            billable: -self.billable,
            free: -self.free,
            unpriced: -self.unpriced,
        }
    }
}

/// What a message that was delivered or read adds to the rollup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostEntry {
    pub key: CostKey,
    pub sums: CostSums,
}

impl CostEntry {
    /// The entry of a message that was delivered or read.
    pub fn of(priced: &StatusPricing, campaign: Uuid) -> Self {
        let pricing = &priced.pricing;
        let id = |id: Option<Uuid>| id.unwrap_or(Uuid::nil());
        let key = CostKey {
            bucket_start: Granularity::Quarter.begin(priced.rate_time()),
            campaign_id: campaign,
            profile_id: id(priced.profile_id.map(Uuid::from)),
            template_id: id(priced.template_id.map(Uuid::from)),
            category: pricing.category.clone().unwrap_or_default(),
            market: pricing.market.clone().unwrap_or_default(),
            currency: pricing.currency.clone().unwrap_or_default(),
        };
        let sums = CostSums {
            amount: pricing.amount.unwrap_or_default(),
            messages: 1,
            billable: i64::from(pricing.billable),
            free: i64::from(!pricing.billable),
            unpriced: i64::from(pricing.billable && pricing.amount.is_none()),
        };
        Self { key, sums }
    }
}

/// The changes of a batch, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRollupDelta {
    sums: BTreeMap<CostKey, CostSums>,
}

impl CostRollupDelta {
    /// Replaces what a message added by what it adds now.
    pub fn replace(&mut self, before: Option<CostEntry>, after: Option<CostEntry>) {
        if before == after {
            return;
        }
        if let Some(CostEntry { key, sums }) = before {
            self.sums.entry(key).or_default().add(sums.negated());
        }
        if let Some(CostEntry { key, sums }) = after {
            self.sums.entry(key).or_default().add(sums);
        }
    }

    /// Adds the changes of another batch.
    pub fn extend(&mut self, other: Self) {
        for (key, sums) in other.sums {
            self.sums.entry(key).or_default().add(sums);
        }
    }

    pub fn changes_amounts(&self) -> bool {
        self.sums.values().any(|sums| !sums.amount.is_zero())
    }

    /// The changes that are not zero, sorted by key.
    pub fn changes(&self) -> Vec<(&CostKey, CostSums)> {
        let changed = self.sums.iter().filter(|(_, sums)| **sums != CostSums::default());
        changed.map(|(key, sums)| (key, *sums)).collect()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::messaging::{Pricing, PricingSource, SendStatus};

    fn priced(category: &str, amount: Option<&str>, billable: bool) -> StatusPricing {
        let at = datetime!(2026-03-01 12:29:59 UTC);
        let pricing = Pricing {
            billable,
            model: None,
            kind: None,
            category: Some(category.into()),
            market: Some("BR".into()),
            amount: amount.and_then(Amount::parse),
            currency: amount.map(|_| "USD".to_owned()),
            source: PricingSource::RateCard,
            priced_at: at,
        };
        StatusPricing::new(pricing, SendStatus::Delivered)
    }

    fn entry(category: &str, amount: Option<&str>, billable: bool) -> Option<CostEntry> {
        Some(CostEntry::of(&priced(category, amount, billable), Uuid::from_u128(7)))
    }

    #[test]
    fn correction_moves_a_message_to_another_key() {
        let mut delta = CostRollupDelta::default();
        delta.replace(None, entry("utility", Some("0.01"), true));
        delta.replace(
            entry("utility", Some("0.01"), true),
            entry("marketing", Some("0.06"), true),
        );
        let changes = delta.changes();
        assert_eq!(changes.len(), 1, "{changes:?}");
        let (key, sums) = &changes[0];
        assert_eq!(
            (key.category.as_str(), key.bucket_start),
            ("marketing", datetime!(2026-03-01 12:15 UTC))
        );
        assert_eq!(
            (sums.amount, sums.messages, sums.billable),
            (Amount::parse("0.06").unwrap(), 1, 1)
        );
    }

    #[test]
    fn unpriced_and_free_messages_are_counted_apart() {
        let mut delta = CostRollupDelta::default();
        delta.replace(None, entry("marketing", None, true));
        delta.replace(None, entry("service", Some("0"), false));
        delta.replace(entry("x", None, true), entry("x", None, true));
        let sums: Vec<CostSums> = delta.changes().into_iter().map(|(_, sums)| sums).collect();
        assert_eq!(sums.iter().map(|sums| sums.unpriced).sum::<i64>(), 1);
        assert_eq!(sums.iter().map(|sums| sums.free).sum::<i64>(), 1);
        assert_eq!(sums.len(), 2);
    }
}
