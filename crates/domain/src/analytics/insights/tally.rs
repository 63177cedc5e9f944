//! Counting messages of conversations, as they come and as they move on.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::MessageCounts;
use crate::conversations::MessageStatus;
use crate::ingestion::Grain;

impl MessageCounts {
    /// What a message of this status counts as; nothing when it is not known to have left.
    pub fn of(status: MessageStatus) -> Self {
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

/// What a change adds to the kept sums of messages, by the time in which these were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageTally {
    sums: BTreeMap<(Grain, OffsetDateTime), MessageCounts>,
}

impl MessageTally {
    /// A message that is new.
    pub fn add(&mut self, written_at: OffsetDateTime, status: MessageStatus) {
        self.change(written_at, |sum| *sum += MessageCounts::of(status));
    }

    /// A message that became something else.
    pub fn advance(&mut self, written_at: OffsetDateTime, from: MessageStatus, to: MessageStatus) {
        self.change(written_at, |sum| {
            *sum += MessageCounts::of(to);
            *sum -= MessageCounts::of(from);
        });
    }

    fn change(&mut self, written_at: OffsetDateTime, change: impl Fn(&mut MessageCounts)) {
        for grain in Grain::SERIES {
            change(self.sums.entry((grain, grain.begin(written_at))).or_default());
        }
    }

    /// The sums that change, in their order.
    pub fn changes(&self) -> Vec<(Grain, OffsetDateTime, MessageCounts)> {
        let sums = self.sums.iter().filter(|(_, sum)| **sum != MessageCounts::default());
        sums.map(|(&(grain, at), &sum)| (grain, at, sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const AT: OffsetDateTime = datetime!(2026-03-01 12:29:59 UTC);

    #[test]
    fn a_message_is_counted_once_in_each_grain() {
        let mut tally = MessageTally::default();
        tally.add(AT, MessageStatus::Received);
        tally.add(AT, MessageStatus::Pending);
        tally.advance(AT, MessageStatus::Pending, MessageStatus::Sent);
        tally.advance(AT, MessageStatus::Sent, MessageStatus::Read);
        let sum = MessageCounts {
            read: 1,
            received: 1,
            ..MessageCounts::default()
        };
        let wanted = [
            (Grain::Quarter, datetime!(2026-03-01 12:15 UTC), sum),
            (Grain::ThreeHours, datetime!(2026-03-01 12:00 UTC), sum),
            (Grain::Day, datetime!(2026-03-01 0:00 UTC), sum),
        ];
        assert_eq!(tally.changes(), wanted);
    }

    #[test]
    fn what_changes_nothing_is_left_out() {
        let mut tally = MessageTally::default();
        tally.add(AT, MessageStatus::Pending);
        assert!(tally.changes().is_empty());
    }
}
