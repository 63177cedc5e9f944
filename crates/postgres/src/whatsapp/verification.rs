//! The verifications of WhatsApp numbers: due checks, their results, and what a number did last.

use std::sync::Arc;

use async_trait::async_trait;
use diesel::dsl::count_star;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{BigInt, Jsonb, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::IdentityReport;
use recado_domain::messaging::ProfileKey;
use recado_domain::shared::{AccountId, Event, ProfileId, StoreError, UpdateOutcome};
use recado_domain::whatsapp::verification::{
    HealthReport, NumberActivity, NumberHolder, NumberHolderStore, VerificationState, VerificationStore,
    VerificationUpdate,
};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::profiles::{by_id, find};
use super::verification_columns::VerificationColumns;
use crate::contacts::move_to_portfolio;
use crate::errors::{DbResult, corrupt, failed, parse_enum};
use crate::outbox::append;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::whatsapp_profiles;
use crate::sql::sql;
use crate::transactions::in_tenant;

/// The verifications of all accounts. Claims and lookups by number run on the owner pool, all else on the tenant pool.
#[derive(Clone)]
pub struct PgVerifications {
    tenants: TenantPool,
    owner: OwnerPool,
    report: Option<Arc<dyn IdentityReport>>,
}

impl PgVerifications {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self {
            tenants,
            owner,
            report: None,
        }
    }

    /// Reports contacts that turn out to be the same person when a portfolio becomes known.
    #[must_use]
    pub fn with_report(self, report: Arc<dyn IdentityReport>) -> Self {
        let report = Some(report);
        Self { report, ..self }
    }
}

/// The number of profiles in each state, of all accounts.
#[derive(Clone, Debug)]
pub struct PgProfileStates(OwnerPool);

impl PgProfileStates {
    pub fn new(owner: OwnerPool) -> Self {
        Self(owner)
    }

    pub async fn count(&self) -> Result<Vec<(VerificationState, i64)>, StoreError> {
        let query = whatsapp_profiles::table
            .group_by(whatsapp_profiles::verification_state)
            .order(whatsapp_profiles::verification_state)
            .select((whatsapp_profiles::verification_state, count_star()));
        let rows: Vec<(String, i64)> = self.0.rows(query).await?;
        let counts = rows
            .into_iter()
            .map(|(state, profiles)| Ok((parse_enum(&state)?, profiles)));
        counts.collect()
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = whatsapp_profiles, check_for_backend(Pg))]
struct KeyRow {
    account_id: Uuid,
    id: Uuid,
}

impl From<KeyRow> for ProfileKey {
    fn from(row: KeyRow) -> Self {
        Self {
            account_id: row.account_id.into(),
            profile_id: row.id.into(),
        }
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = whatsapp_profiles, check_for_backend(Pg))]
struct HolderRow {
    account_id: Uuid,
    id: Uuid,
    verification_state: String,
}

impl TryFrom<HolderRow> for NumberHolder {
    type Error = StoreError;

    fn try_from(row: HolderRow) -> Result<Self, StoreError> {
        Ok(Self {
            account_id: row.account_id.into(),
            profile_id: row.id.into(),
            state: parse_enum(&row.verification_state)?,
        })
    }
}

#[derive(QueryableByName)]
struct ActivityRow {
    #[diesel(sql_type = Nullable<Jsonb>)]
    health: Option<Value>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    health_asked_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_inbound_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_callback_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_accepted_at: Option<OffsetDateTime>,
    #[diesel(sql_type = BigInt)]
    service_messages: i64,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

impl TryFrom<ActivityRow> for NumberActivity {
    type Error = StoreError;

