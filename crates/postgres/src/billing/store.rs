//! Subscriptions and payments of one account. Every change of a subscription passes through [`write()`].

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl::{auto_type, not};
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName, SelectableHelper};
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::billing::{
    BillingAccountStore, Change, ChangeOutcome, Cycle, GatewayPayment, Overview, Payment, ReserveOutcome, Subscription,
    SubscriptionFacts, SubscriptionState, SubscriptionStore, Usage, changed_event, exceeded,
};
use recado_domain::shared::{AccountId, GatewayEventId, GuardOutcome, Page, PageQuery, StoreError, SubscriptionId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::entitlement::set_account_plan;
use super::events::wake_events;
use super::rows::{PaymentRow, SubscriptionRow, subscription_columns};
use super::update::{PreviousRow, intent, update};
use crate::analytics::replies_of_month;
use crate::errors::{DbError, DbResult, parse_enum};
use crate::outbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::{accounts, applied_gateway_events, billing_history, gateway_subscriptions, subscriptions};
use crate::sql::{FlagRow, Sql, sql};
use crate::transactions::{Command, in_tenant};

/// Maximum tries to reserve the account's live subscription while other attempts occupy and release it.
const RESERVE_TRIES: usize = 5;

#[derive(Clone, Debug)]
pub struct PgSubscriptions {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgSubscriptions {
    /// `owner` makes gateway events due that arrived before their subscription was stored.
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

/// How the write of a change ended.
pub(crate) struct Written {
    pub(crate) outcome: ChangeOutcome,
    /// The gateway's id of the subscription, if the change is the first one with it.
    pub(crate) new_subject: Option<String>,
}

impl From<ChangeOutcome> for Written {
    fn from(outcome: ChangeOutcome) -> Self {
        let new_subject = None;
        Self { outcome, new_subject }
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = accounts, check_for_backend(Pg))]
struct AccountRow {
    name: String,
    plan: String,
    granted_plan: Option<String>,
    #[diesel(embed)]
    usage: UsageRow,
}

#[derive(QueryableByName)]
struct UsageRow {
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    #[diesel(sql_type = BigInt)]
    messages: i64,
    #[diesel(sql_type = BigInt)]
    automations: i64,
    #[diesel(sql_type = BigInt)]
    team: i64,
    #[diesel(sql_type = BigInt)]
    whatsapp: i64,
}

impl From<UsageRow> for Usage {
    fn from(row: UsageRow) -> Self {
        Self {
            contacts: row.contacts,
            messages: row.messages,
            automations: row.automations,
            team: row.team,
            whatsapp: row.whatsapp,
        }
    }
}

/// The usage of account `$1` that plans limit.
macro_rules! usage_columns {
    () => {
        concat!(
            "(SELECT coalesce(sum(contacts), 0)::bigint FROM contact_counts WHERE account_id = $1) AS contacts,
           coalesce((SELECT sent + test_sends FROM message_usage
             WHERE account_id = $1 AND month = date_trunc('month', now() AT TIME ZONE 'UTC')::date), 0) + ",
            replies_of_month!("date_trunc('month', now() AT TIME ZONE 'UTC')"),
            " AS messages,
           (SELECT count(*) FROM automations WHERE account_id = $1) AS automations,
           (SELECT count(*) FROM account_users WHERE account_id = $1 AND NOT is_support) AS team,
           (SELECT count(*) FROM whatsapp_profiles WHERE account_id = $1) AS whatsapp"
        )
    };
}

async fn usage(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<Usage> {
    let usage = sql(concat!("SELECT ", usage_columns!())).bind(account);
    Ok(usage.get_result::<UsageRow>(conn).await?.into())
}

async fn load_subscription(conn: &mut AsyncPgConnection, query: Sql<'_>) -> DbResult<Option<Subscription>> {
    let row: Option<SubscriptionRow> = query.get_result(conn).await.optional()?;
    Ok(row.map(Subscription::try_from).transpose()?)
}

fn overview<'a>(account: AccountId) -> Sql<'a> {
    sql(concat!(
        "SELECT name, plan, granted_plan, ",
        usage_columns!(),
        " FROM accounts WHERE id = $1"
    ))
    .bind(account)
}

fn live<'a>(account: AccountId) -> Sql<'a> {
    sql(concat!(
        "SELECT ",
        subscription_columns!(),
        " FROM subscriptions WHERE account_id = $1 AND status IN ('active', 'pending', 'past_due') AND NOT attempt"
    ))
    .bind(account)
}

#[auto_type]
fn by_id(account: AccountId, id: SubscriptionId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    subscriptions::table.find(key)
}

#[auto_type]
fn payments(account: AccountId) -> _ {
    let account: Uuid = account.0;
    billing_history::table.filter(billing_history::account_id.eq(account))
}

/// Inserts a subscription attempt. A partial unique index admits one live subscription per account. `None`: try again.
async fn reserve(conn: &mut AsyncPgConnection, attempt: &Subscription) -> DbResult<Option<ReserveOutcome>> {
    let intent = intent(attempt)?;
    let inserted = sql(
        "INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value, billing_email, intent,
           intent_until, intent_check_at, attempt, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)
         ON CONFLICT (account_id) WHERE status IN ('active', 'pending', 'past_due') DO NOTHING",
    )
    .bind(attempt.account_id)
    .bind(attempt.id)
    .bind(attempt.plan.as_str())
    .bind(attempt.cycle.as_str())
    .bind(attempt.status.as_str())
    .bind(attempt.billing_type.as_str())
    .bind(attempt.value.0)
    .bind(attempt.billing_email.as_deref())
    .bind(intent)
    .bind(attempt.pending.as_ref().map(|pending| pending.until))
    .bind(attempt.pending.as_ref().map(|pending| pending.check_at))
    .bind(attempt.is_attempt())
    .bind(attempt.created_at)
    .execute(&mut *conn)
    .await?;
    if inserted > 0 {
        return Ok(Some(ReserveOutcome::Done));
    }
    let holder = sql(concat!(
        "SELECT ",
        subscription_columns!(),
        " FROM subscriptions WHERE account_id = $1 AND status IN ('active', 'pending', 'past_due')"
    ));
    let holder = load_subscription(conn, holder.bind(attempt.account_id)).await?;
    Ok(holder.map(|holder| ReserveOutcome::Taken(Box::new(holder))))
}

async fn facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SubscriptionId,
    gateway_payment_id: Option<&str>,
) -> DbResult<Option<SubscriptionFacts>> {
    let subscription = by_id(account, id).select(SubscriptionRow::as_select());
    let Some(subscription) = subscription.get_result(&mut *conn).await.optional()? else {
        return Ok(None);
    };
    let payment = match gateway_payment_id {
        None => None,
        Some(payment) => payments(account)
            .filter(billing_history::gateway_payment_id.eq(payment))
            .select(PaymentRow::as_select())
            .get_result(&mut *conn)
            .await
            .optional()?,
    };
    let has_other_live: FlagRow = sql("SELECT EXISTS (SELECT FROM subscriptions
           WHERE account_id = $1 AND id <> $2 AND status IN ('active', 'pending', 'past_due')) AS yes")
    .bind(account)
    .bind(id)
    .get_result(&mut *conn)
    .await?;
    Ok(Some(SubscriptionFacts {
        subscription: subscription.try_into()?,
        payment: payment.map(Payment::try_from).transpose()?,
        other_live: has_other_live.yes,
        others: other_subscriptions(conn, account, id).await?,
    }))
}

/// Reads the account's other subscriptions, which also determine its plan.
async fn other_subscriptions(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SubscriptionId,
) -> DbResult<Vec<SubscriptionState>> {
    let rows: Vec<(String, String, Option<OffsetDateTime>)> = subscriptions::table
        .filter(subscriptions::account_id.eq(account.0))
        .filter(subscriptions::id.ne(id.0))
        .filter(not(subscriptions::attempt))
        .select((
            subscriptions::plan,
            subscriptions::status,
            subscriptions::current_period_end,
        ))
        .load(conn)
        .await?;
    let to_state = |(plan, status, current_period_end): (String, String, Option<OffsetDateTime>)| {
        Ok(SubscriptionState {
            plan,
            status: parse_enum(&status)?,
            current_period_end,
        })
    };
    rows.into_iter().map(to_state).collect()
}

/// Writes a change of a subscription and everything that commits with it.
pub(crate) async fn write(conn: &mut AsyncPgConnection, change: &Change) -> DbResult<Written> {
    let (account, id) = (change.subscription.account_id, change.subscription.id);
    if let Some(event) = change.applies
        && mark_applied(account, event).execute(&mut *conn).await? == 0
    {
        return Ok(ChangeOutcome::Repeated.into());
    }
    if let Some(limits) = &change.limits {
        // The lock lasts until the change is written.
        let locked = by_id(account, id).select(subscriptions::id).for_update();
        locked.execute(&mut *conn).await?;
        if let Err(errors) = exceeded(&usage(&mut *conn, account).await?, limits) {
            return Ok(ChangeOutcome::Exceeds(errors).into());
        }
    }
    let before: Option<PreviousRow> = update(&change.subscription)?.get_result(&mut *conn).await.optional()?;
    let Some(before) = before else {
        let found = by_id(account, id).select(subscriptions::id);
        let found: Option<Uuid> = found.get_result(conn).await.optional()?;
        return Ok(found.map_or(ChangeOutcome::Missing, |_| ChangeOutcome::Stale).into());
    };
    let mut new_subject = None;
    if let Some(gateway_id) = &change.subscription.gateway_subscription_id {
        let insert = diesel::insert_into(gateway_subscriptions::table).values((
            gateway_subscriptions::gateway_subscription_id.eq(gateway_id),
            gateway_subscriptions::account_id.eq(account.0),
            gateway_subscriptions::subscription_id.eq(id.0),
        ));
        if insert.on_conflict_do_nothing().execute(&mut *conn).await? > 0 {
            new_subject = Some(gateway_id.clone());
        }
    }
    if let Some(payment) = &change.payment {
        upsert_payment(account, payment).execute(&mut *conn).await?;
    }
    if let Some(plan) = &change.account_plan {
        set_account_plan(&mut *conn, account, plan, change.withdraws_grant).await?;
    }
    let mut events = change.events.clone();
    events.extend(changed_event(&before.try_into()?, &change.subscription));
    outbox::append(conn, account, &events).await?;
    let outcome = ChangeOutcome::Done;
    Ok(Written { outcome, new_subject })
}

/// Inbox: inserts no row if the event is already marked. If another transaction is marking it, the insert waits for
/// that transaction to end.
fn mark_applied(account: AccountId, event: GatewayEventId) -> impl Command {
    let insert = diesel::insert_into(applied_gateway_events::table).values((
        applied_gateway_events::account_id.eq(account.0),
        applied_gateway_events::event_id.eq(event.0),
    ));
    insert.on_conflict_do_nothing()
}

/// One row per payment of the gateway. An update keeps the row's id and creation time.
fn upsert_payment(account: AccountId, payment: &Payment) -> Sql<'_> {
    sql(
        "INSERT INTO billing_history (account_id, id, subscription_id, gateway_payment_id, billing_type, value, status,
           invoice_url, bank_slip_url, due_date, paid_at, confirmed, credited, last_event_at, created_at, cycle)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
         ON CONFLICT (account_id, gateway_payment_id) DO UPDATE
           SET billing_type = excluded.billing_type, value = excluded.value, status = excluded.status,
               invoice_url = excluded.invoice_url, bank_slip_url = excluded.bank_slip_url,
               due_date = excluded.due_date, paid_at = excluded.paid_at, confirmed = excluded.confirmed,
               credited = excluded.credited, last_event_at = excluded.last_event_at, cycle = excluded.cycle",
    )
    .bind(account)
    .bind(payment.id)
    .bind(payment.subscription_id)
    .bind(payment.gateway_payment_id.as_str())
    .bind(payment.billing_type.as_str())
    .bind(payment.value.0)
    .bind(payment.status.as_str())
    .bind(payment.invoice_url.as_deref())
    .bind(payment.bank_slip_url.as_deref())
    .bind(payment.due_date)
    .bind(payment.paid_at)
    .bind(payment.confirmed)
    .bind(payment.credited)
    .bind(payment.last_event_at)
    .bind(payment.created_at)
    .bind(payment.cycle.map(Cycle::as_str))
}

