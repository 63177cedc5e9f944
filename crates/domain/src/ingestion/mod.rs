//! Ingestion: what shops and other systems tell of an account's customers: orders, carts, ad spend, events of metrics.
//!
//! Owns these rows, what an order is owed to, and what each row counts towards. The reports are `analytics`'.

mod batch;
mod check;
mod event_tally;
mod model;
mod order;
mod ports;
mod service;
mod tally;

pub use batch::{Item as BatchItem, checked_batch};
pub use event_tally::{ContactFigures, EventTally, MetricFigures, MetricTotals};
pub use model::*;
pub use order::{ATTRIBUTION_WINDOW, Order, Origin};
pub use ports::*;
pub use service::Ingestion;
pub use tally::{CartFigures, Grain, OrderFigures, OriginFigures, OriginKind, ProductFigures, Tally};
