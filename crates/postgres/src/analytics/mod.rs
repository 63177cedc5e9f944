//! Reports: one statement each, and so of one moment, over roll-ups alone. Exports, in parts. The scores of customers.
//! And the counts of messages, contacts and conversations, for those who write these.

mod counts;
mod exports;
mod insights;
mod metrics;
mod rfm;
mod sales;
mod store;
mod window;

pub(crate) use counts::{
    count_contacts, count_conversations, count_conversations_of, count_messages, replies_of_month,
};
pub use exports::PgExports;
pub use insights::PgInsights;
pub use rfm::PgRfm;
pub use store::PgAnalytics;
