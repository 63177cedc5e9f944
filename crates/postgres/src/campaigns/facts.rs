//! Reads the facts that decide on a run.

use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{BigInt, Bool, Date as SqlDate, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{Campaign, ResumeFacts, RunFacts, RunQuota};
use recado_domain::shared::{AccountId, CampaignId, ProfileId};
use recado_domain::whatsapp::verification::VerificationState;
use time::Date;

use super::contents::{self, Contents};
use super::{budgets, rows, usage};
use crate::billing;
use crate::errors::DbResult;
use crate::schema::whatsapp_profiles;
use crate::settings;
use crate::sql::{IdRow, sql};

pub(super) async fn facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<RunFacts>> {
    let Some(row) = rows::find(conn, account, id).await? else {
        return Ok(None);
    };
    let own_profile = row.profile_id.map(ProfileId::from);
    let Contents {
        campaign,
        template,
        frozen: content_frozen,
    } = contents::read(conn, Campaign::try_from(row)?).await?;
    // Disconnecting a number clears the reference, so a disconnected number is `None` here.
    let own_profile = own_profile.filter(|_| content_frozen);
    let profile_id = match own_profile.or_else(|| template.as_ref()?.profile_id) {
        Some(profile) => Some(profile),
        None => default_profile(conn, account).await?,
    };
    let number_unverified = match profile_id {
        Some(profile) => is_unverified(conn, account, profile).await?,
        None => false,
    };
    let late_policy = match campaign.late_policy {
        None if campaign.scheduled_at.is_some() => settings::late_policy(conn, account).await?,
        policy => policy,
    };
    let (billing, now) = billing::entitlement(conn, account).await?;
    Ok(Some(RunFacts {
        campaign,
        template,
        content_frozen,
        profile_id,
        number_unverified,
        billing,
        late_policy,
        now,
    }))
}

#[derive(QueryableByName)]
struct QuotaRow {
    #[diesel(sql_type = Bool)]
    number_lost: bool,
    #[diesel(sql_type = BigInt)]
    pending: i64,
    #[diesel(sql_type = Nullable<SqlDate>)]
    month: Option<Date>,
}

/// Reads the facts of a resume.
pub(super) async fn resume_facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
) -> DbResult<Option<ResumeFacts>> {
    let Some(run) = facts(conn, account, id).await? else {
        return Ok(None);
    };
    let row: QuotaRow = sql(
        "SELECT c.profile_id IS NULL AND NOT c.simulated AND c.executed_at IS NOT NULL AS number_lost,
           coalesce(n.pending, 0) AS pending, c.run_quota_month AS month
         FROM campaigns c LEFT JOIN campaign_counters n ON n.account_id = $1 AND n.campaign_id = $2
         WHERE c.account_id = $1 AND c.id = $2",
    )
    .bind(account)
    .bind(id)
    .get_result(&mut *conn)
    .await?;
    let month = usage::this_month(conn).await?;
    let quota = match row.month == Some(month) {
        true => Some(RunQuota {
            used: usage::used(conn, account, month).await?,
            pending: row.pending,
        }),
        false => None,
    };
    let cost = budgets::cost(conn, account, id, run.campaign.budget.as_ref()).await?;
    Ok(Some(ResumeFacts {
        run,
        cost,
        number_lost: row.number_lost,
        quota,
    }))
}

async fn is_unverified(conn: &mut AsyncPgConnection, account: AccountId, profile: ProfileId) -> DbResult<bool> {
    let is_unverified: Option<bool> = whatsapp_profiles::table
        .find((account.0, profile.0))
        .select(whatsapp_profiles::verification_state.ne(VerificationState::Verified.as_str()))
        .get_result(conn)
        .await
        .optional()?;
    Ok(is_unverified.unwrap_or(false))
}

/// The oldest verified number, or without one the oldest number.
async fn default_profile(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Option<ProfileId>> {
    let first = sql("SELECT id FROM whatsapp_profiles WHERE account_id = $1
         ORDER BY verification_state <> 'verified', created_at, id LIMIT 1")
    .bind(account)
    .get_result::<IdRow>(conn)
    .await
    .optional()?;
    Ok(first.map(|row| row.id.into()))
}

/// Returns the smaller of `limit`, on which the decision was based, and the current plan's monthly limit. `None`: the
/// account has no active plan any more.
pub(super) async fn current_limit(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    limit: i64,
) -> DbResult<Option<i64>> {
    let (entitlement, now) = billing::entitlement(conn, account).await?;
    Ok(entitlement.messages_per_month(now).map(|current| current.min(limit)))
}
