//! Rollup deltas of metric events: the metric's totals, its sums by bucket and its sums by contact.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::{EventDraft, Granularity};
use crate::shared::{Amount, ContactId};

/// Sums of a metric's events in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricSums {
    pub events: i64,
    pub value: Amount,
    /// The contacts whose last event is in this bucket.
    pub last_contacts: i64,
}

/// The delta of a metric's totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricTotals {
    pub events: i64,
    pub value: Amount,
    pub last_event_at: Option<OffsetDateTime>,
    /// The new display name, if an event has one.
    pub display_name: Option<String>,
    pub category: Option<String>,
}

/// The delta of a contact's sums in a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContactSums {
    pub events: i64,
    pub value: Amount,
    pub last_event_at: Option<OffsetDateTime>,
}

/// The delta of a batch of new events. The keys are sorted, so that concurrent writers lock the rows in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricRollupDelta {
    pub metrics: BTreeMap<String, MetricTotals>,
    pub sources: BTreeSet<(String, String)>,
    pub contacts: BTreeMap<(String, ContactId), ContactSums>,
    pub rollups: BTreeMap<(String, Granularity, OffsetDateTime), MetricSums>,
}

impl MetricRollupDelta {
    /// Adds a new event.
    pub fn count(&mut self, event: &EventDraft, contact: Option<ContactId>) {
        let (name, value, at) = (&event.metric_name, event.value.unwrap_or_default(), event.occurred_at);
        let totals = self.metrics.entry(name.clone()).or_default();
        totals.events += 1;
        totals.value += value;
        totals.last_event_at = totals.last_event_at.max(Some(at));
        totals.display_name = event.display_name.clone().or(totals.display_name.take());
        totals.category = event.category.clone().or(totals.category.take());
        self.sources.insert((name.clone(), event.source.clone()));
        for granularity in Granularity::SERIES {
            let sums = self.sums(name, granularity, at);
            sums.events += 1;
            sums.value += value;
        }
        if let Some(contact) = contact {
            let sums = self.contacts.entry((name.clone(), contact)).or_default();
            sums.events += 1;
            sums.value += value;
            sums.last_event_at = sums.last_event_at.max(Some(at));
        }
    }

    /// Moves contacts to the bucket of their new last event. `before` holds the previous last events.
    pub fn move_contacts(&mut self, before: &BTreeMap<(String, ContactId), OffsetDateTime>) {
        let moves: Vec<_> = self
            .contacts
            .iter()
            .map(|(key, sums)| (key.0.clone(), before.get(key).copied(), sums.last_event_at))
            .collect();
        for (name, before, after) in moves {
            if after <= before {
                continue;
            }
            for granularity in Granularity::SERIES {
                for (at, times) in [(before, -1), (after, 1)] {
                    if let Some(at) = at {
                        self.sums(&name, granularity, at).last_contacts += times;
                    }
                }
            }
        }
    }

    fn sums(&mut self, name: &str, granularity: Granularity, at: OffsetDateTime) -> &mut MetricSums {
        self.rollups
            .entry((name.to_owned(), granularity, granularity.begin(at)))
            .or_default()
    }
}
