//! Stores new messages with their contacts, queues and quota.

use std::collections::BTreeMap;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::{CreationOutcome, CreationPlan, NewDirectMessage};
use recado_domain::shared::{AccountId, ProfileId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::stored_profile;
use crate::campaigns::usage;
use crate::contacts::insert_contact;
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::DbResult;
use crate::media::keep_uploads;
use crate::sql::{FlagRow, collect_column, key_rows, sql};

/// Any outcome but `Inserted` MUST roll back.
pub(super) async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    plan: &CreationPlan,
    erased: &ErasedOptOuts,
) -> DbResult<CreationOutcome> {
    let mut contacts: Vec<_> = plan.contacts.iter().collect();
    // Two batches for the same people wait for each other instead of deadlocking.
    contacts.sort_by_key(|contact| (contact.draft.phone.clone(), contact.draft.wa_user_id.clone()));
    queue_messages(conn, account, plan).await?;
    for contact in contacts {
        insert_contact(conn, account, contact.id, &contact.draft, &[], plan.now, erased).await?;
    }
    insert_messages(conn, account, &plan.messages, plan.now).await?;
    if is_outdated(conn, account, plan).await? {
        return Ok(CreationOutcome::Changed);
    }
    keep_files(conn, account, plan).await?;
    // Reserve last: every start of the account waits for this row.
    for (&month, &count) in &plan.quota {
        usage::reserve(conn, account, month, count).await?;
        let used = usage::used(conn, account, month).await?;
        if used > plan.monthly_limit {
            let left = (plan.monthly_limit - (used - count)).max(0);
            return Ok(CreationOutcome::QuotaExceeded { month, left });
        }
    }
    Ok(CreationOutcome::Inserted)
}

/// Inserts messages whose queues are due. For a transaction that holds other locks: see [`wake_queue`].
pub(crate) async fn insert_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    messages: &[NewDirectMessage],
    now: OffsetDateTime,
) -> DbResult<()> {
    let mut messages: Vec<&NewDirectMessage> = messages.iter().collect();
    messages.sort_by_key(|new| &new.message.client_reference);
    let column = |value: fn(&NewDirectMessage) -> Uuid| messages.iter().map(|new| value(new)).collect::<Vec<Uuid>>();
    let text =
        |value: fn(&NewDirectMessage) -> Option<String>| messages.iter().map(|new| value(new)).collect::<Vec<_>>();
    sql(include_str!("insert.sql"))
        .bind(account)
        .bind(column(|new| new.message.id.0))
        .bind(column(|new| new.message.contact_id.0))
        .bind(column(|new| stored_profile(new.message.profile_id)))
        .bind(
            messages
                .iter()
                .map(|new| new.message.kind.as_str().to_owned())
                .collect::<Vec<_>>(),
        )
        .bind(
            messages
                .iter()
                .map(|new| new.template_id.map(Uuid::from))
                .collect::<Vec<_>>(),
        )
        .bind(messages.iter().map(|new| new.request.clone()).collect::<Vec<Value>>())
        .bind(text(|new| new.message.client_reference.clone()))
        .bind(collect_column(&messages, |new| new.message.send_at))
        .bind(collect_column(&messages, |new| new.message.expires_at))
        .bind(text(|new| new.quota_month.map(|month| month.to_string())))
        .bind(column(|new| new.message.created_by.0))
        .bind(
            messages
                .iter()
                .map(|new| new.message.api_key_id.map(Uuid::from))
                .collect::<Vec<_>>(),
        )
        .bind(
            messages
                .iter()
                .map(|new| new.media_id.map(Uuid::from))
                .collect::<Vec<_>>(),
        )
        .bind(now)
        .execute(conn)
        .await?;
    Ok(())
}

