//! The list of all accounts, and the details of one. The list finds its page first and counts only for these rows, so
//! its cost does not grow with the number of accounts.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::{AccountDetail, AccountFilter, AccountMetrics, AccountRow, AccountUser};
use recado_domain::billing::Cents;
use recado_domain::shared::{AccountId, Page, PageQuery, StoreError};
use recado_domain::team::Member;
use time::OffsetDateTime;
use uuid::Uuid;

use super::accounts;
use super::stats::monthly_value;
use crate::errors::{DbResult, parse_enum};
use crate::sql::{FENCE, like_contains, sql};
use crate::team::MemberRow;

/// An account and the total; an empty page has one row with the total only.
#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    total: i64,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    slug: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    owner_email: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    plan: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    status: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    users: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    contacts: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    messages: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    mrr: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    created_at: Option<OffsetDateTime>,
}

impl Row {
    fn account(self) -> Result<Option<AccountRow>, StoreError> {
        let (Some(id), Some(created_at)) = (self.id, self.created_at) else {
            return Ok(None);
        };
        Ok(Some(AccountRow {
            id: id.into(),
            company_name: self.name.unwrap_or_default(),
            slug: self.slug.unwrap_or_default(),
            owner_email: self.owner_email,
            plan: self.plan.unwrap_or_default(),
            status: parse_enum(&self.status.unwrap_or_default())?,
            users: self.users.unwrap_or_default(),
            contacts: self.contacts.unwrap_or_default(),
            messages_30d: self.messages.unwrap_or_default(),
            mrr: Cents(self.mrr.unwrap_or_default()),
            created_at,
        }))
    }
}

/// Matches the account's name or its owner's e-mail address. With several owners, it matches the earliest one.
const SEARCHED: &str = "(a.name ILIKE $4 OR a.id IN (
       SELECT m.account_id FROM users u JOIN account_users m ON m.user_id = u.id AND m.role = 'owner'
       WHERE u.email ILIKE $4 AND NOT EXISTS (SELECT FROM account_users f
         WHERE f.account_id = m.account_id AND f.role = 'owner'
           AND (f.created_at, f.user_id) < (m.created_at, m.user_id))))";

/// The page and the total, in one statement and therefore of one snapshot. A search runs once for both. Without a
/// search the page is read from an index, and only the total looks at every account.
///
/// Messages of a campaign that started after `$3` are in its counters. For a campaign that started before and went
/// on, or was retried, its sends are counted. Every other campaign ended too early to have sent any in that time.
///
/// Messages of a campaign that started after `$3` are in its counters. For a campaign that started before and went
/// on, or was retried, its sends are counted. Every other campaign ended too early to have sent any in that time.
fn statement(filter: &AccountFilter) -> String {
    let mut condition = "a.deleting_at IS NULL".to_owned();
    let mut parameter = 3;
    let mut materialized = "NOT MATERIALIZED";
    if filter.search.is_some() {
        parameter += 1;
        condition.push_str(&format!(" AND {SEARCHED}"));
        materialized = "MATERIALIZED";
    }
    for (column, is_given) in [("plan", filter.plan.is_some()), ("status", filter.status.is_some())] {
        if is_given {
            parameter += 1;
            condition.push_str(&format!(" AND a.{column} = ${parameter}"));
        }
    }
    format!(
        include_str!("page.sql"),
        materialized = materialized,
        condition = condition,
        monthly_value = monthly_value!(),
        fence = FENCE,
    )
}

pub(super) async fn page(
    conn: &mut AsyncPgConnection,
    filter: &AccountFilter,
    page: PageQuery,
    since: OffsetDateTime,
) -> DbResult<Page<AccountRow>> {
    let mut query = sql(statement(filter))
        .bind(page.limit())
        .bind(page.offset())
        .bind(since);
    if let Some(search) = &filter.search {
        query = query.bind(like_contains(search));
    }
    if let Some(plan) = &filter.plan {
        query = query.bind(plan.as_str());
    }
    if let Some(status) = filter.status {
        query = query.bind(status.as_str());
    }
    let rows: Vec<Row> = query.load(conn).await?;
    let total = rows.as_slice().first().map_or(0, |row| row.total);
    let accounts = rows.into_iter().filter_map(|row| row.account().transpose());
    let accounts = accounts.collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Page::new(page, accounts, total))
}

#[derive(QueryableByName)]
struct MetricsRow {
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    #[diesel(sql_type = BigInt)]
    conversations: i64,
}

pub(super) async fn detail(conn: &mut AsyncPgConnection, id: AccountId) -> DbResult<Option<AccountDetail>> {
    let Some(account) = accounts::find(&mut *conn, id).await? else {
        return Ok(None);
    };
    let users: Vec<MemberRow> = sql(
        "SELECT m.user_id, u.email, u.name, m.role, m.last_active_at, m.created_at
         FROM account_users m JOIN users u ON u.id = m.user_id
         WHERE m.account_id = $1 AND NOT m.is_support ORDER BY m.created_at, m.user_id",
    )
    .bind(id)
    .load(&mut *conn)
    .await?;
    let metrics: MetricsRow = sql(
        "SELECT (SELECT coalesce(sum(contacts), 0)::bigint FROM contact_counts WHERE account_id = $1) AS contacts,
           (SELECT coalesce(sum(conversations), 0)::bigint FROM conversation_counts WHERE account_id = $1) AS conversations",
    )
    .bind(id)
    .get_result(conn)
    .await?;
    let user = |row: MemberRow| {
        let member = Member::try_from(row)?;
        Ok(AccountUser {
            account_id: id,
            user_id: member.user_id,
            email: member.email,
            name: member.name,
            role: member.role,
            last_active_at: member.last_active_at,
            created_at: member.created_at,
        })
    };
    Ok(Some(AccountDetail {
        account,
        users: users.into_iter().map(user).collect::<Result<Vec<_>, StoreError>>()?,
        metrics: AccountMetrics {
            contacts: metrics.contacts,
            conversations: metrics.conversations,
        },
    }))
}