#[async_trait]
impl SubscriptionStore for PgSubscriptions {
    async fn reserve(&self, attempt: &Subscription) -> Result<ReserveOutcome, StoreError> {
        for _ in 0..RESERVE_TRIES {
            let outcome = in_tenant!(self.tenants, attempt.account_id, |conn| reserve(conn, attempt))?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Err(StoreError::Unavailable(
            "the account's live subscription changed too often; try again".into(),
        ))
    }

    async fn find(&self, account: AccountId, id: SubscriptionId) -> Result<Option<Subscription>, StoreError> {
        let query = by_id(account, id).select(SubscriptionRow::as_select());
        let row: Option<SubscriptionRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(Subscription::try_from).transpose()
    }

    async fn facts(
        &self,
        account: AccountId,
        id: SubscriptionId,
        gateway_payment_id: Option<String>,
    ) -> Result<Option<SubscriptionFacts>, StoreError> {
        in_tenant!(self.tenants, account, |conn| facts(
            conn,
            account,
            id,
            gateway_payment_id.as_deref()
        ))
    }

    async fn write(&self, change: &Change) -> Result<ChangeOutcome, StoreError> {
        let written = in_tenant!(self.tenants, change.subscription.account_id, |conn| write(conn, change),
            unless Written { outcome: ChangeOutcome::Stale | ChangeOutcome::Missing | ChangeOutcome::Exceeds(_)
                | ChangeOutcome::Repeated, .. });
        if let Ok(Written {
            new_subject: Some(subject),
            ..
        }) = &written
            && let Err(error) = self.owner.run(wake_events(subject)).await
        {
            tracing::warn!(subject, cause = ?error, "early gateway events of a subscription wait for their retry");
        }
        super::duplicate_to_stale(written.map(|written| written.outcome))
    }

    async fn mark_applied(&self, account: AccountId, event: GatewayEventId) -> Result<(), StoreError> {
        self.tenants
            .run(account, mark_applied(account, event))
            .await
            .map(|_| ())
    }

    async fn remove(&self, attempt: &Subscription) -> Result<GuardOutcome, StoreError> {
        let unchanged = by_id(attempt.account_id, attempt.id)
            .filter(subscriptions::version.eq(attempt.version))
            .filter(subscriptions::attempt);
        let removed = self.tenants.run(attempt.account_id, diesel::delete(unchanged)).await?;
        Ok(GuardOutcome::of(removed > 0))
    }
}

#[async_trait]
impl BillingAccountStore for PgSubscriptions {
    async fn overview(&self, account: AccountId) -> Result<Overview, StoreError> {
        let (accounts, live) = self
            .tenants
            .read_both::<AccountRow, SubscriptionRow, _, _>(account, overview(account), live(account))
            .await?;
        let row = accounts.into_iter().next();
        let row = row.ok_or(DbError::Database(diesel::result::Error::NotFound))?;
        Ok(Overview {
            account_name: row.name,
            account_plan: row.plan,
            granted_plan: row.granted_plan,
            subscription: live.into_iter().next().map(Subscription::try_from).transpose()?,
            usage: row.usage.into(),
        })
    }

