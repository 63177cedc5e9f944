//! Webhooks: endpoints, logs and feed of one account, and the delivery queue of all accounts.

/// The keys of a CTE's locked deliveries, as `k`, for an `UPDATE` or `DELETE` by primary key.
///
/// The planner expects ten elements in an unknown array and a tenth of the rows under an unknown limit. So it expects
/// one key and uses the primary key. In a join with the CTE itself it could expect thousands of keys, or one row in the
/// whole account, and read all rows. A second argument names another column of the CTE that `k` has.
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

/// `is_delivery!("k")`: whether delivery `d` has the key of `k`. The index on the endpoint alone returns all of its
/// deliveries.
macro_rules! is_delivery {
    ($key:literal) => {
        concat!(
            "d.account_id = ",
            $key,
            ".account_id AND d.event_id = ",
            $key,
            ".event_id AND ",
            crate::sql::equals_without_index!("d.endpoint_id", concat!($key, ".endpoint_id"))
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
