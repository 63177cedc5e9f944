//! The definition of segment membership for all statements: the members, plus every contact that matches the filters.
//!
//! A statement that starts from one segment first loads its [`SegmentRule`]. So its text has only the conditions that
//! the segment has, and each of them can use an index. A statement for several segments reads the stored filters as
//! columns ([`CONDITIONS`]).

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::AudienceFilters;
use recado_domain::shared::{AccountId, SegmentId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{Sql, sql};

/// The conditions of filters, as parameters in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, QueryableByName)]
pub(crate) struct BoundFilters {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub(crate) created_after: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub(crate) created_before: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Bool>)]
    pub(crate) has_email: Option<bool>,
    #[diesel(sql_type = Nullable<Jsonb>)]
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

impl BoundFilters {
    /// The number of parameters that [`bind`](Self::bind) adds.
    pub(crate) const PARAMETERS: usize = 4;

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `contacts_created_at_idx` bounds the contacts that can match.
    pub(crate) fn has_period(&self) -> bool {
        self.created_after.is_some() || self.created_before.is_some()
    }

    /// The conditions on contact `c` that the filters have, with the parameters from `$first` on.
    pub(crate) fn conditions(&self, first: usize) -> String {
        let mut conditions = self.period(first);
        if self.has_email.is_some() {
            conditions.push(format!("(coalesce(c.email, '') <> '') = ${}", first + 2));
        }
        if self.attributes.is_some() {
            conditions.push(format!("c.attributes @> ${}", first + 3));
        }
        all_of(&conditions)
    }

    /// Like [`conditions`](Self::conditions), but only those on the time of creation.
    pub(crate) fn period_conditions(&self, first: usize) -> String {
        all_of(&self.period(first))
    }

    fn period(&self, first: usize) -> Vec<String> {
        let after = self.created_after.map(|_| format!("c.created_at >= ${first}"));
        let before = self.created_before.map(|_| format!("c.created_at < ${}", first + 1));
        after.into_iter().chain(before).collect()
    }

    /// Binds all four values, also those without a condition: the numbers of later parameters are fixed.
    pub(crate) fn bind<'a>(&self, query: Sql<'a>) -> Sql<'a> {
        query
            .bind(self.created_after)
            .bind(self.created_before)
            .bind(self.has_email)
            .bind(self.attributes.clone())
    }
}

fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return "true".to_owned();
    }
    conditions.join(" AND ")
}

/// The stored filters of segment `s`, one column per condition.
pub(super) const CONDITIONS: &str = "(s.filters ->> 'created_after')::timestamptz AS created_after, \
    (s.filters ->> 'created_before')::timestamptz AS created_before, \
    (s.filters ->> 'has_email')::boolean AS has_email, \
    nullif(nullif(s.filters -> 'attributes', 'null'), '{}') AS attributes";

#[derive(QueryableByName)]
pub(crate) struct RuleRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(embed)]
    filters: BoundFilters,
}

/// Which contacts belong to one segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRule {
    pub(crate) id: SegmentId,
    /// None: only the members belong to the segment.
    pub(crate) filters: Option<BoundFilters>,
}

impl From<RuleRow> for SegmentRule {
    fn from(row: RuleRow) -> Self {
        Self {
            id: row.id.into(),
            filters: Some(row.filters).filter(|filters| !filters.is_empty()),
        }
    }
}

impl SegmentRule {
    /// Reads the rule of a segment that is not deleted.
    pub(crate) fn query<'a>(account: AccountId, id: SegmentId) -> Sql<'a> {
        sql(format!(
            "SELECT s.id, {CONDITIONS} FROM segments s WHERE s.account_id = $1 AND s.id = $2 AND s.deleted_at IS NULL"
        ))
        .bind(account)
        .bind(id)
    }

    /// Returns None if the segment does not exist.
    pub(crate) async fn find(
        conn: &mut AsyncPgConnection,
        account: AccountId,
        id: SegmentId,
    ) -> DbResult<Option<Self>> {
        let row: Option<RuleRow> = Self::query(account, id).get_result(conn).await.optional()?;
        Ok(row.map(Self::from))
    }

    /// Whether contact `c` of account `$1` belongs to the segment, with the parameters from `$first` on.
    pub(crate) fn belongs(&self, first: usize) -> String {
        let member = format!(
            "EXISTS (SELECT 1 FROM segment_members m
               WHERE m.account_id = $1 AND m.segment_id = ${first} AND m.contact_id = c.id OFFSET 0)"
        );
        match &self.filters {
            None => member,
            Some(filters) => format!("({member} OR ({}))", filters.conditions(first + 1)),
        }
    }

    pub(crate) fn bind<'a>(&self, query: Sql<'a>) -> Sql<'a> {
        let query = query.bind(self.id);
        match &self.filters {
            None => BoundFilters::default().bind(query),
            Some(filters) => filters.bind(query),
        }
    }
}

/// Whether the segment in this row has a condition: without one, only its members belong to it.
pub(super) fn has_conditions(row: &str) -> String {
    format!("num_nonnulls({row}.created_after, {row}.created_before, {row}.has_email, {row}.attributes) > 0")
}

/// Whether contact `c` matches the conditions of the segment in this row.
pub(super) fn matches(row: &str) -> String {
    format!(
        "({row}.created_after IS NULL OR c.created_at >= {row}.created_after)
           AND ({row}.created_before IS NULL OR c.created_at < {row}.created_before)
           AND ({row}.has_email IS NULL OR (coalesce(c.email, '') <> '') = {row}.has_email)
           AND ({row}.attributes IS NULL OR c.attributes @> {row}.attributes)"
    )
}

/// Whether contact `c` of account `$1` is a member of the segment in this row.
pub(super) fn is_member(row: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM segment_members m
           WHERE m.account_id = $1 AND m.segment_id = {row}.id AND m.contact_id = c.id)"
    )
}

/// Counts the members of the segment in this row, without deleted contacts.
pub(super) fn member_count(row: &str) -> String {
    format!(
        "(SELECT count(*) FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = {row}.id
           AND NOT EXISTS (SELECT 1 FROM contacts d
             WHERE d.account_id = $1 AND d.id = m.contact_id AND d.deleted_at IS NOT NULL))"
    )
}
