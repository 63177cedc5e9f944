//! All rollups, and how their stored sums are verified and rebuilt.
//!
//! A rollup is one entry of [`definitions::ALL`]: its table, its key columns, its sums, and the query that recomputes
//! them from the source rows. A new rollup is a new entry.

mod definitions;
mod reprice;
mod retention;
mod store;

pub use store::PgRollups;

/// One rollup: the sums of a table that share their key columns.
struct Rollup {
    /// The table, which is also the rollup's name.
    table: &'static str,
    /// SQL condition that selects the rollup's rows; empty for all rows.
    part: &'static str,
    /// Key columns, without the account.
    keys: &'static [&'static str],
    /// Columns that hold sums.
    sums: &'static [&'static str],
    /// Column with the latest time of the counted rows.
    last: Option<&'static str>,
    /// Whether keys and sums suffice to insert a missing row.
    makes_rows: bool,
    /// The query that returns keys, sums and latest time of the account `$1`.
    recomputed: &'static str,
}
