//! Range partitions by time: which tables have them, which partitions must exist, and which a retention term removes.
//!
//! A partitioned table has one partition for each calendar interval (UTC), some intervals ahead, and `<table>_earlier`
//! for everything before the first interval. It has no default partition: `ATTACH PARTITION` would scan that one. A row
//! whose time is after the last partition is refused, so a worker creates partitions long before they are needed.
//!
//! Tenants reach partitions through the table only: a partition grants nothing, and the table's policies apply.

mod bounds;
mod store;
mod tables;

pub use bounds::{Interval, PartitionKey, first_id};
pub use store::PgPartitions;
pub use tables::{PARTITIONED, PartitionedTable, RetentionDays, RetentionTerm};