/// Whether a reference belongs to a message that was removed, or a contact was erased. What committed before the insert
/// is visible to this statement, which begins after it.
async fn is_outdated(conn: &mut AsyncPgConnection, account: AccountId, plan: &CreationPlan) -> DbResult<bool> {
    let references = plan
        .messages
        .iter()
        .filter_map(|new| new.message.client_reference.clone());
    let outdated: FlagRow = sql(format!(
        "SELECT EXISTS (SELECT 1 FROM {references} k JOIN direct_message_references r
             ON r.account_id = $1 AND r.client_reference = k.reference)
           OR EXISTS (SELECT 1 FROM {contacts} k JOIN contacts c
             ON c.account_id = $1 AND c.id = k.id AND c.erased_at IS NOT NULL) AS yes",
        references = key_rows("$2", "reference"),
        contacts = key_rows("$3", "id"),
    ))
    .bind(account)
    .bind(references.collect::<Vec<_>>())
    .bind(collect_column(&plan.messages, |new| new.message.contact_id.0))
    .get_result(conn)
    .await?;
    Ok(outdated.yes)
}

/// Keeps the uploads of the messages until these have left, and `KEPT_FOR` after.
async fn keep_files(conn: &mut AsyncPgConnection, account: AccountId, plan: &CreationPlan) -> DbResult<()> {
    let mut uses = BTreeMap::new();
    for new in &plan.messages {
        if let Some(file) = new.media_id {
            let used_at = uses.entry(file).or_insert(new.message.send_at);
            *used_at = (*used_at).max(new.message.send_at);
        }
    }
    keep_uploads(conn, account, &uses).await
}

/// Makes the queues of the messages due when their first message is.
async fn queue_messages(conn: &mut AsyncPgConnection, account: AccountId, plan: &CreationPlan) -> DbResult<()> {
    let mut due: BTreeMap<Uuid, DueTime> = BTreeMap::new();
    for NewDirectMessage { message, .. } in &plan.messages {
        let first = due.entry(stored_profile(message.profile_id)).or_insert(DueTime {
            due_at: message.send_at,
            expires_at: Some(message.expires_at),
        });
        first.due_at = first.due_at.min(message.send_at);
        first.expires_at = first.expires_at.into_iter().chain([message.expires_at]).min();
    }
    make_due(conn, account, &due.into_iter().collect::<Vec<_>>()).await
}

/// Makes the queue of a number due, for a message that expires at `expires_at`. A transaction that may add the message
/// after it has locked contacts MUST call this before, for the order of locks. A queue without a due message is released
/// unchanged.
pub(crate) async fn wake_queue(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    number: ProfileId,
    due_at: OffsetDateTime,
    expires_at: OffsetDateTime,
) -> DbResult<()> {
    let expires_at = Some(expires_at);
    make_due(conn, account, &[(number.into(), DueTime { due_at, expires_at })]).await
}

/// When messages are due, and when the first of them expires.
#[derive(Clone, Copy)]
pub(super) struct DueTime {
    pub(super) due_at: OffsetDateTime,
    pub(super) expires_at: Option<OffsetDateTime>,
}

impl DueTime {
    /// At once. The next release sets the time.
    pub(super) const AT_ONCE: Self = Self {
        due_at: OffsetDateTime::UNIX_EPOCH,
        expires_at: None,
    };
}

/// Makes queues due at these times, or earlier. A held queue stays held: a new message does not change the reason. It is
/// due when a message expires.
pub(super) async fn make_due(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    queues: &[(Uuid, DueTime)],
) -> DbResult<()> {
    sql("INSERT INTO direct_message_queues AS q (account_id, profile_id, due_at)
         SELECT $1, k.profile_id, k.due_at FROM unnest($2, $3) AS k (profile_id, due_at) ORDER BY k.profile_id
         ON CONFLICT (account_id, profile_id) DO UPDATE SET due_at = CASE
           WHEN q.hold_reason IS NULL THEN least(q.due_at, excluded.due_at)
           ELSE least(q.due_at, (SELECT k.expires_at FROM unnest($2, $4) AS k (profile_id, expires_at)
             WHERE k.profile_id = q.profile_id)) END")
    .bind(account)
    .bind(collect_column(queues, |(profile, _)| *profile))
    .bind(collect_column(queues, |(_, time)| time.due_at))
    .bind(collect_column(queues, |(_, time)| time.expires_at))
    .execute(conn)
    .await?;
    Ok(())
}
