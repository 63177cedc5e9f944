//! Transactional outbox: the statement that changes contacts also appends `contact.*` events. Without a subscriber
//! this costs one index probe and no round trip.

/// Wraps a statement that changes contacts, so that it appends an event for each of them. `alias` is the table's
/// alias in the statement, `$1` the account. `columns` are its RETURNING list, `output` the columns of the result.
/// The statement must not end in RETURNING.
pub(crate) fn with_contact_events(statement: &str, alias: &str, kind: &str, columns: &str, output: &str) -> String {
    format!(
        "WITH written AS (
           {statement}
           RETURNING {columns}, CASE WHEN (SELECT has_subscribers($1, '{kind}')) THEN {payload} END
             AS payload),
         emitted AS (
           INSERT INTO outbox_events (account_id, payload)
           SELECT $1, jsonb_build_object('kind', 'webhook', 'type', '{kind}', 'items', jsonb_agg(payload))
           FROM written WHERE payload IS NOT NULL HAVING count(*) > 0)
         SELECT {output} FROM written",
        payload = contact_payload(alias),
    )
}

/// The payload of an event about the contact with this alias, in the published format.
pub(super) fn contact_payload(alias: &str) -> String {
    let columns = [
        "id",
        "name",
        "phone",
        "email",
        "wa_user_id",
        "opted_out_at",
        "updated_at",
    ];
    let columns = columns.map(|column| format!("{alias}.{column}"));
    format!("contact_payload({})", columns.join(", "))
}
