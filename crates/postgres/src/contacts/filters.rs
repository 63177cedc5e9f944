//! Conditions on a contact in SQL, the same for a list of a segment's contacts and for a campaign's audience.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::AudienceFilters;
use recado_domain::shared::{AccountId, SegmentId};
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::{Attempt, corrupt};
use crate::sql::sql;

/// What [`conditions`] binds, in its order.
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

/// The conditions on contact `c`, with four parameters from `$first` on.
pub(crate) fn conditions(first: usize) -> String {
    let [after, before, email, attributes] = [first, first + 1, first + 2, first + 3];
    format!(
        "(${after} IS NULL OR c.created_at >= ${after}) AND (${before} IS NULL OR c.created_at < ${before}) \
         AND (${email} IS NULL OR (coalesce(c.email, '') <> '') = ${email}) \
         AND (${attributes} IS NULL OR c.attributes @> ${attributes})"
    )
}

#[derive(QueryableByName)]
struct FiltersRow {
    #[diesel(sql_type = Nullable<Jsonb>)]
    filters: Option<Value>,
}

/// A segment of the account: whether it is there, and its own filters, if it has any.
pub(crate) async fn stored_filters(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    segment: SegmentId,
) -> Attempt<Option<Option<AudienceFilters>>> {
    let query = sql("SELECT filters FROM segments WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL");
    let found = query
        .bind(account)
        .bind(segment)
        .get_result::<FiltersRow>(conn)
        .await
        .optional()?;
    let Some(row) = found else {
        return Ok(None);
    };
    let filters: Option<AudienceFilters> = match row.filters {
        None | Some(Value::Null) => None,
        Some(filters) => Some(serde_json::from_value(filters).map_err(corrupt)?),
    };
    // A segment without conditions is its members, not everybody.
    Ok(Some(filters.filter(|filters| *filters != AudienceFilters::default())))
}
