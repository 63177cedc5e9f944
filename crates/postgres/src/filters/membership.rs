//! The definition of segment membership for all statements: the members, plus every contact that matches the filters.
//!
//! A statement that starts from one segment first loads its [`SegmentRule`]. So its text has only the conditions that
//! the segment has, and each of them can use an index. A statement for several segments reads the stored filters as
//! columns ([`CONDITIONS`]); it leaves out segments with a tree of conditions, which have statements of their own.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::{AudienceFilters, FilterNode};
use recado_domain::shared::{AccountId, SegmentId, StoreError};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::tree::{Access, TreeSql, tree_sql};
use crate::errors::{DbResult, corrupt};
use crate::sql::{Sql, sql};

/// The conditions of filters, as parameters in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BoundFilters {
    created_after: Option<OffsetDateTime>,
    created_before: Option<OffsetDateTime>,
    has_email: Option<bool>,
    attributes: Option<Map<String, Value>>,
    /// The nodes that must all match.
    nodes: Vec<FilterNode>,
}

impl TryFrom<&AudienceFilters> for BoundFilters {
    type Error = StoreError;

    fn try_from(filters: &AudienceFilters) -> Result<Self, StoreError> {
        Ok(Self {
            created_after: filters.created_after,
            created_before: filters.created_before,
            has_email: filters.has_email,
            attributes: filters.attributes.clone().filter(|attributes| !attributes.is_empty()),
            nodes: filters.nodes().map_err(corrupt)?,
        })
    }
}

impl BoundFilters {
    /// The number of parameters that [`bind`](Self::bind) adds.
    pub(crate) const PARAMETERS: usize = 5;

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the text of the statement depends on a tree of conditions.
    pub(crate) fn has_tree(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Whether `contacts_created_at_idx` bounds the contacts that can match.
    pub(crate) fn has_period(&self) -> bool {
        self.created_after.is_some() || self.created_before.is_some()
    }

    /// The conditions on contact `c` that the filters have, with the parameters from `$first` on.
    pub(crate) fn conditions(&self, first: usize) -> String {
        self.written(first, Access::PerContact, "").condition
    }

    /// The conditions, and the joins that they need after `contacts c`. `name` distinguishes the joins of several
    /// filters in a statement.
    pub(crate) fn written(&self, first: usize, access: Access, name: &'static str) -> TreeSql {
        let mut conditions = self.period(first);
        if self.has_email.is_some() {
            conditions.push(format!("(coalesce(c.email, '') <> '') = ${}", first + 2));
        }
        if self.attributes.is_some() {
            conditions.push(format!("c.attributes @> ${}", first + 3));
        }
        let mut tree = tree_sql(&self.nodes, access, first + 4, name);
        if self.has_tree() {
            conditions.push(tree.condition);
        }
        tree.condition = all_of(&conditions);
        tree
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

    /// Binds all values, also those without a condition: the numbers of later parameters are fixed.
    pub(crate) fn bind<'a>(&self, query: Sql<'a>) -> Sql<'a> {
        let values = tree_sql(&self.nodes, Access::PerContact, 0, "").values;
        let query = query
            .bind(self.created_after)
            .bind(self.created_before)
            .bind(self.has_email)
            .bind(self.attributes.clone().map(Value::Object))
            .bind(self.has_tree().then_some(values));
        match self.has_tree() {
            true => query.uncached(),
            false => query,
        }
    }
}

fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return "true".to_owned();
    }
    conditions.join(" AND ")
}

/// The stored filters of segment `s`, one column per condition, and whether it has a tree.
pub(crate) const CONDITIONS: &str = "(s.filters ->> 'created_after')::timestamptz AS created_after, \
    (s.filters ->> 'created_before')::timestamptz AS created_before, \
    (s.filters ->> 'has_email')::boolean AS has_email, \
    nullif(nullif(s.filters -> 'attributes', 'null'), '{}') AS attributes, \
    coalesce(s.filters ?| '{all,any,not}', false) AS has_tree";

#[derive(QueryableByName)]
pub(crate) struct RuleRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Jsonb>)]
    filters: Option<Value>,
    #[diesel(sql_type = Bool)]
    has_members: bool,
}

/// Which contacts belong to one segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentRule {
    pub(crate) id: SegmentId,
    /// False: the segment has no members, so the sets of its filters can be joined without other contacts.
    pub(crate) has_members: bool,
    /// None: only the members belong to the segment.
    pub(crate) filters: Option<BoundFilters>,
}

impl TryFrom<RuleRow> for SegmentRule {
    type Error = StoreError;

