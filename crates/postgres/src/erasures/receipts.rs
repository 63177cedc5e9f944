//! The rows of receipts.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::erasures::Erasure;
use recado_domain::shared::StoreError;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{corrupt, parse_enum};

/// The columns of a [`ReceiptRow`].
pub(super) const COLUMNS: &str = "id, contact_id, state, requested_at, finished_at, removed";

#[derive(QueryableByName)]
pub(super) struct ReceiptRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Timestamptz)]
    requested_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    finished_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Jsonb)]
    removed: Value,
}

impl TryFrom<ReceiptRow> for Erasure {
    type Error = StoreError;

    fn try_from(row: ReceiptRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            state: parse_enum(&row.state)?,
            requested_at: row.requested_at,
            finished_at: row.finished_at,
            removed: serde_json::from_value(row.removed).map_err(corrupt)?,
        })
    }
}
