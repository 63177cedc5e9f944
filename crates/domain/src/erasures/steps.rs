//! The steps of an erasure. Each is idempotent, and is taken in batches.

use time::Duration;

use crate::shared::string_enum;

/// How long a claimed erasure belongs to its worker. Every batch of a step renews it.
pub(super) const LEASE: Duration = Duration::minutes(2);

string_enum! {
    /// A step of an erasure, in the order in which they are taken.
    ErasureStep {
        /// Writes the file by which a restored backup is erased again.
        Record = "record",
        /// Fails the messages to the person that have not left.
        Unsent = "unsent",
        /// Waits for the transactions, calls and callbacks that began before the request: they may still write.
        InProgress = "in_progress",
        Exports = "exports",
        Files = "files",
        Messages = "messages",
        DirectMessages = "direct_messages",
        CampaignSends = "campaign_sends",
        MetricEvents = "metric_events",
        Orders = "orders",
        Carts = "carts",
        Links = "links",
        /// Before the events that its relays write.
        OutboxEvents = "outbox_events",
        WebhookEvents = "webhook_events",
        WebhookLogs = "webhook_logs",
        Notifications = "notifications",
        AuditLogs = "audit_logs",
        HeldMessages = "held_messages",
        StoredResponses = "stored_responses",
        /// Rewrites the archives of campaigns, after the sends that an archive may be written from. The last step: an
        /// archive that cannot be read, or another erasure that has the archives, keeps no other step waiting.
        ArchivedSends = "archived_sends",
    }
}

impl ErasureStep {
    /// The first step.
    pub const FIRST: Self = Self::Record;

    /// The step after this one. None: this is the last one.
    pub fn next(self) -> Option<Self> {
        let mut steps = Self::ALL.iter().skip_while(|step| **step != self);
        steps.nth(1).copied()
    }

    /// Whether its files are deleted before its rows are emptied.
    pub fn has_files(self) -> bool {
        matches!(self, Self::Exports | Self::Files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erasure_steps_are_a_chain_of_all_steps() {
        let chain = std::iter::successors(Some(ErasureStep::FIRST), |step| step.next());
        assert_eq!(chain.collect::<Vec<_>>(), ErasureStep::ALL);
        let position = |step| ErasureStep::ALL.iter().position(|other| *other == step);
        // A relay moves outbox events to the feed, so the outbox comes first.
        assert!(position(ErasureStep::OutboxEvents) < position(ErasureStep::WebhookEvents));
        // The ids of the person's messages lead to their files.
        assert!(position(ErasureStep::Files) < position(ErasureStep::Messages));
        // Archives may keep an erasure waiting, so all else is removed before.
        assert_eq!(ErasureStep::ArchivedSends.next(), None);
    }
}
