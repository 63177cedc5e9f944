//! Fixed SQL statements that every connection prepares once, unlike `diesel::sql_query`. For statements that diesel's
//! query language cannot express: claims, batches, joins with arrays.

use std::borrow::Cow;
use std::fmt::Display;

use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{self, Array, HasSqlType, Nullable, Untyped};
use recado_domain::shared::{
    AccountId, Amount, ApiKeyId, AutomationId, CallbackId, CampaignId, CartId, ContactId, ConversationId, ErasureId,
    ExecutionId, ExportId, FolderId, GatewayEventId, InviteId, LinkId, MailId, MediaId, MessageId, MetricEventId,
    NotificationId, PaymentId, ProfileId, RateCardId, SegmentId, SendId, SubscriptionId, TagId, TemplateId, UserId,
    WebhookEventId, WebhookId, WebhookLogId,
};
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

/// A statement with parameters `$1`, `$2`, ..., bound in that order.
pub(crate) fn sql<'a>(text: impl Into<Cow<'static, str>>) -> Sql<'a> {
    Sql {
        text: text.into(),
        binds: Vec::new(),
        is_cached: true,
    }
}

/// Optimization fence at the end of a sub-select: the planner neither merges it with the statement around it nor moves
/// conditions into it. So a look-up by key (`CROSS JOIN LATERAL`) has one plan. With statistics from before a large
/// import, the planner would otherwise join with all rows of the account, or use another index for a further condition.
pub(crate) const FENCE: &str = "OFFSET 0";

/// `equals_without_index!("s.campaign_id", "$3")`: an equality that no index supports, for rows that are looked up by
/// another key. Without statistics of a new campaign or endpoint the planner expects few rows there, and would read all
/// of them by that index.
macro_rules! equals_without_index {
    ($column:expr, $value:expr) => {
        concat!($column, " IS NOT DISTINCT FROM ", $value)
    };
}
pub(crate) use equals_without_index;

/// A limit that the planner does not know: it expects a tenth of the rows. `count` is at least their number. For keys,
/// as in [`key_rows`].
pub(crate) fn unknown_limit(count: &str) -> String {
    format!("LIMIT (SELECT {count})")
}

/// The first rows of an ordered statement; `limit` is the parameter with their number. For an unknown limit alone,
/// the planner expects a tenth of all rows and may prefer to sort them instead of reading an index in order. Execute
/// it with `TenantPool::in_index_order`.
pub(crate) fn limit_hint(ordered: impl Display, limit: &str) -> String {
    format!("SELECT * FROM ({ordered} LIMIT {MAX_PAGE}) AS first LIMIT {limit}")
}

/// A batch of keys as a FROM item: the elements of `arrays` as rows with `columns`, and their `position` from 1. The
/// first array must be the longest.
///
/// The planner expects ten elements of an unknown array, and a tenth of the rows under an unknown limit: one row. So
/// an index lookup never seems more expensive than a scan of all rows of the account, whatever its statistics say. A
/// join with a plain `unnest`, or `= ANY`, is planned as ten lookups, and a scan of the average account may seem
/// cheaper than ten.
///
/// A row-level policy excludes some plans: a condition becomes an index condition only if its functions are leakproof
/// or read no column. PostgreSQL 15.20 also counts the result of a sub-select as a column. So keys are compared as
/// they are (`t.id = k.id`), and expressions (`||`, `lower`, `coalesce`) are computed inside this item.
pub(crate) fn key_rows(arrays: &str, columns: &str) -> String {
    let first = arrays.split(',').next().unwrap_or(arrays);
    let limit = unknown_limit(&format!("cardinality({first})"));
    format!("(SELECT * FROM unnest({arrays}) WITH ORDINALITY AS k ({columns}, position) {limit})")
}

/// Greater than the limit of any page. As a limit of its own it makes the planner expect no more rows than these.
pub(crate) const MAX_PAGE: i64 = 200;

/// One type for all statements: nested types for the bound values would cost minutes of compilation.
pub(crate) struct Sql<'a> {
    text: Cow<'static, str>,
    binds: Vec<Box<dyn QueryFragment<Pg> + Send + Sync + 'a>>,
    is_cached: bool,
}

