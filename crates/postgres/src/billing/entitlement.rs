//! The facts that decide which plan of an account is active, and the plan that they result in.

use diesel::OptionalExtension;
use diesel::dsl;
use diesel::prelude::{BoolExpressionMethods, ExpressionMethods, PgExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::billing::{PlanEntitlement, SubscriptionState, better_plan};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;

use crate::errors::{DbResult, parse_enum};
use crate::schema::accounts;
use crate::sql::sql;

#[derive(QueryableByName)]
struct EntitlementRow {
    #[diesel(sql_type = Text)]
    account_plan: String,
    #[diesel(sql_type = Nullable<Text>)]
    granted_plan: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    plan: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    status: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    current_period_end: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Returns the account's plan, grant and subscriptions, and the database's time.
pub(crate) async fn entitlement(
    conn: &mut AsyncPgConnection,
    account: AccountId,
) -> DbResult<(PlanEntitlement, OffsetDateTime)> {
    let rows: Vec<EntitlementRow> = sql(
        "SELECT a.plan AS account_plan, a.granted_plan, s.plan, s.status, s.current_period_end, now() AS now
         FROM accounts a LEFT JOIN subscriptions s ON s.account_id = a.id AND NOT s.attempt
         WHERE a.id = $1",
    )
    .bind(account)
    .load(conn)
    .await?;
    let (mut account_facts, mut subscriptions) = (None, Vec::new());
    for row in rows {
        if let (Some(plan), Some(status)) = (row.plan, row.status) {
            subscriptions.push(SubscriptionState {
                plan,
                status: parse_enum(&status)?,
                current_period_end: row.current_period_end,
            });
        }
        account_facts = Some((row.account_plan, row.granted_plan, row.now));
    }
    let (plan, granted, now) = account_facts.ok_or(diesel::result::Error::NotFound)?;
    let entitlement = PlanEntitlement {
        plan,
        granted,
        subscriptions,
    };
    Ok((entitlement, now))
}

/// Sets the account's plan to the better of the paid and the granted plan. Locks the row, because a grant writes the
/// same columns.
pub(super) async fn set_account_plan(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    paid: &str,
    withdraws_grant: bool,
) -> DbResult<()> {
    let grant: Option<Option<String>> = accounts::table
        .find(account.0)
        .select(accounts::granted_plan)
        .for_no_key_update()
        .get_result(&mut *conn)
        .await
        .optional()?;
    let granted = grant.flatten().filter(|_| !withdraws_grant);
    let plan = better_plan(paid, granted.as_deref());
    let is_changed = accounts::plan
        .ne(plan)
        .or(accounts::granted_plan.is_distinct_from(granted.as_deref()));
    diesel::update(accounts::table.find(account.0).filter(is_changed))
        .set((
            accounts::plan.eq(plan),
            accounts::granted_plan.eq(granted.as_deref()),
            accounts::updated_at.eq(dsl::now),
        ))
        .execute(conn)
        .await?;
    Ok(())
}
