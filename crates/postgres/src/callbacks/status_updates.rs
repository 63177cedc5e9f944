//! Status updates, applied to campaign sends, replies and direct messages.

use std::collections::HashMap;

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::callbacks::{NamedRecipient, StatusUpdate, StatusUpdateStore};
use recado_domain::costs::CostRollupDelta;
use recado_domain::messaging::{ErrorClass, ErrorCodes, MetaStatus, SendStatus};
use recado_domain::shared::{AccountId, StoreError};
use uuid::Uuid;

use crate::campaigns::{SendChanges, lock_sends};
use crate::contacts::opt_out;
use crate::conversations::{find_message, lock_messages, replies_written_since, reply_written_since, write_messages};
use crate::costs::check_alerts;
use crate::direct_messages::{find_direct_message, lock_direct_messages, write_direct_messages};
use crate::errors::DbResult;
use crate::pool::TenantPool;
use crate::sql::{IdRow, collect_column, key_rows, sql};
use crate::templates::review;
use crate::transactions::{in_tenant, in_transaction};

#[derive(Clone, Debug)]
pub struct PgStatusUpdates(TenantPool, ErrorCodes);

impl PgStatusUpdates {
    pub fn new(pool: TenantPool, codes: ErrorCodes) -> Self {
        Self(pool, codes)
    }
}

#[async_trait]
impl StatusUpdateStore for PgStatusUpdates {
    async fn apply(&self, account: AccountId, updates: &[StatusUpdate]) -> Result<Vec<usize>, StoreError> {
        if updates.is_empty() {
            return Ok(vec![]);
        }
        // First and on its own: only messages that have not failed yet say something new of their templates, and the
        // transaction below holds locks of their campaigns.
        let withdrawn = withdrawn_templates(updates, &self.1);
        if !withdrawn.is_empty() {
            in_tenant!(self.0, account, |conn| review_templates(conn, account, &withdrawn))?;
        }
        // Asynchronous commit: the callback is deleted only afterwards, and applying a status update twice changes
        // nothing.
        in_transaction!(self.0.begin_async_commit(account), |conn| apply(
            conn, account, updates, &self.1
        ))
    }

    async fn new_recipients(
        &self,
        account: AccountId,
        recipients: &[NamedRecipient],
    ) -> Result<Vec<NamedRecipient>, StoreError> {
        in_tenant!(self.0, account, |conn| new_recipients(conn, account, recipients))
    }
}

#[derive(QueryableByName)]
struct NewRecipientRow {
    #[diesel(sql_type = SqlUuid)]
    send_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
}

async fn new_recipients(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    recipients: &[NamedRecipient],
) -> DbResult<Vec<NamedRecipient>> {
    let ids = || recipients.iter().map(|recipient| recipient.send_id.0);
    let rows: Vec<NewRecipientRow> = sql(format!(
        include_str!("new_recipients.sql"),
        keys = key_rows("$2, $3, $4, $5", "send_id, user_id, parent_user_id, written_since"),
    ))
    .bind(account)
    .bind(ids().collect::<Vec<_>>())
    .bind(collect_column(recipients, |named| named.recipient.user_id.clone()))
    .bind(collect_column(recipients, |named| {
        named.recipient.parent_user_id.clone()
    }))
    .bind(ids().map(reply_written_since).collect::<Vec<_>>())
    .bind(ids().min())
    .load(conn)
    .await?;
    let wa_ids: HashMap<Uuid, Option<String>> = rows.into_iter().map(|row| (row.send_id, row.wa_id)).collect();
    let new = recipients.iter().filter_map(|named| {
        let mut named = named.clone();
        let of_contact = wa_ids.get(&named.send_id.0)?;
        named.recipient.wa_id = named.recipient.wa_id.or_else(|| of_contact.clone());
        Some(named)
    });
    Ok(new.collect())
}

/// The messages that failed because their template is paused or disabled, by its status. WhatsApp may hold a message back
/// after it accepted it, and drop it when it pauses the template.
fn withdrawn_templates(updates: &[StatusUpdate], codes: &ErrorCodes) -> HashMap<MetaStatus, Vec<Uuid>> {
    let mut withdrawn: HashMap<MetaStatus, Vec<Uuid>> = HashMap::new();
    for update in updates.iter().filter(|update| update.status == SendStatus::Failed) {
        if let (Some(send), Some(ErrorClass::Blocked(cause))) =
            (update.send_id, update.error_code.map(|code| codes.class(code)))
            && let Some(status) = cause.template_status()
        {
            withdrawn.entry(status).or_default().push(send.into());
        }
    }
    withdrawn
}

