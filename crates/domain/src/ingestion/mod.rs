//! Ingestion: the orders, carts, ad spend and metric events that shops and other systems report about an account's
//! customers.
//!
//! This context owns these rows, the attribution of orders and the rollup delta of each row. `analytics` owns the
//! reports.

mod batch;
mod check;
mod events;
mod metric_rollup_delta;
mod model;
mod order;
mod ports;
mod rollup_delta;
mod service;

pub use batch::{Item as BatchItem, validate_batch};
pub use events::{metrics_recorded, orders_recorded};
pub use metric_rollup_delta::{ContactSums, MetricRollupDelta, MetricSums, MetricTotals};
pub use model::*;
pub use order::{ATTRIBUTION_WINDOW, Attribution, Order};
pub use ports::*;
pub use rollup_delta::{AttributionKind, AttributionSums, CartSums, Granularity, OrderSums, ProductSums, RollupDelta};
pub use service::Ingestion;
