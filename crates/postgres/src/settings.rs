//! The settings of each account.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::comparable_word;
use recado_domain::settings::{AccountSettings, CostAlert, LatePolicy, SettingsChange, SettingsStore};
use recado_domain::shared::{AccountId, Event, StoreError, UserId, ZoneName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, corrupt};
use crate::outbox;
use crate::pool::TenantPool;
use crate::schema::{account_settings, cost_months};
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

/// The account's settings and the last change of those that hold messages, for a transaction that decides by them.
/// None: it has the defaults.
pub(crate) async fn find(
    conn: &mut AsyncPgConnection,
    account: AccountId,
) -> DbResult<Option<(AccountSettings, OffsetDateTime)>> {
    let row: Option<(SettingsRow, OffsetDateTime)> = account_settings::table
        .find(account.0)
        .select((SettingsRow::as_select(), account_settings::holds_changed_at))
        .first(conn)
        .await
        .optional()?;
    let Some((row, holds_changed_at)) = row else {
        return Ok(None);
    };
    Ok(Some((row.try_into()?, holds_changed_at)))
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
    opt_out_words_since: Option<Value>,
    opt_out_reply: Option<Option<&'a str>>,
    opt_out_reply_by: Option<Option<Uuid>>,
    late_policy: Option<Option<Value>>,
    cost_alerts: Option<Option<Value>>,
    holds_changed_at: Option<OffsetDateTime>,
    updated_at: OffsetDateTime,
}

/// Since when each opt-out word of the account works, in seconds since 1970.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct WordTimes(BTreeMap<String, i64>);

impl WordTimes {
    pub(crate) fn stored(value: Option<Value>) -> Result<Self, StoreError> {
        Ok(stored(value)?.unwrap_or_default())
    }

    pub(crate) fn of(&self, word: &str) -> OffsetDateTime {
        let since = self.0.get(&comparable_word(word)).copied().unwrap_or_default();
        OffsetDateTime::from_unix_timestamp(since).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// The times of these words: a word that is already set keeps its time.
    fn of_words(&self, words: &[String], now: OffsetDateTime) -> Self {
        let time = |word: &String| {
            let word = comparable_word(word);
            let since = self.0.get(&word).copied().unwrap_or(now.unix_timestamp());
            (word, since)
        };
        Self(words.iter().map(time).collect())
    }
}

/// The times of the opt-out words of a change. `None`: it does not set them.
async fn word_times(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    change: &SettingsChange,
    now: OffsetDateTime,
) -> DbResult<Option<Value>> {
    let Some(words) = &change.opt_out_words else {
        return Ok(None);
    };
    let before: Option<Option<Value>> = account_settings::table
        .find(account.0)
        .select(account_settings::opt_out_words_since)
        .for_update()
        .get_result(conn)
        .await
        .optional()?;
    let before = WordTimes::stored(before.flatten())?;
    let times = before.of_words(words.as_deref().unwrap_or_default(), now);
    Ok(Some(serde_json::to_value(times).map_err(corrupt)?))
}

fn written<T: Serialize>(field: Option<&Option<T>>) -> Result<Option<Option<Value>>, StoreError> {
    let value = |value: &T| serde_json::to_value(value).map_err(corrupt);
    field.map(|field| field.as_ref().map(value).transpose()).transpose()
}

impl<'a> WrittenColumns<'a> {
    fn of(
        change: &'a SettingsChange,
        word_times: Option<Value>,
        user: UserId,
        now: OffsetDateTime,
    ) -> Result<Self, StoreError> {
        let hours = change
            .hold_at_most_hours
            .map(|hours| hours.map(i16::try_from).transpose());
        Ok(Self {
            timezone: change.timezone.as_ref().map(|name| name.as_ref().map(ZoneName::as_str)),
            quiet_hours: written(change.quiet_hours.as_ref())?,
            max_marketing_per_contact: written(change.max_marketing_per_contact.as_ref())?,
            hold_at_most_hours: hours.transpose().map_err(corrupt)?,
            opt_out_words: written(change.opt_out_words.as_ref())?,
            opt_out_words_since: word_times,
            opt_out_reply: change.opt_out_reply.as_ref().map(Option::as_deref),
            opt_out_reply_by: change
                .opt_out_reply
                .as_ref()
                .map(|reply| reply.as_ref().map(|_| user.0)),
            late_policy: written(change.late_policy.as_ref())?,
            cost_alerts: written(change.cost_alerts.as_ref())?,
            holds_changed_at: change.changes_holds().then_some(now),
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

/// Lets the sums of cost alerts be computed anew, because the alerts were set: nothing was added for a currency without
/// an alert, and what a new alert's amount was passed by before gives no alert.
async fn recompute_months(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<()> {
    let months = cost_months::table.filter(cost_months::account_id.eq(account.0));
    // In the order in which status updates lock months.
    let locked = months
        .select(cost_months::month)
        .order((cost_months::currency, cost_months::month));
    locked.for_update().load::<Date>(&mut *conn).await?;
    diesel::update(months)
        .set(cost_months::summed_at.eq(None::<OffsetDateTime>))
        .execute(conn)
        .await?;
    Ok(())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    (change, user): (&SettingsChange, UserId),
    now: OffsetDateTime,
    events: &[Event],
) -> DbResult<AccountSettings> {
    let word_times = word_times(conn, account, change, now).await?;
    let columns = WrittenColumns::of(change, word_times, user, now)?;
    let row: SettingsRow = diesel::insert_into(account_settings::table)
        .values((account_settings::account_id.eq(account.0), &columns))
        .on_conflict(account_settings::account_id)
        .do_update()
        .set(&columns)
        .returning(SettingsRow::as_returning())
        .get_result(&mut *conn)
        .await?;
    if change.cost_alerts.is_some() {
        recompute_months(conn, account).await?;
    }
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
