//! The store of direct messages: make, read, list, cancel.

use async_trait::async_trait;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::{
    CancelOutcome, CreationFacts, CreationOutcome, CreationPlan, DirectMessage, DirectMessageQuery, DirectMessageStore,
    MessageRequest, Phase, cancelled_event,
};
use recado_domain::messaging::ErrorCodes;
use recado_domain::shared::{AccountId, CursorPage, MessageId, StoreError, TimeCursor};

use super::rows::{COLUMNS, FROM, MessageRow};
use super::{changes, creation, facts};
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::DbResult;
use crate::outbox;
use crate::pool::TenantPool;
use crate::sql::{Sql, limit_hint, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgDirectMessages(TenantPool, ErrorCodes, ErasedOptOuts);

impl PgDirectMessages {
    pub fn new(pool: TenantPool, codes: ErrorCodes) -> Self {
        Self(pool, codes, ErasedOptOuts::default())
    }

    /// New contacts of erased people who had opted out are opted out.
    #[must_use]
    pub fn with_erased_opt_outs(self, erased: ErasedOptOuts) -> Self {
        Self(self.0, self.1, erased)
    }
}

fn by_id<'a>(account: AccountId, id: MessageId) -> Sql<'a> {
    sql(format!(
        "SELECT {COLUMNS} FROM {FROM} WHERE m.account_id = $1 AND m.id = $2"
    ))
    .bind(account)
    .bind(id)
}

async fn cancel(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: MessageId,
    codes: ErrorCodes,
) -> DbResult<CancelOutcome> {
    let mut locked = changes::lock(conn, account, vec![id.0], vec![]).await?;
    let Some(message) = locked.first_mut() else {
        return Ok(CancelOutcome::Missing);
    };
    let was_pending = message.is_pending();
    if !message.cancel() {
        return Ok(CancelOutcome::AlreadyLeft);
    }
    changes::write(conn, account, &mut locked).await?;
    let row: MessageRow = by_id(account, id).get_result(&mut *conn).await?;
    let cancelled = row.into_message(codes)?;
    if was_pending {
        outbox::append(conn, account, &[cancelled_event(&cancelled)]).await?;
    }
    Ok(CancelOutcome::Cancelled(Box::new(cancelled)))
}

/// The condition of a phase. It agrees with `DirectMessage::phase`.
fn in_phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Scheduled => "m.status = 'pending' AND m.started_at IS NULL AND m.send_at > now()",
        Phase::Waiting => {
            "m.status = 'pending' AND m.started_at IS NULL AND m.send_at <= now()
             AND coalesce(CASE WHEN m.due_at > now() THEN m.hold_rule END, m.hold_reason, q.hold_reason) IS NULL"
        }
        Phase::Held => {
            "m.status = 'pending' AND m.started_at IS NULL AND m.send_at <= now()
             AND coalesce(CASE WHEN m.due_at > now() THEN m.hold_rule END, m.hold_reason, q.hold_reason) IS NOT NULL"
        }
        Phase::Leaving => "m.status = 'pending' AND m.started_at IS NOT NULL AND m.unknown_at IS NULL",
        Phase::Unknown => "m.status = 'pending' AND m.unknown_at IS NOT NULL",
    }
}

fn page_query(account: AccountId, query: &DirectMessageQuery) -> Sql<'static> {
    let mut conditions = String::new();
    let mut values: Vec<Box<dyn FnOnce(Sql<'static>) -> Sql<'static>>> = Vec::new();
    let mut filter = |condition: &str, bind: Box<dyn FnOnce(Sql<'static>) -> Sql<'static>>| {
        // The account, the cursor and the limit come first.
        let parameter = format!("${}", values.len() + 5);
        conditions.push_str(" AND ");
        conditions.push_str(&condition.replace('?', &parameter));
        values.push(bind);
    };
    if let Some(status) = query.status {
        filter("m.status = ?", Box::new(move |sql| sql.bind(status.as_str())));
    }
    if let Some(contact) = query.contact_id {
        filter("m.contact_id = ?", Box::new(move |sql| sql.bind(contact)));
    }
    if let Some(profile) = query.profile_id {
        filter("m.profile_id = ?", Box::new(move |sql| sql.bind(profile)));
    }
    if let Some(template) = query.template_id {
        filter("m.template_id = ?", Box::new(move |sql| sql.bind(template)));
    }
    if let Some(reference) = query.client_reference.clone() {
        filter("m.client_reference = ?", Box::new(move |sql| sql.bind(reference)));
    }
    if let Some(since) = query.since {
        filter("m.created_at >= ?", Box::new(move |sql| sql.bind(since)));
    }
    if let Some(until) = query.until {
        filter("m.created_at < ?", Box::new(move |sql| sql.bind(until)));
    }
    if let Some(phase) = query.phase {
        conditions.push_str(" AND ");
        conditions.push_str(in_phase(phase));
    }
    let after = query.page.cursor.unwrap_or(TimeCursor::LAST);
    let ordered = format!(
        "SELECT {COLUMNS} FROM {FROM} WHERE m.account_id = $1 AND (m.created_at, m.id) < ($2, $3){conditions}
         ORDER BY m.created_at DESC, m.id DESC"
    );
    let page = sql(limit_hint(ordered, "$4"))
        .bind(account)
        .bind(after.at)
        .bind(after.id)
        .bind(query.page.limit + 1);
    values.into_iter().fold(page, |page, bind| bind(page))
}

#[async_trait]
impl DirectMessageStore for PgDirectMessages {
    async fn facts(&self, account: AccountId, requests: &[MessageRequest]) -> Result<CreationFacts, StoreError> {
        let codes = self.1;
        in_tenant!(self.0, account, |conn| facts::creation(conn, account, requests, codes))
    }

    async fn insert(&self, account: AccountId, plan: &CreationPlan) -> Result<CreationOutcome, StoreError> {
        let inserted = in_tenant!(self.0, account, |conn| creation::insert(conn, account, plan, &self.2),
            unless CreationOutcome::Changed | CreationOutcome::QuotaExceeded { .. });
        match inserted {
            // Another request inserted the reference or the contact first.
            Err(StoreError::Duplicate { .. }) => Ok(CreationOutcome::Changed),
            inserted => inserted,
        }
    }

    async fn find(&self, account: AccountId, id: MessageId) -> Result<Option<DirectMessage>, StoreError> {
        let rows = self.0.read_rows::<MessageRow, _>(account, by_id(account, id)).await?;
        rows.into_iter().next().map(|row| row.into_message(self.1)).transpose()
    }

    async fn list(
        &self,
        account: AccountId,
        query: &DirectMessageQuery,
    ) -> Result<CursorPage<DirectMessage>, StoreError> {
        let statement = page_query(account, query);
        let rows: Vec<MessageRow> = self.0.in_index_order().read_rows(account, statement).await?;
        let rows = rows.into_iter().map(|row| row.into_message(self.1));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(CursorPage::cut(rows, query.page.limit, |message| TimeCursor {
            at: message.created_at,
            id: message.id.0,
        }))
    }

    async fn cancel(&self, account: AccountId, id: MessageId) -> Result<CancelOutcome, StoreError> {
        let codes = self.1;
        in_tenant!(self.0, account, |conn| cancel(conn, account, id, codes))
    }
}
