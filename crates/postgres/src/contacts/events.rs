//! What webhook endpoints are told of contacts, by the statement that changes them: whoever has no endpoint pays a look
//! into an index, and no round trip.

/// A statement that changes contacts (known to it by `alias`; `$1` is the account), which tells of each, and then
/// answers `answer` for each. It must not end in RETURNING.
pub(crate) fn with_contact_events(statement: &str, alias: &str, kind: &str, columns: &str, answer: &str) -> String {
    format!(
        "WITH written AS (
           {statement}
           RETURNING {columns}, CASE WHEN (SELECT has_subscribers($1, '{kind}')) THEN contact_payload({alias}) END
             AS payload),
         emitted AS (
           INSERT INTO outbox_events (account_id, payload)
           SELECT $1, jsonb_build_object('kind', 'webhook', 'type', '{kind}', 'items', jsonb_agg(payload))
           FROM written WHERE payload IS NOT NULL HAVING count(*) > 0)
         SELECT {answer} FROM written"
    )
}