/// Stores what the failed messages say of their templates.
async fn review_templates(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    withdrawn: &HashMap<MetaStatus, Vec<Uuid>>,
) -> DbResult<()> {
    for (status, sends) in withdrawn {
        let templates: Vec<IdRow> = sql(format!(
            "SELECT c.template_id AS id FROM {keys} k
             JOIN campaign_sends s ON s.account_id = $1 AND s.id = k.id AND s.id >= $3 AND s.status <> 'failed'
             JOIN campaigns c ON c.account_id = $1 AND c.id = s.campaign_id AND c.template_id IS NOT NULL
             UNION SELECT m.template_id FROM {keys} k
             JOIN direct_messages m ON m.account_id = $1 AND m.id = k.id AND m.status <> 'failed'
               AND m.template_id IS NOT NULL
             ORDER BY id",
            keys = key_rows("$2", "id"),
        ))
        .bind(account)
        .bind(sends.clone())
        .bind(sends.iter().min().copied())
        .load(&mut *conn)
        .await?;
        for template in templates {
            review(conn, account, template.id.into(), *status).await?;
        }
    }
    Ok(())
}

/// Applies status updates and returns the positions of those that match no message. Executes a fixed number
/// of statements, plus one per campaign and one per month.
async fn apply(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    updates: &[StatusUpdate],
    codes: &ErrorCodes,
) -> DbResult<Vec<usize>> {
    let ids: Vec<Uuid> = updates
        .iter()
        .filter_map(|update| update.send_id)
        .map(Uuid::from)
        .collect();
    let message_ids: Vec<String> = updates.iter().map(|update| update.message_id.clone()).collect();
    let mut sends = lock_sends(conn, account, ids, message_ids).await?;
    let (mut unmatched, mut opt_outs) = (Vec::new(), Vec::new());
    for (position, item) in updates.iter().enumerate() {
        match sends.find(item.send_id, &item.message_id) {
            None => unmatched.push((position, item)),
            Some(send) => {
                send.set_message_id(&item.message_id);
                send.advance(item.status, item.at, item.error_code, item.error_message.as_deref());
                send.set_pricing(item.status_pricing());
                if item.error_code.map(|code| codes.class(code)) == Some(ErrorClass::OptedOut) {
                    opt_outs.push((send.contact(), item.at));
                }
            }
        }
    }
    opt_out(conn, account, &opt_outs).await?;
    let mut costs = SendChanges::of(sends).write(conn, account).await?;
    let unmatched = apply_to_replies(conn, account, unmatched, codes, &mut costs).await?;
    check_alerts(conn, account, &costs).await?;
    Ok(unmatched)
}

/// Applies the updates to replies, and those that match none to direct messages.
async fn apply_to_replies(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    updates: Vec<(usize, &StatusUpdate)>,
    codes: &ErrorCodes,
    costs: &mut CostRollupDelta,
) -> DbResult<Vec<usize>> {
    if updates.is_empty() {
        return Ok(vec![]);
    }
    let ids = updates.iter().filter_map(|(_, item)| item.send_id).map(Uuid::from);
    let ids: Vec<_> = ids.map(|id| (id, reply_written_since(id))).collect();
    let message_ids = updates.iter().map(|(_, item)| item.message_id.clone()).collect();
    let since = replies_written_since(updates.iter().map(|(_, item)| item.at));
    let mut replies = lock_messages(conn, account, &ids, message_ids, since).await?;
    let mut unmatched: Vec<(usize, &StatusUpdate)> = Vec::new();
    for (position, item) in updates {
        match find_message(&mut replies, item.send_id.map(Uuid::from), &item.message_id) {
            None => unmatched.push((position, item)),
            Some(reply) => {
                reply.set_message_id(&item.message_id);
                reply.advance(item.status, item.error_message.as_deref());
                reply.set_pricing(item.status_pricing());
            }
        }
    }
    costs.extend(write_messages(conn, account, &mut replies).await?);
    apply_to_direct_messages(conn, account, unmatched, codes, costs).await
}

/// Applies the updates to direct messages and returns the positions of those that match none.
async fn apply_to_direct_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    updates: Vec<(usize, &StatusUpdate)>,
    codes: &ErrorCodes,
    costs: &mut CostRollupDelta,
) -> DbResult<Vec<usize>> {
    if updates.is_empty() {
        return Ok(vec![]);
    }
    let ids = updates
        .iter()
        .filter_map(|(_, item)| item.send_id)
        .map(Uuid::from)
        .collect();
    let message_ids = updates.iter().map(|(_, item)| item.message_id.clone()).collect();
    let mut messages = lock_direct_messages(conn, account, ids, message_ids).await?;
    let (mut unmatched, mut opt_outs) = (Vec::new(), Vec::new());
    for (position, item) in updates {
        match find_direct_message(&mut messages, item.send_id.map(Uuid::from), &item.message_id) {
            None => unmatched.push(position),
            Some(message) => {
                message.set_message_id(&item.message_id);
                message.advance(item.status, item.error_code, item.error_message.as_deref());
                message.set_pricing(item.status_pricing());
                if item.error_code.map(|code| codes.class(code)) == Some(ErrorClass::OptedOut) {
                    opt_outs.push((message.contact(), item.at));
                }
            }
        }
    }
    opt_out(conn, account, &opt_outs).await?;
    costs.extend(write_direct_messages(conn, account, &mut messages).await?);
    Ok(unmatched)
}