    fn try_from(row: ActivityRow) -> Result<Self, StoreError> {
        let report = row.health.map(serde_json::from_value::<HealthReport>);
        let report = report.transpose().map_err(corrupt)?;
        Ok(Self {
            health: report.zip(row.health_asked_at),
            last_inbound_at: row.last_inbound_at,
            last_callback_at: row.last_callback_at,
            last_accepted_at: row.last_accepted_at,
            service_messages: row.service_messages,
            now: row.now,
        })
    }
}

async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ProfileId,
    update: &VerificationUpdate,
    events: &[Event],
) -> DbResult<(UpdateOutcome<()>, usize)> {
    let guarded = by_id(account, id)
        .filter(whatsapp_profiles::credentials_version.eq(update.credentials_version))
        .filter(whatsapp_profiles::verification_version.eq(update.verification_version));
    let updated = diesel::update(guarded)
        .set((
            VerificationColumns::of(&update.record)?,
            whatsapp_profiles::number.eq(serde_json::to_value(&update.number).map_err(failed)?),
            whatsapp_profiles::verification_version.eq(whatsapp_profiles::verification_version + 1),
            whatsapp_profiles::check_leased_until.eq(None::<OffsetDateTime>),
        ))
        .execute(&mut *conn)
        .await?;
    if updated == 0 {
        let found = find(conn, account, id).await?;
        return Ok((found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale), 0));
    }
    let mut same_persons = 0;
    if let (Some(portfolio), Some(stored)) = (&update.number.portfolio_id, find(conn, account, id).await?) {
        same_persons = move_to_portfolio(conn, account, &stored.profile.waba_id, portfolio).await?;
    }
    append(conn, account, events).await?;
    Ok((UpdateOutcome::Done(()), same_persons))
}

/// A number that some account had is in the directory for ever, so the profile itself is compared again.
const HOLDERS: &str =
    "FROM (SELECT DISTINCT account_id, phone_number_id FROM whatsapp_numbers WHERE phone_number_id = $1) n
     JOIN whatsapp_profiles p ON p.account_id = n.account_id AND p.phone_number_id = n.phone_number_id";

#[async_trait]
impl VerificationStore for PgVerifications {
    async fn claim_due(&self, limit: i64, lease: Duration) -> Result<Vec<ProfileKey>, StoreError> {
        let statement = sql(
            "UPDATE whatsapp_profiles p SET check_leased_until = now() + $2 * interval '1 microsecond'
             FROM (SELECT d.account_id, d.id FROM whatsapp_profiles d JOIN accounts a ON a.id = d.account_id
               WHERE d.next_check_at <= now() AND (d.check_leased_until IS NULL OR d.check_leased_until <= now())
                 AND a.status = 'active'
               ORDER BY d.next_check_at LIMIT $1 FOR NO KEY UPDATE OF d SKIP LOCKED) due
             WHERE p.account_id = due.account_id AND p.id = due.id
             RETURNING p.account_id, p.id",
        )
        .bind(limit)
        .bind(lease);
        let rows = self.owner.rows::<KeyRow>(statement).await?;
        Ok(rows.into_iter().map(ProfileKey::from).collect())
    }

