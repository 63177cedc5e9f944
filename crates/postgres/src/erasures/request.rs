//! Requests an erasure: empties the contact's row, and stores the receipt with what copies are found by.

use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::IdentifierHasher;
use recado_domain::erasures::{Erasure, ErasureRequest, ErasureStep, PersonMarks};
use recado_domain::shared::{AccountId, ContactId, Event, WebhookKind, timestamp};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::receipts::{COLUMNS, ReceiptRow};
use crate::analytics::{count_contacts, count_conversations};
use crate::contacts::{delete_identity, pass_on_opt_out, user_ids};
use crate::erased_opt_outs;
use crate::errors::{DbResult, failed, parse_enum};
use crate::filters::HAS_OPTED_OUT;
use crate::outbox;
use crate::sql::{FlagRow, IdRow, collect_column, sql};

#[derive(QueryableByName)]
struct ContactRow {
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Bool)]
    is_deleted: bool,
    #[diesel(sql_type = Bool)]
    has_opted_out: bool,
}

#[derive(QueryableByName)]
struct ConversationRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    status: String,
}

/// The lock lasts until the commit: of two requests the second one finds the receipt of the first.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, id: ContactId) -> DbResult<Option<ContactRow>> {
    let found = sql(format!(
        "SELECT c.phone, c.email, c.wa_id, c.wa_user_id, c.created_at, c.deleted_at IS NOT NULL AS is_deleted,
           {HAS_OPTED_OUT} AS has_opted_out
         FROM contacts c WHERE c.account_id = $1 AND c.id = $2 FOR NO KEY UPDATE OF c"
    ))
    .bind(account)
    .bind(id)
    .get_result(conn)
    .await
    .optional()?;
    Ok(found)
}

async fn receipt(conn: &mut AsyncPgConnection, account: AccountId, id: ContactId) -> DbResult<Option<Erasure>> {
    let row: Option<ReceiptRow> = sql(format!(
        "SELECT {COLUMNS} FROM erasures WHERE account_id = $1 AND contact_id = $2"
    ))
    .bind(account)
    .bind(id)
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(Erasure::try_from).transpose()?)
}

