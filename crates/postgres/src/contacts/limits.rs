//! Limits of a contact's attributes in SQL, so that the statement that merges attributes also checks them.

use recado_domain::contacts::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES};

/// Whether a merge stays within the limits, or does not grow what is stored.
pub(super) fn merge_fits(stored: &str, added: &str) -> String {
    let (merged, stored_bytes) = (format!("({stored} || {added})"), bytes(stored));
    format!(
        "(SELECT (count(*) <= {MAX_ATTRIBUTES} OR count(*) <= (SELECT count(*) FROM jsonb_object_keys({stored})))
           AND ({merged_bytes} <= {MAX_ATTRIBUTE_BYTES} OR {merged_bytes} <= {stored_bytes})
         FROM jsonb_object_keys({merged}))",
        merged_bytes = bytes(&merged),
    )
}

/// The domain's `attribute_bytes`. PostgreSQL prints 1e300 with all digits, whereas the domain's numbers have at most
/// 24 characters.
fn bytes(attributes: &str) -> String {
    format!(
        "(SELECT coalesce(sum(octet_length(key) + CASE jsonb_typeof(value)
             WHEN 'number' THEN least(octet_length(value::text), 24) ELSE octet_length(value::text) END), 0)
           FROM jsonb_each({attributes}))"
    )
}