    fn try_from(row: RuleRow) -> Result<Self, StoreError> {
        let rule = Self::of(row.id.into(), row.filters)?;
        Ok(Self {
            has_members: row.has_members,
            ..rule
        })
    }
}

/// Parses stored filters. Null and `{}` are no conditions.
pub(crate) fn stored_filters(filters: Option<Value>) -> Result<AudienceFilters, StoreError> {
    match filters.filter(|filters| !filters.is_null()) {
        None => Ok(AudienceFilters::default()),
        Some(filters) => serde_json::from_value(filters).map_err(corrupt),
    }
}

impl SegmentRule {
    /// A segment that may have members.
    pub(crate) fn of(id: SegmentId, filters: Option<Value>) -> Result<Self, StoreError> {
        let filters = BoundFilters::try_from(&stored_filters(filters)?)?;
        let filters = Some(filters).filter(|filters| !filters.is_empty());
        Ok(Self {
            id,
            has_members: true,
            filters,
        })
    }

    /// Reads the rule of a segment that is not deleted and may have members.
    pub(crate) fn query<'a>(account: AccountId, id: SegmentId) -> Sql<'a> {
        sql("SELECT s.id, s.filters, true AS has_members FROM segments s
             WHERE s.account_id = $1 AND s.id = $2 AND s.deleted_at IS NULL")
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
        Ok(row.map(Self::try_from).transpose()?)
    }

    pub(crate) fn has_tree(&self) -> bool {
        self.filters.as_ref().is_some_and(BoundFilters::has_tree)
    }

    /// Whether contact `c` of account `$1` belongs to the segment, with the parameters from `$first` on.
    pub(crate) fn belongs(&self, first: usize) -> String {
        self.written(first, Access::PerContact).condition
    }

    /// Whether contact `c` belongs to the segment, and the joins that this needs after `contacts c`.
    pub(crate) fn written(&self, first: usize, access: Access) -> TreeSql {
        let members = format!(
            "SELECT m.contact_id AS id FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = ${first}"
        );
        let (is_member, join) = match access {
            Access::PerContact => (
                format!("EXISTS ({members} AND m.contact_id = c.id OFFSET 0)"),
                String::new(),
            ),
            Access::Sets if !self.has_members => ("false".to_owned(), String::new()),
            Access::Sets => (
                "members.id IS NOT NULL".to_owned(),
                format!("LEFT JOIN ({members}) AS members ON members.id = c.id"),
            ),
        };
        let mut tree = match &self.filters {
            None => BoundFilters::default().written(first + 1, access, "s"),
            Some(filters) => filters.written(first + 1, access, "s"),
        };
        tree.condition = match &self.filters {
            None => is_member,
            Some(_) => format!("({is_member} OR ({}))", tree.condition),
        };
        tree.joins = format!("{join} {}", tree.joins);
        tree
    }

    pub(crate) fn bind<'a>(&self, query: Sql<'a>) -> Sql<'a> {
        let query = query.bind(self.id);
        match &self.filters {
            None => BoundFilters::default().bind(query),
            Some(filters) => filters.bind(query),
        }
    }
}

/// Whether the segment in this row has a condition and no tree: without one, only its members belong to it.
pub(crate) fn has_conditions(row: &str) -> String {
    format!(
        "NOT {row}.has_tree
           AND num_nonnulls({row}.created_after, {row}.created_before, {row}.has_email, {row}.attributes) > 0"
    )
}

/// Whether contact `c` matches the conditions of the segment in this row.
pub(crate) fn matches(row: &str) -> String {
    format!(
        "({row}.created_after IS NULL OR c.created_at >= {row}.created_after)
           AND ({row}.created_before IS NULL OR c.created_at < {row}.created_before)
           AND ({row}.has_email IS NULL OR (coalesce(c.email, '') <> '') = {row}.has_email)
           AND ({row}.attributes IS NULL OR c.attributes @> {row}.attributes)"
    )
}

/// Whether contact `c` of account `$1` is a member of the segment in this row.
pub(crate) fn is_member(row: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM segment_members m
           WHERE m.account_id = $1 AND m.segment_id = {row}.id AND m.contact_id = c.id)"
    )
}

/// Counts the members of the segment in this row, without deleted contacts.
pub(crate) fn member_count(row: &str) -> String {
    format!(
        "(SELECT count(*) FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = {row}.id
           AND NOT EXISTS (SELECT 1 FROM contacts d
             WHERE d.account_id = $1 AND d.id = m.contact_id AND d.deleted_at IS NOT NULL))"
    )
}