    async fn history(&self, account: AccountId, page: PageQuery) -> Result<Page<Payment>, StoreError> {
        let page_query = payments(account)
            .order((billing_history::created_at.desc(), billing_history::id.desc()))
            .limit(page.limit())
            .offset(page.offset())
            .select(PaymentRow::as_select());
        let (total, rows) = self
            .tenants
            .read_page::<i64, PaymentRow, _, _>(account, payments(account).count(), page_query)
            .await?;
        let payments = rows.into_iter().map(Payment::try_from).collect::<Result<_, _>>()?;
        Ok(Page::new(page, payments, total))
    }

    async fn owns(&self, account: AccountId, payment: &GatewayPayment) -> Result<bool, StoreError> {
        // Matched by its subscription, else by its customer, or by an earlier event of the same payment.
        let query = sql("SELECT EXISTS (SELECT FROM subscriptions WHERE account_id = $1
                 AND (gateway_subscription_id = $2 OR ($2 IS NULL AND gateway_customer_id = $3)))
               OR EXISTS (SELECT FROM billing_history WHERE account_id = $1 AND gateway_payment_id = $4) AS yes")
        .bind(account)
        .bind(payment.subscription.as_deref())
        .bind(payment.customer.as_deref())
        .bind(payment.id.as_str());
        Ok(self.tenants.read_row::<FlagRow, _>(account, query).await?.yes)
    }
}
