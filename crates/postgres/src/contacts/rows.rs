//! The rows of contacts and of their tags.

use diesel::pg::Pg;
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Bool, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{AddedIdentifiers, Contact, ContactDraft, NewerConsent, Phone, Tag};
use recado_domain::shared::{AccountId, ContactId, StoreError, TagId, WebhookKind, ZoneName};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::consent::{ConsentColumns, decide_consent};
use super::events;
use super::user_ids::check_free;
use crate::analytics::count_contacts;
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::{DbResult, corrupt};
use crate::schema::contacts;
use crate::sql::{Sql, sql, uuids};

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = contacts, check_for_backend(Pg))]
pub(super) struct ContactRow {
    pub(super) id: Uuid,
    name: String,
    phone: Option<String>,
    email: Option<String>,
    wa_user_id: Option<String>,
    time_zone: Option<String>,
    attributes: Value,
    pub(super) opted_out_at: Option<OffsetDateTime>,
    pub(super) created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    version: i64,
}

pub(super) const COLUMNS: &str =
    "id, name, phone, email, wa_user_id, time_zone, attributes, opted_out_at, created_at, updated_at, version";

impl ContactRow {
    pub(super) fn with(self, tags: Vec<Tag>) -> Result<Contact, StoreError> {
        let attributes: Map<String, Value> = serde_json::from_value(self.attributes).map_err(corrupt)?;
        Ok(Contact {
            id: self.id.into(),
            name: self.name,
            phone: self.phone,
            email: self.email,
            wa_user_id: self.wa_user_id,
            time_zone: self.time_zone.map(ZoneName::stored),
            attributes,
            tags,
            opted_out_at: self.opted_out_at,
            created_at: self.created_at,
            updated_at: self.updated_at,
            version: self.version,
        })
    }
}

/// A contact that a statement has just written.
#[derive(QueryableByName)]
pub(super) struct WrittenContact {
    #[diesel(embed)]
    pub(super) contact: ContactRow,
    #[diesel(sql_type = Bool)]
    is_subscribed: bool,
}

impl WrittenContact {
    /// Appends the contact's event if an endpoint subscribes to it.
    pub(super) async fn append_event(
        self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        kind: WebhookKind,
    ) -> DbResult<ContactRow> {
        let Self { contact, is_subscribed } = self;
        if is_subscribed {
            events::append(conn, account, kind, vec![contact.id]).await?;
        }
        Ok(contact)
    }
}

/// A tag of a contact.
#[derive(QueryableByName)]
pub(super) struct LabelRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    color: Option<String>,
}

impl LabelRow {
    pub(super) fn tag(self) -> Tag {
        Tag {
            id: self.id.into(),
            name: self.name,
            color: self.color,
        }
    }
}

/// The statement that reads a contact's tags by name.
pub(super) fn labels<'a>(account: AccountId, id: ContactId) -> Sql<'a> {
    sql("SELECT t.id, t.name, t.color
         FROM contact_tags l JOIN tags t ON t.account_id = l.account_id AND t.id = l.tag_id
         WHERE l.account_id = $1 AND l.contact_id = $2 ORDER BY lower(t.name), t.id")
    .bind(account)
    .bind(id)
}

/// Adds the tags to a contact that was just written.
pub(super) async fn load_tags(conn: &mut AsyncPgConnection, account: AccountId, row: ContactRow) -> DbResult<Contact> {
    let labels: Vec<LabelRow> = labels(account, row.id.into()).load(conn).await?;
    Ok(row.with(labels.into_iter().map(LabelRow::tag).collect())?)
}

/// Replaces the contact's tags.
pub(super) async fn set_tags(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    tags: &[TagId],
) -> DbResult<()> {
    sql("DELETE FROM contact_tags WHERE account_id = $1 AND contact_id = $2 AND tag_id <> ALL ($3)")
        .bind(account)
        .bind(id)
        .bind(uuids(tags))
        .execute(&mut *conn)
        .await?;
    if tags.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO contact_tags (account_id, contact_id, tag_id) SELECT $1, $2, t FROM unnest($3) AS t
         ON CONFLICT DO NOTHING",
    )
    .bind(account)
    .bind(id)
    .bind(uuids(tags))
    .execute(conn)
    .await?;
    Ok(())
}

/// Binds the fields of a contact to a statement.
pub(super) fn bind_draft(
    text: String,
    account: AccountId,
    id: ContactId,
    draft: &ContactDraft,
    now: OffsetDateTime,
) -> Sql<'_> {
    sql(text)
        .bind(account)
        .bind(id)
        .bind(draft.name.as_str())
        .bind(draft.phone.as_ref().map(Phone::as_str))
        .bind(draft.email.as_deref())
        .bind(draft.wa_user_id.as_deref())
        .bind(Value::Object(draft.attributes.clone()))
        .bind(draft.opted_out)
        .bind(now)
        .bind(draft.time_zone.as_ref().map(ZoneName::as_str))
}

pub(crate) async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    draft: &ContactDraft,
    tags: &[TagId],
    now: OffsetDateTime,
    erased: &ErasedOptOuts,
) -> DbResult<Contact> {
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent("NULL::timestamptz", "NULL::timestamptz", "$8");
    check_free(conn, account, draft.wa_user_id.as_deref(), id).await?;
    let kind = WebhookKind::ContactCreated;
    let statement = format!(
        "INSERT INTO contacts
           (account_id, id, name, phone, email, wa_user_id, time_zone, attributes, opted_out_at, consent_at, created_at,
            updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $10, $7, {opted_out_at}, {consent_at}, $9, $9)
         RETURNING {COLUMNS}, {is_subscribed}",
        is_subscribed = events::is_subscribed(kind),
    );
    let mut written: WrittenContact = bind_draft(statement, account, id, draft, now)
        .get_result(&mut *conn)
        .await?;
    // An opt-in that the caller states is newer than the erasure.
    if draft.opted_out.is_none() {
        let phone = draft.phone.as_ref().map(Phone::as_str);
        let inserted = AddedIdentifiers::new(id.0, phone, draft.wa_user_id.as_deref());
        let opted_out = erased.apply(conn, account, &[inserted], NewerConsent::Yields).await?;
        written.contact.opted_out_at = opted_out.as_slice().first().map(|(_, at)| *at);
    }
    let row = written.append_event(conn, account, kind).await?;
    let contact = if tags.is_empty() {
        row.with(vec![])?
    } else {
        set_tags(conn, account, id, tags).await?;
        load_tags(conn, account, row).await?
    };
    count_contacts(conn, account, Some(now), 1).await?;
    Ok(contact)
}
