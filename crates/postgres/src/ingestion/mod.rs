//! What is told of an account's customers, and the roll-ups that are written with it.
//!
//! Every batch is one transaction: references are read, known rows are locked in the order of their keys, what becomes
//! of each is decided in memory by the domain, and then written in one statement a table, the roll-ups last and in the
//! order of their keys. So two writers never wait for each other in a circle.

mod carts;
mod events;
mod orders;
mod references;
mod rollups;
mod spend;
mod store;

pub use store::PgIngestion;
