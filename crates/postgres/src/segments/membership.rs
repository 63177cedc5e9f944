//! The definition of segment membership for all statements: the members, plus every contact that matches the filters.
//! The filters are read from the stored segment inside the statement.

use recado_domain::segments::AudienceFilters;
use serde_json::Value;
use time::OffsetDateTime;

/// The parameters of [`conditions`], in binding order.
pub(crate) struct BoundFilters {
    pub(crate) created_after: Option<OffsetDateTime>,
    pub(crate) created_before: Option<OffsetDateTime>,
    pub(crate) has_email: Option<bool>,
    pub(crate) attributes: Option<Value>,
}

impl From<&AudienceFilters> for BoundFilters {
    fn from(filters: &AudienceFilters) -> Self {
        Self {
            created_after: filters.created_after,
            created_before: filters.created_before,
            has_email: filters.has_email,
            attributes: filters.attributes.clone().map(Value::Object),
        }
    }
}

/// The conditions on contact `c`, with four parameters from `$first` on. Every contact meets a null condition.
pub(crate) fn conditions(first: usize) -> String {
    matches([first, first + 1, first + 2, first + 3].map(|number| format!("${number}")))
}

fn matches([after, before, email, attributes]: [String; 4]) -> String {
    format!(
        "({after} IS NULL OR c.created_at >= {after}) AND ({before} IS NULL OR c.created_at < {before}) \
         AND ({email} IS NULL OR (coalesce(c.email, '') <> '') = {email}) \
         AND ({attributes} IS NULL OR c.attributes @> {attributes})"
    )
}

/// The stored filters of segment `s`, one column per condition.
pub(super) const CONDITIONS: &str = "(s.filters ->> 'created_after')::timestamptz AS created_after, \
    (s.filters ->> 'created_before')::timestamptz AS created_before, \
    (s.filters ->> 'has_email')::boolean AS has_email, \
    nullif(nullif(s.filters -> 'attributes', 'null'), '{}') AS attributes";

fn columns(row: &str) -> [String; 4] {
    ["created_after", "created_before", "has_email", "attributes"].map(|column| format!("{row}.{column}"))
}

/// Whether the segment in this row has a condition: without one, only its members belong to it.
fn has_conditions(row: &str) -> String {
    format!("num_nonnulls({}) > 0", columns(row).join(", "))
}

fn is_member(row: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM segment_members m \
         WHERE m.account_id = c.account_id AND m.segment_id = {row}.id AND m.contact_id = c.id)"
    )
}

/// Joins the segment of the parameter as the row `own` to every contact. A deleted segment gives null columns.
pub(crate) fn own(segment: &str) -> String {
    format!(
        "LEFT JOIN (SELECT s.id, {CONDITIONS} FROM segments s \
           WHERE s.account_id = $1 AND s.id = {segment} AND s.deleted_at IS NULL OFFSET 0) AS own ON true"
    )
}

/// Whether contact `c` belongs to the segment `own`; false if the segment does not exist.
pub(crate) fn belongs() -> String {
    let (member, conditions, matches) = (is_member("own"), has_conditions("own"), matches(columns("own")));
    format!("(own.id IS NOT NULL AND ({member} OR ({conditions} AND {matches})))")
}

/// Counts the contacts of `$1` that belong to the segment in this row, as [`belongs`] defines it: the members, plus
/// contacts that match the conditions and are no members. Contacts are scanned only if there is a condition.
pub(super) fn count(row: &str) -> String {
    let (member, conditions, matches) = (is_member(row), has_conditions(row), matches(columns(row)));
    format!(
        "(SELECT count(*) FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = {row}.id)
         - (SELECT count(*) FROM contacts c WHERE c.account_id = $1 AND c.deleted_at IS NOT NULL AND {member})
         + CASE WHEN {conditions} THEN
             (SELECT count(*) FROM contacts c
              WHERE c.account_id = $1 AND c.deleted_at IS NULL AND {matches} AND NOT {member})
           ELSE 0 END"
    )
}
