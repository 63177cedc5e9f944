//! The partitioned tables, and how long their rows are stored.

use super::bounds::{Interval, PartitionKey};

/// A table that is partitioned by time.
#[derive(Clone, Copy, Debug)]
pub struct PartitionedTable {
    pub name: &'static str,
    pub key: PartitionKey,
    pub interval: Interval,
    /// The storage class of every partition (`set_storage()`), because the table itself cannot have one.
    pub class: &'static str,
    /// The fill factor of the current, the previous and the future intervals, whose rows still change. Earlier
    /// partitions get 100. `None`: the rows never change.
    pub fillfactor: Option<u8>,
    pub retention: RetentionTerm,
}

/// How long the rows of a table are stored.
#[derive(Clone, Copy, Debug)]
pub enum RetentionTerm {
    /// A fixed number of days.
    Days(u16),
    /// As the operator configured; without configuration, for ever.
    Configured(fn(&RetentionDays) -> Option<u16>),
    /// The same, but for as long as the limit of marketing messages of any account counts the rows.
    ConfiguredAndUncounted(fn(&RetentionDays) -> Option<u16>),
}

/// The operator's retention terms in days. `None`: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionDays {
    pub campaign_sends: Option<u16>,
    pub messages: Option<u16>,
    pub metric_events: Option<u16>,
    pub orders: Option<u16>,
    pub audit: Option<u16>,
}

impl PartitionedTable {
    /// The number of days for which the rows are stored. `None`: for ever. `counted_days`: those of the longest limit of
    /// marketing messages.
    pub fn retention_days(&self, terms: &RetentionDays, counted_days: u16) -> Option<u16> {
        match self.retention {
            RetentionTerm::Days(days) => Some(days),
            RetentionTerm::Configured(term) => term(terms),
            RetentionTerm::ConfiguredAndUncounted(term) => Some(term(terms)?.max(counted_days)),
        }
    }
}

/// Every partitioned table. A table that the database does not have yet is skipped.
pub const PARTITIONED: &[PartitionedTable] = &[
    PartitionedTable {
        name: "campaign_sends",
        key: PartitionKey::Id,
        interval: Interval::Month,
        class: "ledger",
        // Room for three versions of a row: all updates of a send stay on its page (decision 27).
        fillfactor: Some(35),
        retention: RetentionTerm::ConfiguredAndUncounted(|terms| terms.campaign_sends),
    },
    // After `campaign_sends`: a send that is still stored is in the list.
    PartitionedTable {
        name: "campaign_send_times",
        key: PartitionKey::IdOf("first_send_id"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::ConfiguredAndUncounted(|terms| terms.campaign_sends),
    },
    PartitionedTable {
        name: "sent_messages",
        key: PartitionKey::Time("recorded_at"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Days(45),
    },
    PartitionedTable {
        name: "webhook_events",
        key: PartitionKey::Id,
        interval: Interval::Day,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Days(30),
    },
    PartitionedTable {
        name: "webhook_logs",
        key: PartitionKey::Id,
        interval: Interval::Day,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Days(30),
    },
    PartitionedTable {
        name: "webhook_inbox",
        key: PartitionKey::Time("received_at"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Days(30),
    },
    PartitionedTable {
        name: "audit_logs",
        key: PartitionKey::Time("created_at"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Configured(|terms| terms.audit),
    },
    PartitionedTable {
        name: "audit_counts",
        key: PartitionKey::Time("month"),
        interval: Interval::Month,
        class: "counter",
        // The relay updates a few rows again and again.
        fillfactor: Some(50),
        retention: RetentionTerm::Configured(|terms| terms.audit),
    },
    PartitionedTable {
        name: "messages",
        key: PartitionKey::Time("created_at"),
        interval: Interval::Month,
        class: "ledger",
        // A reply is updated by its status updates.
        fillfactor: Some(85),
        retention: RetentionTerm::Configured(|terms| terms.messages),
    },
    PartitionedTable {
        name: "orders",
        key: PartitionKey::Id,
        interval: Interval::Month,
        class: "ledger",
        // Shops report an order again when it is paid or refunded.
        fillfactor: Some(85),
        retention: RetentionTerm::Configured(|terms| terms.orders),
    },
    // After `orders`: an order that is still stored has its items.
    PartitionedTable {
        name: "order_items",
        key: PartitionKey::IdOf("order_id"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Configured(|terms| terms.orders),
    },
    PartitionedTable {
        name: "metric_events",
        key: PartitionKey::Time("occurred_at"),
        interval: Interval::Month,
        class: "ledger",
        fillfactor: None,
        retention: RetentionTerm::Configured(|terms| terms.metric_events),
    },
];