    async fn request_check(&self, account: AccountId, id: ProfileId) -> Result<(), StoreError> {
        let statement = sql("UPDATE whatsapp_profiles SET next_check_at = now()
             WHERE account_id = $1 AND id = $2 AND (next_check_at IS NULL OR next_check_at > now())
               AND (check_leased_until IS NULL OR check_leased_until <= now())
               AND (checked_at IS NULL OR checked_at < now() - interval '10 seconds')")
        .bind(account)
        .bind(id);
        self.tenants.run(account, statement).await?;
        Ok(())
    }

    async fn record(
        &self,
        account: AccountId,
        id: ProfileId,
        update: &VerificationUpdate,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        let recorded = in_tenant!(self.tenants, account, |conn| record(conn, account, id, update, events));
        let (outcome, same_persons) = recorded?;
        if let Some(report) = self.report.as_ref().filter(|_| same_persons > 0) {
            report.same_persons(same_persons);
        }
        Ok(outcome)
    }

    async fn record_health(
        &self,
        account: AccountId,
        id: ProfileId,
        credentials_version: i64,
        report: &HealthReport,
    ) -> Result<(), StoreError> {
        let statement = sql("UPDATE whatsapp_profiles SET health = $4, health_asked_at = now()
             WHERE account_id = $1 AND id = $2 AND credentials_version = $3")
        .bind(account)
        .bind(id)
        .bind(credentials_version)
        .bind(serde_json::to_value(report).map_err(failed)?);
        self.tenants.run(account, statement).await?;
        Ok(())
    }

    async fn activity(&self, account: AccountId, id: ProfileId) -> Result<Option<NumberActivity>, StoreError> {
        let query = sql(
            "SELECT health, health_asked_at, last_inbound_at, last_callback_at, last_accepted_at,
               CASE WHEN service_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date
                 THEN service_messages ELSE 0 END AS service_messages, now() AS now
             FROM whatsapp_profiles WHERE account_id = $1 AND id = $2",
        )
        .bind(account)
        .bind(id);
        let row: Option<ActivityRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(NumberActivity::try_from).transpose()
    }

    async fn note_accepted(&self, account: AccountId, id: ProfileId, service_messages: i64) -> Result<(), StoreError> {
        let statement = sql("WITH noted AS (
               UPDATE whatsapp_profiles SET last_accepted_at = now(),
                 service_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date,
                 service_messages = $3 + CASE WHEN service_month = date_trunc('month', now() AT TIME ZONE 'UTC')::date
                   THEN service_messages ELSE 0 END
               WHERE account_id = $1 AND id = $2
                 AND ($3 > 0 OR last_accepted_at IS NULL OR last_accepted_at < now() - interval '10 seconds')
               RETURNING service_month)
             INSERT INTO service_message_months (account_id, profile_id, month, messages)
             SELECT $1, $2, service_month, $3 FROM noted WHERE $3 > 0
             ON CONFLICT (account_id, profile_id, month)
               DO UPDATE SET messages = service_message_months.messages + excluded.messages")
        .bind(account)
        .bind(id)
        .bind(service_messages);
        self.tenants.run(account, statement).await?;
        Ok(())
    }
}

#[async_trait]
impl NumberHolderStore for PgVerifications {
    async fn holders_of_number(&self, phone_number_id: &str) -> Result<Vec<NumberHolder>, StoreError> {
        let query = sql(format!(
            "SELECT p.account_id, p.id, p.verification_state {HOLDERS} ORDER BY p.account_id"
        ))
        .bind(phone_number_id);
        let rows = self.owner.rows::<HolderRow>(query).await?;
        rows.into_iter().map(NumberHolder::try_from).collect()
    }

    async fn verified_of_business(&self, waba_id: &str) -> Result<Vec<NumberHolder>, StoreError> {
        let query = sql(
            "SELECT DISTINCT p.account_id, p.id, p.verification_state FROM whatsapp_numbers n
             JOIN whatsapp_profiles p
               ON p.account_id = n.account_id AND p.phone_number_id = n.phone_number_id AND p.waba_id = n.waba_id
             WHERE n.waba_id = $1 AND p.verification_state = 'verified' ORDER BY p.account_id, p.id",
        )
        .bind(waba_id);
        let rows = self.owner.rows::<HolderRow>(query).await?;
        rows.into_iter().map(NumberHolder::try_from).collect()
    }

    async fn waiting_for_held(&self, limit: i64) -> Result<Vec<ProfileKey>, StoreError> {
        let query = sql("SELECT account_id, id FROM whatsapp_profiles
             WHERE held_since IS NOT NULL AND verification_state = 'verified' ORDER BY held_since LIMIT $1")
        .bind(limit);
        let rows = self.owner.rows::<KeyRow>(query).await?;
        Ok(rows.into_iter().map(ProfileKey::from).collect())
    }

    async fn end_hold(&self, account: AccountId, id: ProfileId, held_since: OffsetDateTime) -> Result<(), StoreError> {
        let held = by_id(account, id)
            .filter(whatsapp_profiles::held_since.eq(held_since))
            .filter(whatsapp_profiles::verification_state.eq(VerificationState::Verified.as_str()));
        let statement = diesel::update(held).set((
            whatsapp_profiles::held_since.eq(None::<OffsetDateTime>),
            whatsapp_profiles::verification_version.eq(whatsapp_profiles::verification_version + 1),
        ));
        self.tenants.run(account, statement).await?;
        Ok(())
    }

    async fn note_callback(&self, phone_number_id: &str) -> Result<(), StoreError> {
        let statement = sql(format!(
            "UPDATE whatsapp_profiles SET last_callback_at = now()
             WHERE (account_id, id) IN (SELECT p.account_id, p.id {HOLDERS}) AND verification_state = 'verified'
               AND (last_callback_at IS NULL OR last_callback_at < now() - interval '10 seconds')"
        ))
        .bind(phone_number_id);
        self.owner.run(statement).await?;
        Ok(())
    }
}
