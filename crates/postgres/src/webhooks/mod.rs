//! Webhooks: the endpoints, logs and feed of one account, and the deliveries of all.

/// The keys of a CTE's locked deliveries, as `k`, for an `UPDATE` or `DELETE` by primary key.
///
/// The planner expects ten elements of an array that it has not seen, and a tenth of the rows behind an unknown limit. So
/// it expects one key, and looks each up in the primary key. Joined to the CTE itself it could expect thousands, or one
/// row of the whole account, and read all of them. The endpoint is compared by `IS NOT DISTINCT FROM`, which no index
/// answers: another index leads from it to all deliveries of the endpoint, of which the planner may expect one, too.
macro_rules! keys_of {
    ($rows:literal) => {
        concat!(
            "(SELECT u.* FROM (SELECT array_agg(account_id) AS accounts, array_agg(event_id) AS events,
                 array_agg(endpoint_id) AS endpoints FROM ",
            $rows,
            ") a CROSS JOIN LATERAL unnest(a.accounts, a.events, a.endpoints) AS u (account_id, event_id, endpoint_id)
               LIMIT (SELECT count(*) FROM ",
            $rows,
            ")) k"
        )
    };
}

mod feed;
mod inbound;
mod queue;
mod store;

pub use inbound::PgInbound;
pub use queue::PgDeliveryQueue;
pub use store::PgWebhooks;