pub(super) async fn request(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    request: &ErasureRequest,
    hasher: &dyn IdentifierHasher,
) -> DbResult<Option<Erasure>> {
    let contact_id = request.contact_id;
    let Some(contact) = lock(conn, account, contact_id).await? else {
        return Ok(None);
    };
    if let Some(first) = receipt(conn, account, contact_id).await? {
        return Ok(Some(first));
    }
    let conversation: Option<ConversationRow> = sql("SELECT id, status FROM conversations
         WHERE account_id = $1 AND contact_id = $2 FOR NO KEY UPDATE")
    .bind(account)
    .bind(contact_id)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let mut marks = marks(conn, account, contact_id, &contact, conversation.as_ref()).await?;
    if contact.is_deleted && is_number_in_use(conn, account, marks.phone.as_deref()).await? {
        // Copies with this number may be of the other contact.
        (marks.phone, marks.wa_id) = (None, None);
    }
    marks.has_opted_out |= !request.opt_outs.is_empty();
    pass_on_opt_out(conn, account, contact_id, request.requested_at).await?;
    delete_identity(conn, account, contact_id).await?;
    empty_contact(conn, account, request).await?;
    if !contact.is_deleted {
        count_contacts(conn, account, Some(contact.created_at), -1).await?;
        if let Some(conversation) = conversation {
            count_conversations(conn, account, &[(parse_enum(&conversation.status)?, -1)]).await?;
        }
    }
    let identifiers = marks.opt_out_identifiers();
    match marks.has_opted_out {
        true => erased_opt_outs::store(conn, account, hasher, &identifiers, &request.opt_outs).await?,
        // The consent of a contact that was deleted before says nothing about the person's last decision.
        false if contact.is_deleted => {}
        false => erased_opt_outs::delete(conn, account, hasher, &identifiers).await?,
    }
    let removed = remove_memberships(conn, account, contact_id, &marks).await?;
    insert_receipt(conn, account, request, &marks, removed).await?;
    outbox::append(conn, account, &events(request)).await?;
    receipt(conn, account, contact_id).await
}

fn events(request: &ErasureRequest) -> [Event; 2] {
    let erased_at = timestamp::format(request.requested_at);
    let erased = json!({ "id": request.contact_id, "erased_at": erased_at });
    [
        Event::Audit(request.audit.clone()),
        Event::webhook(WebhookKind::ContactErased, vec![erased]),
    ]
}

async fn marks(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    contact: &ContactRow,
    conversation: Option<&ConversationRow>,
) -> DbResult<PersonMarks> {
    let scoped = user_ids(conn, account, vec![id.0])
        .await?
        .remove(&id)
        .unwrap_or_default();
    let ids = scoped
        .into_iter()
        .flat_map(|scoped| std::iter::once(scoped.user_id).chain(scoped.parent_user_id));
    let mut user_ids: Vec<String> = ids.chain(contact.wa_user_id.clone()).collect();
    user_ids.sort();
    user_ids.dedup();
    Ok(PersonMarks {
        phone: contact.phone.clone(),
        wa_id: contact.wa_id.clone(),
        email: contact.email.clone(),
        user_ids,
        conversation_id: conversation.map(|conversation| conversation.id),
        has_opted_out: contact.has_opted_out,
        linked_contacts: linked_contacts(conn, account, id).await?,
    })
}

/// Whether another contact, which is not deleted, has the number of a deleted one.
async fn is_number_in_use(conn: &mut AsyncPgConnection, account: AccountId, phone: Option<&str>) -> DbResult<bool> {
    let row: FlagRow =
        sql("SELECT EXISTS (SELECT FROM contacts WHERE account_id = $1 AND phone = $2 AND deleted_at IS NULL) AS yes")
            .bind(account)
            .bind(phone)
            .get_result(conn)
            .await?;
    Ok(row.yes)
}

/// The other contacts of the same person. Their exports have the data of this one.
async fn linked_contacts(conn: &mut AsyncPgConnection, account: AccountId, id: ContactId) -> DbResult<Vec<Uuid>> {
    let linked: Vec<IdRow> = sql("SELECT p.id FROM same_person_contacts($1, $2) p (id) WHERE p.id <> $2 ORDER BY p.id")
        .bind(account)
        .bind(id)
        .load(conn)
        .await?;
    Ok(collect_column(&linked, |row| row.id))
}

async fn empty_contact(conn: &mut AsyncPgConnection, account: AccountId, request: &ErasureRequest) -> DbResult<()> {
    sql(
        "UPDATE contacts SET name = '', phone = NULL, email = NULL, wa_id = NULL, wa_user_id = NULL, attributes = '{}',
           first_referral = NULL, first_referral_at = NULL, time_zone = NULL, same_person_as = NULL,
           deleted_at = coalesce(deleted_at, $3), erased_at = $3, updated_at = $3, version = version + 1
         WHERE account_id = $1 AND id = $2",
    )
    .bind(account)
    .bind(request.contact_id)
    .bind(request.requested_at)
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns how many rows were removed, by kind.
async fn remove_memberships(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contact: ContactId,
    marks: &PersonMarks,
) -> DbResult<Value> {
    let mut removed = serde_json::Map::from_iter([("contacts".to_owned(), json!(1))]);
    if !marks.user_ids.is_empty() {
        removed.insert("user_ids".to_owned(), json!(marks.user_ids.len()));
    }
    for (kind, statement) in [
        (
            "tags",
            "DELETE FROM contact_tags WHERE account_id = $1 AND contact_id = $2",
        ),
        (
            "segments",
            "DELETE FROM segment_members WHERE account_id = $1 AND contact_id = $2",
        ),
    ] {
        let count = sql(statement).bind(account).bind(contact).execute(&mut *conn).await?;
        if count > 0 {
            removed.insert(kind.to_owned(), json!(count));
        }
    }
    Ok(Value::Object(removed))
}

async fn insert_receipt(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    request: &ErasureRequest,
    marks: &PersonMarks,
    removed: Value,
) -> DbResult<()> {
    // Requests that read the contact before may still write.
    sql(
        "INSERT INTO erasures (account_id, id, contact_id, reason, requested_at, removed, marks, step, due_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now() + interval '1 second')",
    )
    .bind(account)
    .bind(request.id)
    .bind(request.contact_id)
    .bind(request.reason.as_deref())
    .bind(request.requested_at)
    .bind(removed)
    .bind(serde_json::to_value(marks).map_err(failed)?)
    .bind(ErasureStep::FIRST.as_str())
    .execute(conn)
    .await?;
    Ok(())
}
