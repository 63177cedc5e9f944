//! A batch as the arrays that a statement takes.

use crate::sql::Param;

/// One value of each row.
pub(crate) fn column<R, V>(rows: &[R], value: impl Fn(&R) -> V) -> Vec<V>
where
    Vec<V>: Param,
{
    rows.iter().map(value).collect()
}