impl<'a> Sql<'a> {
    /// The connection does not keep the prepared statement: for texts that callers of the API compose, of which there
    /// is no end.
    pub(crate) fn uncached(self) -> Self {
        Self {
            is_cached: false,
            ..self
        }
    }

    /// Binds the next parameter.
    pub(crate) fn bind<P: Param + 'a>(mut self, value: P) -> Self
    where
        P::Value: Send + Sync + 'a,
        P::Sql: 'a,
        Pg: HasSqlType<P::Sql>,
    {
        self.binds.push(Box::new(Bind::<P> { value: value.value() }));
        self
    }
}

struct Bind<P: Param> {
    value: P::Value,
}

impl<P> QueryFragment<Pg> for Bind<P>
where
    P: Param,
    Pg: HasSqlType<P::Sql>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_bind_param::<P::Sql, _>(&self.value)
    }
}

impl QueryFragment<Pg> for Sql<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if !self.is_cached {
            out.unsafe_to_cache_prepared();
        }
        // Binding a value also writes its placeholder. The text has its own placeholders, so these go into a comment.
        out.push_sql("/* ");
        for bind in &self.binds {
            bind.walk_ast(out.reborrow())?;
        }
        out.push_sql(" */ ");
        out.push_sql(&self.text);
        Ok(())
    }
}

/// Without a static id, the statement cache uses the text as its key.
impl QueryId for Sql<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Sql<'_> {
    type SqlType = Untyped;
}

/// A statement on a queue, planned each time with the size that the table has then. A connection would keep a plan that
/// it made while the queue was empty, or while few rows were alive among many dead ones: a scan of the table, or of an
/// index in which the key is not the first column, seems as cheap as any other plan then.
///
/// Its range bounds must be sub-selects: for a known bound the planner probes the ends of the index, where it reads dead
/// entries.
pub(crate) struct PlannedEachTime<Q>(pub(crate) Q);

impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for PlannedEachTime<Q> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        self.0.walk_ast(out)
    }
}

impl<Q: Query> Query for PlannedEachTime<Q> {
    type SqlType = Q::SqlType;
}

impl<Q> QueryId for PlannedEachTime<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// A Rust value that can be bound, and its SQL type.
pub(crate) trait Param {
    type Sql;
    type Value: ToSql<Self::Sql, Pg>;
    fn value(self) -> Self::Value;
}

macro_rules! params {
    ($($rust:ty => $sql:ty),+ $(,)?) => {$(
        params!(@one $rust, $sql);
        params!(@one Option<$rust>, Nullable<$sql>);
        params!(@one Vec<$rust>, Array<$sql>);
        params!(@one Vec<Option<$rust>>, Array<Nullable<$sql>>);
        params!(@one Option<Vec<$rust>>, Nullable<Array<$sql>>);
    )+};
    (@one $rust:ty, $sql:ty) => {
        impl Param for $rust {
            type Sql = $sql;
            type Value = Self;
            fn value(self) -> Self {
                self
            }
        }
    };
}

params! {
    Uuid => sql_types::Uuid,
    String => sql_types::Text,
    bool => sql_types::Bool,
    i32 => sql_types::Integer,
    i64 => sql_types::BigInt,
    f64 => sql_types::Double,
    serde_json::Value => sql_types::Jsonb,
    OffsetDateTime => sql_types::Timestamptz,
    Date => sql_types::Date,
    Vec<u8> => sql_types::Binary,
}

impl<'a> Param for &'a str {
    type Sql = sql_types::Text;
    type Value = &'a str;
    fn value(self) -> &'a str {
        self
    }
}

impl<'a> Param for Option<&'a str> {
    type Sql = Nullable<sql_types::Text>;
    type Value = Self;
    fn value(self) -> Option<&'a str> {
        self
    }
}

impl<'a> Param for &'a [u8] {
    type Sql = sql_types::Binary;
    type Value = &'a [u8];
    fn value(self) -> &'a [u8] {
        self
    }
}

impl<'a> Param for &'a [&'a [u8]] {
    type Sql = Array<sql_types::Binary>;
    type Value = Self;
    fn value(self) -> &'a [&'a [u8]] {
        self
    }
}

/// Bound as decimal text that the statement casts to `numeric`: the driver has no exact decimal type.
impl Param for Vec<Amount> {
    type Sql = Array<sql_types::Text>;
    type Value = Vec<String>;
    fn value(self) -> Vec<String> {
        self.iter().map(Amount::to_string).collect()
    }
}

