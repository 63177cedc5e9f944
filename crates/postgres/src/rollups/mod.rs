//! Every roll-up, what it counts, and how kept and counted are compared and made the same.
//!
//! A roll-up is one entry of [`definitions::ALL`]: its table, the columns that tell its rows apart, its sums, and the
//! query that counts them anew. A new roll-up is a new entry.

mod definitions;
mod store;

pub use store::PgRollups;

/// A kept sum, or several with the same keys.
struct Rollup {
    /// Its name, and the table it is kept in.
    table: &'static str,
    /// Which rows of the table it is; all of them when empty.
    part: &'static str,
    /// What tells its rows apart, beside the account.
    keys: &'static [&'static str],
    /// What is kept.
    sums: &'static [&'static str],
    /// A moment that is kept beside the sums: the last of those counted.
    last: Option<&'static str>,
    /// Whether a row that is missing can be made of keys and sums alone.
    makes_rows: bool,
    /// The query that answers keys, sums and last moment, of the account `$1`.
    recomputed: &'static str,
}
