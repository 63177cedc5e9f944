//! The sends of the in-memory run store.

use time::Duration;

use crate::campaigns::{ClaimedSend, CounterChange, Recipient, SendCounts};
use crate::messaging::SendStatus;
use crate::shared::{ContactId, SendId};

/// A send as a database stores it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: SendId,
    pub(super) contact_id: ContactId,
    pub(super) recipient: Option<Recipient>,
    pub(super) status: SendStatus,
    pub(super) started: bool,
    pub(super) unknown: bool,
    pub(super) attempts: u32,
    pub(super) retry_at: Duration,
    pub(super) error: Option<(Option<i64>, String)>,
}

/// Makes a send due again, whatever its state. The port does not restrict which worker records a result.
pub(super) fn make_due(row: &mut Row) {
    row.started = false;
    row.unknown = false;
}

pub(super) fn claimed(row: &Row) -> ClaimedSend {
    ClaimedSend {
        id: row.id,
        contact_id: row.contact_id,
        attempts: row.attempts,
        recipient: row.recipient.clone(),
        wa_id: None,
    }
}

pub(super) fn add(counts: SendCounts, change: CounterChange) -> SendCounts {
    let deltas = SendCounts::deltas([change]);
    SendCounts {
        total: counts.total,
        pending: counts.pending + deltas.pending,
        sent: counts.sent + deltas.sent,
        delivered: counts.delivered + deltas.delivered,
        read: counts.read + deltas.read,
        failed: counts.failed + deltas.failed,
    }
}
