//! One account, as platform administrators see it: create, change, suspend and activate.

use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::{Account, AccountStatus};
use recado_domain::administration::{AccountChange, AccountUpdate, PlatformEntry};
use recado_domain::billing::better_plan;
use recado_domain::shared::{AccountId, Event, StoreError};
use recado_domain::team::InviteInsert;
use serde_json::json;

use super::platform_audit;
use crate::accounts::{AccountColumns, reserve_free_slug};
use crate::errors::DbResult;
use crate::sql::{Sql, sql};
use crate::team::{FirstOwnerOutcome, insert_first_owner, insert_invite};
use crate::{billing, outbox};

pub(super) async fn find(conn: &mut AsyncPgConnection, id: AccountId) -> DbResult<Option<Account>> {
    let statement = sql("SELECT id, name, slug, logo_url, plan, status, created_at FROM accounts
         WHERE id = $1 AND deleting_at IS NULL");
    find_by(conn, statement.bind(id)).await
}

async fn find_by(conn: &mut AsyncPgConnection, statement: Sql<'_>) -> DbResult<Option<Account>> {
    let row: Option<AccountColumns> = statement.get_result(conn).await.optional()?;
    Ok(row.map(Account::try_from).transpose()?)
}

pub(super) async fn create(
    conn: &mut AsyncPgConnection,
    account: &Account,
    is_given: bool,
    owner: Option<&InviteInsert>,
    entry: &PlatformEntry,
) -> DbResult<(Account, bool)> {
    let slug = if is_given {
        reserve_slug(conn, account.id, &account.slug).await?;
        account.slug.clone()
    } else {
        reserve_free_slug(conn, account).await?
    };
    sql(
        "INSERT INTO accounts (id, name, slug, logo_url, plan, granted_plan, status, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, nullif($5, 'free'), $6, $7, $7)",
    )
    .bind(account.id)
    .bind(account.name.as_str())
    .bind(slug.as_str())
    .bind(account.logo_url.as_deref())
    .bind(account.plan.as_str())
    .bind(account.status.as_str())
    .bind(account.created_at)
    .execute(&mut *conn)
    .await?;
    let mailed = match owner {
        Some(owner) => insert_invite(conn, owner).await?,
        None => false,
    };
    let entry = entry.clone().with_changes(json!({ "slug": slug }));
    platform_audit::insert(conn, &entry).await?;
    let account = Account {
        slug,
        ..account.clone()
    };
    Ok((account, mailed))
}

/// Waits for a concurrent transaction that reserves the same slug.
async fn reserve_slug(conn: &mut AsyncPgConnection, account: AccountId, slug: &str) -> DbResult<()> {
    let reserved = sql("INSERT INTO account_slugs (slug, account_id) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(slug)
        .bind(account)
        .execute(conn)
        .await?;
    match reserved {
        0 => Err(StoreError::Duplicate { field: "slug" }.into()),
        _ => Ok(()),
    }
}

pub(super) async fn update(
    conn: &mut AsyncPgConnection,
    id: AccountId,
    change: &AccountChange,
    owner: Option<&InviteInsert>,
    entry: &PlatformEntry,
) -> DbResult<AccountUpdate> {
    let locked = sql("SELECT id, name, slug, logo_url, plan, status, created_at FROM accounts
         WHERE id = $1 AND deleting_at IS NULL FOR NO KEY UPDATE");
    let Some(before) = find_by(conn, locked.bind(id)).await? else {
        return Ok(AccountUpdate::Missing);
    };
    let mut mailed = false;
    if let Some(owner) = owner {
        mailed = match insert_first_owner(conn, owner).await? {
            FirstOwnerOutcome::Done { mailed } => mailed,
            FirstOwnerOutcome::Member => return Ok(AccountUpdate::Member),
            FirstOwnerOutcome::Owned => return Ok(AccountUpdate::Owned),
        };
    }
    if let Some(slug) = change.slug.as_deref().filter(|slug| *slug != before.slug) {
        reserve_slug(conn, id, slug).await?;
        sql("DELETE FROM account_slugs WHERE slug = $1 AND account_id = $2")
            .bind(before.slug.as_str())
            .bind(id)
            .execute(&mut *conn)
            .await?;
    }
    let statement = sql(
        "UPDATE accounts SET name = coalesce($2, name), slug = coalesce($3, slug),
           logo_url = CASE WHEN $4 THEN $5 ELSE logo_url END, plan = coalesce($6, plan),
           granted_plan = CASE WHEN $6 IS NULL THEN granted_plan ELSE nullif($6, 'free') END,
           status = coalesce($7, status), updated_at = now()
         WHERE id = $1 RETURNING id, name, slug, logo_url, plan, status, created_at",
    )
    .bind(id)
    .bind(change.name.as_deref())
    .bind(change.slug.as_deref())
    .bind(change.logo_url.is_some())
    .bind(change.logo_url.as_ref().and_then(|url| url.as_deref()))
    .bind(change.plan.as_deref())
    .bind(change.status.map(|status| status.as_str()));
    let updated = find_by(conn, statement).await?;
    let entry = entry.clone().with_changes(change.differences(&before));
    platform_audit::insert(conn, &entry).await?;
    Ok(updated.map_or(AccountUpdate::Missing, |account| AccountUpdate::Done(account, mailed)))
}

pub(super) async fn set_status(
    conn: &mut AsyncPgConnection,
    id: AccountId,
    status: AccountStatus,
    events: &[Event],
    entry: &PlatformEntry,
) -> DbResult<bool> {
    let changed = sql("UPDATE accounts SET status = $2, updated_at = now() WHERE id = $1 AND deleting_at IS NULL")
        .bind(id)
        .bind(status.as_str())
        .execute(&mut *conn)
        .await?;
    if changed == 0 {
        return Ok(false);
    }
    outbox::append(conn, id, events).await?;
    platform_audit::insert(conn, entry).await?;
    Ok(true)
}

/// Grants a plan. A paid plan remains: the account's plan is the better of both.
pub(super) async fn grant_plan(
    conn: &mut AsyncPgConnection,
    id: AccountId,
    plan: &str,
    events: &[Event],
    entry: &PlatformEntry,
) -> DbResult<bool> {
    // This update locks the account before the subscriptions are read: a concurrent payment waits and then sees the
    // grant.
    let changed = sql(
        "UPDATE accounts SET granted_plan = nullif($2, 'free'), updated_at = now()
         WHERE id = $1 AND deleting_at IS NULL",
    )
    .bind(id)
    .bind(plan)
    .execute(&mut *conn)
    .await?;
    if changed == 0 {
        return Ok(false);
    }
    let (entitlement, now) = billing::entitlement(&mut *conn, id).await?;
    sql("UPDATE accounts SET plan = $2 WHERE id = $1")
        .bind(id)
        .bind(better_plan(plan, entitlement.paid_plan(now)))
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, id, events).await?;
    platform_audit::insert(conn, entry).await?;
    Ok(true)
}
