//! Webhooks: endpoints, logs and feed of one account, and the delivery queue of all accounts.

/// The keys of a CTE's locked deliveries, as `k`, for an `UPDATE` or `DELETE` by primary key.
///
/// The planner expects ten elements in an unknown array and a tenth of the rows under an unknown limit. So it expects
/// one key and uses the primary key. In a join with the CTE itself it could expect thousands of keys, or one row in the
/// whole account, and read all rows. Statements compare the endpoint with `IS NOT DISTINCT FROM`, which no index
/// supports: otherwise the planner may expect one delivery per endpoint and use the index that returns all of them.
/// A second argument names another column of the CTE that `k` has.
macro_rules! keys_of {
    ($rows:literal) => {
        keys_of!(@ $rows, "", "", "")
    };
    ($rows:literal, $column:literal) => {
        keys_of!(@ $rows, concat!(", array_agg(", $column, ") AS more"), ", a.more", concat!(", ", $column))
    };
    (@ $rows:literal, $aggregate:expr, $array:expr, $column:expr) => {
        concat!(
            "(SELECT u.* FROM (SELECT array_agg(account_id) AS accounts, array_agg(event_id) AS events,
                 array_agg(endpoint_id) AS endpoints",
            $aggregate,
            " FROM ",
            $rows,
            ") a CROSS JOIN LATERAL unnest(a.accounts, a.events, a.endpoints",
            $array,
            ") AS u (account_id, event_id, endpoint_id",
            $column,
            ")
               LIMIT (SELECT count(*) FROM ",
            $rows,
            ")) k"
        )
    };
}

mod claims;
mod feed;
mod inbound;
mod queue;
mod store;

pub use inbound::PgInbound;
pub use queue::PgDeliveryQueue;
pub use store::PgWebhooks;
