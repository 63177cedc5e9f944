//! Orders, carts, ad spend and metric events, and the rollups that are written with them.
//!
//! Every batch is one transaction. It looks up references, locks stored rows in key order, merges in memory by the
//! domain's rules, and writes one statement per table, rollups last and in key order. So two writers cannot deadlock.

mod carts;
mod events;
mod orders;
mod references;
mod rollups;
mod spend;
mod store;

pub(crate) use orders::amount;
pub use store::PgIngestion;
