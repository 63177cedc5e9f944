//! The settings of each account.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::settings::{AccountSettings, CostAlert, LatePolicy, SettingsChange, SettingsStore};
use recado_domain::shared::{AccountId, Event, StoreError, UserId, ZoneName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, corrupt};
use crate::outbox;
use crate::pool::TenantPool;
use crate::schema::account_settings;
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgSettings(TenantPool);

impl PgSettings {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = account_settings, check_for_backend(Pg))]
struct SettingsRow {
    timezone: Option<String>,
    quiet_hours: Option<Value>,
    max_marketing_per_contact: Option<Value>,
    hold_at_most_hours: Option<i16>,
    opt_out_words: Option<Value>,
    opt_out_reply: Option<String>,
    late_policy: Option<Value>,
    cost_alerts: Option<Value>,
}

fn stored<T: DeserializeOwned>(value: Option<Value>) -> Result<Option<T>, StoreError> {
    value.map(serde_json::from_value).transpose().map_err(corrupt)
}

impl TryFrom<SettingsRow> for AccountSettings {
    type Error = StoreError;

    fn try_from(row: SettingsRow) -> Result<Self, StoreError> {
        let defaults = Self::default();
        let hold_at_most_hours = row.hold_at_most_hours.map(u16::try_from).transpose().map_err(corrupt)?;
        Ok(Self {
            timezone: row.timezone.map_or(defaults.timezone, ZoneName::stored),
            quiet_hours: stored(row.quiet_hours)?,
            max_marketing_per_contact: stored(row.max_marketing_per_contact)?,
            hold_at_most_hours: hold_at_most_hours.unwrap_or(defaults.hold_at_most_hours),
            opt_out_words: stored(row.opt_out_words)?.unwrap_or_default(),
            opt_out_reply: row.opt_out_reply,
            late_policy: stored(row.late_policy)?,
            cost_alerts: stored(row.cost_alerts)?.unwrap_or_default(),
        })
    }
}

/// The account's settings and the time of their last change, for a transaction that decides by them. None: it has the
/// defaults.
pub(crate) async fn find(
    conn: &mut AsyncPgConnection,
    account: AccountId,
) -> DbResult<Option<(AccountSettings, OffsetDateTime)>> {
    let row: Option<(SettingsRow, OffsetDateTime)> = account_settings::table
        .find(account.0)
        .select((SettingsRow::as_select(), account_settings::updated_at))
        .first(conn)
        .await
        .optional()?;
    let Some((row, updated_at)) = row else { return Ok(None) };
    Ok(Some((row.try_into()?, updated_at)))
}

/// The columns of a write. `None` leaves a column as it is.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = account_settings)]
struct WrittenColumns<'a> {
    timezone: Option<Option<&'a str>>,
    quiet_hours: Option<Option<Value>>,
    max_marketing_per_contact: Option<Option<Value>>,
    hold_at_most_hours: Option<Option<i16>>,
    opt_out_words: Option<Option<Value>>,
    opt_out_reply: Option<Option<&'a str>>,
    opt_out_reply_by: Option<Option<Uuid>>,
    late_policy: Option<Option<Value>>,
    cost_alerts: Option<Option<Value>>,
    updated_at: OffsetDateTime,
}

fn written<T: Serialize>(field: Option<&Option<T>>) -> Result<Option<Option<Value>>, StoreError> {
    let value = |value: &T| serde_json::to_value(value).map_err(corrupt);
    field.map(|field| field.as_ref().map(value).transpose()).transpose()
}

impl<'a> WrittenColumns<'a> {
    fn of(change: &'a SettingsChange, user: UserId, now: OffsetDateTime) -> Result<Self, StoreError> {
        let hours = change
            .hold_at_most_hours
            .map(|hours| hours.map(i16::try_from).transpose());
        Ok(Self {
            timezone: change.timezone.as_ref().map(|name| name.as_ref().map(ZoneName::as_str)),
            quiet_hours: written(change.quiet_hours.as_ref())?,
            max_marketing_per_contact: written(change.max_marketing_per_contact.as_ref())?,
            hold_at_most_hours: hours.transpose().map_err(corrupt)?,
            opt_out_words: written(change.opt_out_words.as_ref())?,
            opt_out_reply: change.opt_out_reply.as_ref().map(Option::as_deref),
            opt_out_reply_by: change
                .opt_out_reply
                .as_ref()
                .map(|reply| reply.as_ref().map(|_| user.0)),
            late_policy: written(change.late_policy.as_ref())?,
            cost_alerts: written(change.cost_alerts.as_ref())?,
            updated_at: now,
        })
    }
}

/// The account's policy for late schedules.
pub(crate) async fn late_policy(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Option<LatePolicy>> {
    let policy: Option<Option<Value>> = account_settings::table
        .find(account.0)
        .select(account_settings::late_policy)
        .get_result(conn)
        .await
        .optional()?;
    Ok(stored(policy.flatten())?)
}

/// The account's time zone and cost alerts.
pub(crate) async fn cost_alerts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
) -> DbResult<(ZoneName, Vec<CostAlert>)> {
    let found: Option<(Option<String>, Option<Value>)> = account_settings::table
        .find(account.0)
        .select((account_settings::timezone, account_settings::cost_alerts))
        .get_result(conn)
        .await
        .optional()?;
    let (zone, alerts) = found.unwrap_or_default();
    let zone = zone.map(ZoneName::stored).unwrap_or_default();
    Ok((zone, stored(alerts)?.unwrap_or_default()))
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    (change, user): (&SettingsChange, UserId),
    now: OffsetDateTime,
    events: &[Event],
) -> DbResult<AccountSettings> {
    let columns = WrittenColumns::of(change, user, now)?;
    let row: SettingsRow = diesel::insert_into(account_settings::table)
        .values((account_settings::account_id.eq(account.0), &columns))
        .on_conflict(account_settings::account_id)
        .do_update()
        .set(&columns)
        .returning(SettingsRow::as_returning())
        .get_result(&mut *conn)
        .await?;
    outbox::append(conn, account, events).await?;
    Ok(row.try_into()?)
}

#[async_trait]
impl SettingsStore for PgSettings {
    async fn load(&self, account: AccountId) -> Result<AccountSettings, StoreError> {
        let found = account_settings::table.find(account.0).select(SettingsRow::as_select());
        let row: Option<SettingsRow> = self.0.read_row_if_any(account, found).await?;
        row.map_or_else(|| Ok(AccountSettings::default()), AccountSettings::try_from)
    }

    async fn update(
        &self,
        account: AccountId,
        change: &SettingsChange,
        user: UserId,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<AccountSettings, StoreError> {
        in_tenant!(self.0, account, |conn| update(
            conn,
            account,
            (change, user),
            now,
            events
        ))
    }
}
