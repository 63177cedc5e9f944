//! Reports, each one statement and therefore one snapshot, over rollups only; exports in parts; RFM scores; and the
//! functions that maintain the rollups of messages, contacts and conversations.

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
