//! Campaigns, their sends, and the runs that send them.
//!
//! Locks are taken in one order everywhere: campaign, its template, its place in the queue, sends by id, contacts, counters,
//! the month's usage. Contacts come before counters, because an import may hold a contact for long, and whoever holds a
//! counter of a campaign keeps all that happens in it waiting.
//! Of counters and usage a transaction writes one slot of each: slot 0 where places are reserved, else that of the moment.
//! A pending send holds a place in the month's quota while its campaign is sending or once it was started; whatever
//! ends that, ends the place in the same transaction.

mod audience;
mod claims;
mod contents;
mod ending;
mod paces;
mod preview;
mod retries;
mod rows;
mod runs;
mod sends;
mod starting;
mod store;
mod trial;
mod turns;
mod usage;

pub(crate) use ending::{pause_template, under_way_with};
pub use paces::PgPaces;
pub use runs::PgRuns;
pub(crate) use sends::{Settlement, lock_sends};
pub use store::PgCampaigns;
pub use trial::PgTrials;
