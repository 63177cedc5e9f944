//! Rollup delta of conversation messages.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::MessageCounts;
use crate::conversations::MessageStatus;
use crate::ingestion::Granularity;

impl MessageCounts {
    /// The counts of one message with this status. A pending message counts as nothing.
    pub fn from_status(status: MessageStatus) -> Self {
        let mut counts = Self::default();
        match status {
            MessageStatus::Pending => {}
            MessageStatus::Received => counts.received = 1,
            MessageStatus::Sent => counts.sent = 1,
            MessageStatus::Delivered => counts.delivered = 1,
            MessageStatus::Read => counts.read = 1,
            MessageStatus::Failed => counts.failed = 1,
        }
        counts
    }
}

/// The delta of a change, by the bucket in which the messages were created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageRollupDelta {
    sums: BTreeMap<(Granularity, OffsetDateTime), MessageCounts>,
}

impl MessageRollupDelta {
    /// Adds a new message.
    pub fn add(&mut self, written_at: OffsetDateTime, status: MessageStatus) {
        self.change(written_at, |sum| *sum += MessageCounts::from_status(status));
    }

    /// Adds the status change of a message.
    pub fn advance(&mut self, written_at: OffsetDateTime, from: MessageStatus, to: MessageStatus) {
        self.change(written_at, |sum| {
            *sum += MessageCounts::from_status(to);
            *sum -= MessageCounts::from_status(from);
        });
    }

    fn change(&mut self, written_at: OffsetDateTime, change: impl Fn(&mut MessageCounts)) {
        for granularity in Granularity::SERIES {
            change(
                self.sums
                    .entry((granularity, granularity.begin(written_at)))
                    .or_default(),
            );
        }
    }

    /// Returns the deltas that are not zero, sorted by bucket.
    pub fn changes(&self) -> Vec<(Granularity, OffsetDateTime, MessageCounts)> {
        let sums = self.sums.iter().filter(|(_, sum)| **sum != MessageCounts::default());
        sums.map(|(&(granularity, at), &sum)| (granularity, at, sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const AT: OffsetDateTime = datetime!(2026-03-01 12:29:59 UTC);

    #[test]
    fn a_message_is_counted_once_in_each_granularity() {
        let mut delta = MessageRollupDelta::default();
        delta.add(AT, MessageStatus::Received);
        delta.add(AT, MessageStatus::Pending);
        delta.advance(AT, MessageStatus::Pending, MessageStatus::Sent);
        delta.advance(AT, MessageStatus::Sent, MessageStatus::Read);
        let sum = MessageCounts {
            read: 1,
            received: 1,
            ..MessageCounts::default()
        };
        let expected = [
            (Granularity::Quarter, datetime!(2026-03-01 12:15 UTC), sum),
            (Granularity::ThreeHours, datetime!(2026-03-01 12:00 UTC), sum),
            (Granularity::Day, datetime!(2026-03-01 0:00 UTC), sum),
        ];
        assert_eq!(delta.changes(), expected);
    }

    #[test]
    fn message_delta_omits_zero_changes() {
        let mut delta = MessageRollupDelta::default();
        delta.add(AT, MessageStatus::Pending);
        assert!(delta.changes().is_empty());
    }
}
