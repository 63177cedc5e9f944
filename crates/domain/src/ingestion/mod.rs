//! Ingestion: what shops and other systems tell of an account's customers: orders, carts, ad spend, events of metrics.
//!
//! Owns these rows, what an order is owed to, and what each row counts towards. The reports are `analytics`'.

mod batch;
mod check;
mod metric_rollup_delta;
mod model;
mod order;
mod ports;
mod rollup_delta;
mod service;

pub use batch::{Item as BatchItem, validate_batch};
pub use metric_rollup_delta::{ContactSums, MetricRollupDelta, MetricSums, MetricTotals};
pub use model::*;
pub use order::{ATTRIBUTION_WINDOW, Attribution, Order};
pub use ports::*;
pub use rollup_delta::{AttributionKind, AttributionSums, CartSums, Granularity, OrderSums, ProductSums, RollupDelta};
pub use service::Ingestion;
