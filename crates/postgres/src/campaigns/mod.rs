//! Campaigns, their sends, and the runs that send them.
//!
//! Locks are taken in one order everywhere: campaign, its template, its queue entry, sends by id, contacts, counters,
//! the month's usage. Contacts come before counters, because an import may hold a contact for long, and whoever holds a
//! counter of a campaign keeps all that happens in it waiting.
//! Of counters and usage a transaction writes one slot of each: slot 0 where messages are reserved, else that of
//! the moment.
//! A pending send holds a reservation of the month's quota while its campaign is sending or once it was started;
//! whatever ends that, ends the reservation in the same transaction.

mod audience;
mod claims;
mod contents;
mod end;
mod preview;
mod record_and_start;
mod retries;
mod rows;
mod runs;
mod send_slots;
mod sends;
mod start;
mod store;
mod test_send;
mod usage;

pub(crate) use end::{active_campaigns_of_template, pause_template};
pub use runs::PgRuns;
pub use send_slots::PgSendSlots;
pub(crate) use sends::{SendChanges, lock_sends};
pub use store::PgCampaigns;
pub use test_send::PgTestSends;
