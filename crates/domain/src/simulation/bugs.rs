//! Bugs that a simulation plants, to show that its checks find them.

use crate::campaigns::in_memory::PlantedBug;
use crate::direct_messages::in_memory::PlantedMessageBug;

/// A bug that a port has during a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulationBug {
    /// Of the in-memory store of runs.
    Runs(PlantedBug),
    /// Of the in-memory store of direct messages.
    Messages(PlantedMessageBug),
    /// A contact that opts out after a direct message was made gets it.
    MessageOptOutIgnored,
    /// Two direct messages to a new phone make two contacts.
    ContactNotUnique,
    /// A start does not check that the campaign is not sending already.
    StartIgnoresStatus,
    /// A paused run can start sends.
    PauseIgnored,
    /// A batch of results is recorded without its last one.
    ResultDropped,
    /// A cancel does not release the reservations of unsent messages.
    QuotaNotReleasedAtCancel,
    /// A cancel leaves the run in the queue.
    QueueEntryNotDeletedAtCancel,
    /// A contact that opts out after the claim gets the message.
    OptOutIgnored,
    /// Two campaigns of a number may send to one contact at the same time.
    PairIntervalIgnored,
    /// Every worker has send slots of its own.
    SendSlotsNotShared,
    /// A change does not append its webhook event.
    EventLost,
    /// A change appends its webhook event twice.
    EventAppendedTwice,
    /// The relay deletes events in one transaction and writes them in the next one.
    RelayDeletesFirst,
    /// The relay writes events in one transaction and deletes them in the next one.
    RelayWritesFirst,
    /// The relay enqueues deliveries to endpoints that do not subscribe to the event.
    RelayIgnoresSubscription,
    /// A delivery that another deliverer has leased can be claimed.
    ClaimIgnoresLease,
    /// A delivery that succeeded is attempted again.
    SuccessNotRecorded,
    /// A delivery is removed by its first failure.
    FailureRemovesDelivery,
    /// A failed attempt does not count.
    AttemptNotCounted,
    /// The deliveries of an endpoint that becomes inactive wait forever.
    DeliveriesNotDroppedAtDisable,
    /// An account can have two live subscriptions.
    SecondSubscriptionReserved,
    /// Optimistic locking does not work for subscriptions.
    WriteIgnoresVersion,
    /// The intent of a cancellation is not stored.
    IntentNotStored,
    /// The reconciler reverts an intent while its lease lasts.
    IntentLeaseIgnored,
    /// A stored payment is not found when an event about it is applied.
    PaymentNotFound,
    /// A payment is not stored with the period that it pays for.
    PaymentNotStored,
    /// A repeated gateway event is stored again.
    GatewayEventNotDeduplicated,
    /// The end of a paid period does not change the account's plan.
    AccountPlanNotWritten,
}

impl SimulationBug {
    pub(super) const ALL: [Self; 46] = [
        Self::Runs(PlantedBug::ResendsUnknown),
        Self::Runs(PlantedBug::IgnoresHolder),
        Self::Runs(PlantedBug::ReleasesTwice),
        Self::StartIgnoresStatus,
        Self::PauseIgnored,
        Self::ResultDropped,
        Self::QuotaNotReleasedAtCancel,
        Self::QueueEntryNotDeletedAtCancel,
        Self::OptOutIgnored,
        Self::PairIntervalIgnored,
        Self::SendSlotsNotShared,
        Self::EventLost,
        Self::EventAppendedTwice,
        Self::RelayDeletesFirst,
        Self::RelayWritesFirst,
        Self::RelayIgnoresSubscription,
        Self::ClaimIgnoresLease,
        Self::SuccessNotRecorded,
        Self::FailureRemovesDelivery,
        Self::AttemptNotCounted,
        Self::DeliveriesNotDroppedAtDisable,
        Self::SecondSubscriptionReserved,
        Self::WriteIgnoresVersion,
        Self::IntentNotStored,
        Self::IntentLeaseIgnored,
        Self::PaymentNotFound,
        Self::PaymentNotStored,
        Self::GatewayEventNotDeduplicated,
        Self::AccountPlanNotWritten,
        Self::Messages(PlantedMessageBug::StartIgnoresHolder),
        Self::Messages(PlantedMessageBug::StartedStaysDue),
        Self::Messages(PlantedMessageBug::ResendsUnknown),
        Self::Messages(PlantedMessageBug::TakeIgnoresLease),
        Self::Messages(PlantedMessageBug::CancelIgnoresStart),
        Self::Messages(PlantedMessageBug::ReferenceNotUnique),
        Self::Messages(PlantedMessageBug::QuotaKept),
        Self::Messages(PlantedMessageBug::QuotaNotChecked),
        Self::Messages(PlantedMessageBug::ResultReplacesStatus),
        Self::Messages(PlantedMessageBug::SendAtIgnored),
        Self::Messages(PlantedMessageBug::ExpiryIgnored),
        Self::Messages(PlantedMessageBug::QueueNotDue),
        Self::Messages(PlantedMessageBug::QueueDeleted),
        Self::Messages(PlantedMessageBug::UnknownNeverFails),
        Self::Messages(PlantedMessageBug::CancelEventLost),
        Self::MessageOptOutIgnored,
        Self::ContactNotUnique,
    ];
    /// Whether the bug needs direct messages to be found.
    pub(super) fn is_of_messages(self) -> bool {
        matches!(
            self,
            Self::Messages(_) | Self::MessageOptOutIgnored | Self::ContactNotUnique
        )
    }
}
