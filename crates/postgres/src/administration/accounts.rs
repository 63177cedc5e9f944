//! One account, as platform administrators see it: create, change, suspend and activate.

use diesel::OptionalExtension;
use diesel::dsl::{auto_type, now};
use diesel::prelude::{ExpressionMethods, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::{Account, AccountStatus};
use recado_domain::administration::{AccountChange, AccountUpdate, PlatformEntry};
use recado_domain::billing::{FREE_PLAN, better_plan};
use recado_domain::shared::{AccountId, Event, StoreError};
use recado_domain::team::InviteInsert;
use serde_json::json;
use uuid::Uuid;

use super::platform_audit;
use crate::accounts::{AccountColumns, reserve_free_slug};
use crate::errors::DbResult;
use crate::schema::{account_slugs, accounts};
use crate::team::{FirstOwnerOutcome, insert_first_owner, insert_invite};
use crate::{billing, outbox};

#[auto_type]
fn live(id: AccountId) -> _ {
    let id: Uuid = id.0;
    accounts::table.find(id).filter(accounts::deleting_at.is_null())
}

/// The grant of a plan. The free plan needs none.
fn granted(plan: &str) -> Option<&str> {
    Some(plan).filter(|plan| *plan != FREE_PLAN)
}

pub(super) async fn find(conn: &mut AsyncPgConnection, id: AccountId) -> DbResult<Option<Account>> {
    let query = live(id).select(AccountColumns::as_select());
    let row: Option<AccountColumns> = query.get_result(conn).await.optional()?;
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
    let values = (
        accounts::id.eq(account.id.0),
        accounts::name.eq(&account.name),
        accounts::slug.eq(&slug),
        accounts::logo_url.eq(&account.logo_url),
        accounts::plan.eq(&account.plan),
        accounts::granted_plan.eq(granted(&account.plan)),
        accounts::status.eq(account.status.as_str()),
        accounts::created_at.eq(account.created_at),
        accounts::updated_at.eq(account.created_at),
    );
    let insert = diesel::insert_into(accounts::table).values(values);
    insert.execute(&mut *conn).await?;
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
    let insert = diesel::insert_into(account_slugs::table)
        .values((account_slugs::slug.eq(slug), account_slugs::account_id.eq(account.0)));
    match insert.on_conflict_do_nothing().execute(conn).await? {
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
    let locked = live(id).select(AccountColumns::as_select()).for_no_key_update();
    let Some(before) = locked.get_result(&mut *conn).await.optional()? else {
        return Ok(AccountUpdate::Missing);
    };
    let before = Account::try_from(before)?;
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
        let released = account_slugs::table
            .find(&before.slug)
            .filter(account_slugs::account_id.eq(id.0));
        diesel::delete(released).execute(&mut *conn).await?;
    }
    // Absent fields are not written.
    let changed = (
        change.name.as_ref().map(|name| accounts::name.eq(name)),
        change.slug.as_ref().map(|slug| accounts::slug.eq(slug)),
        change.logo_url.as_ref().map(|url| accounts::logo_url.eq(url)),
        change
            .plan
            .as_ref()
            .map(|plan| (accounts::plan.eq(plan), accounts::granted_plan.eq(granted(plan)))),
        change.status.map(|status| accounts::status.eq(status.as_str())),
        accounts::updated_at.eq(now),
    );
    let updated: Option<AccountColumns> = diesel::update(accounts::table.find(id.0))
        .set(changed)
        .returning(AccountColumns::as_returning())
        .get_result(&mut *conn)
        .await
        .optional()?;
    let updated = updated.map(Account::try_from).transpose()?;
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
    let change = (accounts::status.eq(status.as_str()), accounts::updated_at.eq(now));
    if diesel::update(live(id)).set(change).execute(&mut *conn).await? == 0 {
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
    let grant = (accounts::granted_plan.eq(granted(plan)), accounts::updated_at.eq(now));
    if diesel::update(live(id)).set(grant).execute(&mut *conn).await? == 0 {
        return Ok(false);
    }
    let (entitlement, at) = billing::entitlement(&mut *conn, id).await?;
    let better = better_plan(plan, entitlement.paid_plan(at));
    diesel::update(accounts::table.find(id.0))
        .set(accounts::plan.eq(better))
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, id, events).await?;
    platform_audit::insert(conn, entry).await?;
    Ok(true)
}
