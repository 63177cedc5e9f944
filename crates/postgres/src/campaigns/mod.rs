//! Campaigns, their sends, and the runs that send them.
//!
//! Every transaction takes locks in one order: campaign, its template, its queue entry, batches, sends by id, its budget, claim,
//! contacts, counters, the month's usage. Contacts come before counters: an import may lock a contact for long, and a locked
//! counter blocks every other write of the campaign.
//!
//! A transaction writes one counter slot of each sharded counter and of the usage: slot 0 if it reserves messages, else
//! the slot that `counter_slot()` selects.
//!
//! A pending send holds a reservation of the month's quota while its campaign is sending or once the send was started.
//! The transaction that ends this condition also releases the reservation.

mod audience;
mod budgets;
mod claims;
mod contents;
mod end;
mod facts;
mod holds;
mod in_flight;
mod preview;
mod queue;
mod record_and_start;
mod remaining_costs;
mod retries;
mod retry_batches;
mod rows;
mod runs;
mod selection;
mod send_ids;
mod send_slots;
mod send_times;
mod sends;
mod start;
mod store;
mod test_send;
pub(crate) mod usage;

pub use runs::PgRuns;
pub(crate) use send_ids::id_of_campaign;
pub use send_slots::PgSendSlots;
pub(crate) use sends::{SendChanges, lock_sends};
pub use store::PgCampaigns;
pub use test_send::PgTestSends;