impl Param for Vec<Option<Amount>> {
    type Sql = Array<Nullable<sql_types::Text>>;
    type Value = Vec<Option<String>>;
    fn value(self) -> Vec<Option<String>> {
        self.iter()
            .map(|amount| amount.map(|amount| amount.to_string()))
            .collect()
    }
}

impl<'a> Param for Option<&'a [u8]> {
    type Sql = Nullable<sql_types::Binary>;
    type Value = Self;
    fn value(self) -> Option<&'a [u8]> {
        self
    }
}

/// Bound as microseconds, which the statement multiplies with an interval.
impl Param for Duration {
    type Sql = sql_types::BigInt;
    type Value = i64;
    fn value(self) -> i64 {
        let longest = Self::days(36_500);
        i64::try_from(self.clamp(-longest, longest).whole_microseconds()).unwrap_or_default()
    }
}

macro_rules! id_params {
    ($($id:ident),+ $(,)?) => {$(
        impl Param for $id {
            type Sql = sql_types::Uuid;
            type Value = Uuid;
            fn value(self) -> Uuid {
                self.0
            }
        }

        impl Param for Option<$id> {
            type Sql = Nullable<sql_types::Uuid>;
            type Value = Option<Uuid>;
            fn value(self) -> Option<Uuid> {
                self.map(Uuid::from)
            }
        }
    )+};
}

id_params!(
    AccountId,
    ApiKeyId,
    AutomationId,
    CallbackId,
    CampaignId,
    CartId,
    ContactId,
    ConversationId,
    ErasureId,
    ExecutionId,
    ExportId,
    FolderId,
    GatewayEventId,
    InviteId,
    LinkId,
    MailId,
    MediaId,
    MessageId,
    MetricEventId,
    NotificationId,
    PaymentId,
    ProfileId,
    RateCardId,
    SegmentId,
    SendId,
    SubscriptionId,
    TagId,
    TemplateId,
    UserId,
    WebhookEventId,
    WebhookId,
    WebhookLogId,
);

/// Collects one value of each row into an array parameter.
pub(crate) fn collect_column<R, V>(rows: &[R], value: impl Fn(&R) -> V) -> Vec<V>
where
    Vec<V>: Param,
{
    rows.iter().map(value).collect()
}

/// Converts typed ids to UUIDs.
pub(crate) fn uuids<T: Copy + Into<Uuid>>(ids: &[T]) -> Vec<Uuid> {
    ids.iter().map(|&id| id.into()).collect()
}

/// A row with one number, in the column `n`.
#[derive(QueryableByName)]
pub(crate) struct NumberRow {
    #[diesel(sql_type = sql_types::BigInt)]
    pub(crate) n: i64,
}

impl From<NumberRow> for i64 {
    fn from(row: NumberRow) -> Self {
        row.n
    }
}

/// A row with one boolean, in the column `yes`.
#[derive(QueryableByName)]
pub(crate) struct FlagRow {
    #[diesel(sql_type = sql_types::Bool)]
    pub(crate) yes: bool,
}

/// A row with one text, in the column `text`.
#[derive(QueryableByName)]
pub(crate) struct TextRow {
    #[diesel(sql_type = sql_types::Text)]
    pub(crate) text: String,
}

/// A row with one id, in the column `id`.
#[derive(QueryableByName)]
pub(crate) struct IdRow {
    #[diesel(sql_type = sql_types::Uuid)]
    pub(crate) id: Uuid,
}

/// An ILIKE pattern that finds a text anywhere, with its wildcards escaped.
pub(crate) fn like_contains(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_rows_limit_is_the_length_of_the_first_array() {
        assert_eq!(
            key_rows("$2, $3", "id, phone"),
            "(SELECT * FROM unnest($2, $3) WITH ORDINALITY AS k (id, phone, position) LIMIT (SELECT cardinality($2)))"
        );
    }

    #[test]
    fn like_contains_escapes_wildcards() {
        assert_eq!(like_contains(r"50%_\"), r"%50\%\_\\%");
    }

    #[test]
    fn duration_param_is_clamped_to_the_longest_interval() {
        assert_eq!(Duration::MAX.value(), Duration::days(36_500).value());
        assert_eq!(Duration::MILLISECOND.value(), 1000);
    }
}
