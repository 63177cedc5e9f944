//! Exports in parts (keyset pagination): every part is a separate read, which an index continues after the last row
//! of the previous part.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::analytics::{ExportKind, ExportPosition, ExportRecord, ExportStore, Window};
use recado_domain::shared::{AccountId, StoreError};
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use crate::pool::TenantPool;
use crate::sql::sql;

/// Start of an export: greater than every position, because rows are read in descending order.
const START: ExportPosition = ExportPosition {
    at: datetime!(9999-12-31 23:59:59 UTC),
    id: Uuid::max(),
    part: Uuid::max(),
};

#[derive(Clone, Debug)]
pub struct PgExports(TenantPool);

impl PgExports {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool.in_index_order_with_custom_plans())
    }
}

/// A record of any kind: its position, its times, and its texts in the order of the columns.
#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    part: Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    other_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    first: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    second: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    third: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    fourth: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    fifth: Option<String>,
}

impl Row {
    fn into_record(self, kind: ExportKind) -> (ExportPosition, ExportRecord) {
        let position = ExportPosition {
            at: self.at,
            id: self.id,
            part: self.part,
        };
        let first = self.first.unwrap_or_default();
        let record = match kind {
            ExportKind::Messages => ExportRecord::Message {
                created_at: self.at,
                direction: first,
                kind: self.second.unwrap_or_default(),
                status: self.third.unwrap_or_default(),
                text: self.fourth,
                address: self.fifth,
            },
            ExportKind::Contacts => ExportRecord::Contact {
                name: first,
                phone: self.second,
                email: self.third,
                created_at: self.at,
                wa_user_id: self.fourth,
            },
            ExportKind::Campaigns => ExportRecord::Campaign {
                name: first,
                status: self.second.unwrap_or_default(),
                created_at: self.at,
                scheduled_at: self.other_at,
            },
        };
        (position, record)
    }
}

/// All messages of a campaign have one time, which slot 0 of its counters stores; among themselves they are sorted by
/// contact. They show the template body that was frozen when the run started.
const MESSAGES: &str = include_str!("export_messages.sql");

/// Sorted by id, which is the order of creation.
const CONTACTS: &str = "
    SELECT c.created_at AS at, c.id, c.id AS part, NULL::timestamptz AS other_at, c.name AS first, c.phone AS second,
      c.email AS third, c.wa_user_id AS fourth, NULL AS fifth
    FROM contacts c WHERE c.account_id = $1 AND c.deleted_at IS NULL AND c.id < $3 ORDER BY c.id DESC LIMIT $5";

const CAMPAIGNS: &str = "
    SELECT c.created_at AS at, c.id, c.id AS part, c.scheduled_at AS other_at, c.name AS first, c.status AS second,
      NULL AS third, NULL AS fourth, NULL AS fifth
    FROM campaigns c WHERE c.account_id = $1 AND c.deleted_at IS NULL AND (c.created_at, c.id) < ($2, $3)
    ORDER BY c.created_at DESC, c.id DESC LIMIT $5";

#[async_trait]
impl ExportStore for PgExports {
    async fn part(
        &self,
        account: AccountId,
        kind: ExportKind,
        window: &Window,
        after: Option<ExportPosition>,
        limit: i64,
    ) -> Result<Vec<(ExportPosition, ExportRecord)>, StoreError> {
        let after = after.unwrap_or(START);
        let text = match kind {
            ExportKind::Messages => MESSAGES,
            ExportKind::Contacts => CONTACTS,
            ExportKind::Campaigns => CAMPAIGNS,
        };
        let mut statement = sql(text)
            .bind(account)
            .bind(after.at)
            .bind(after.id)
            .bind(after.part)
            .bind(limit);
        if kind == ExportKind::Messages {
            statement = statement.bind(window.start()).bind(window.end());
        }
        let rows: Vec<Row> = self.0.read_rows(account, statement).await?;
        Ok(rows.into_iter().map(|row| row.into_record(kind)).collect())
    }
}
