//! Contacts and their tags.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{
    AddedIdentifiers, BatchOutcome, Contact, ContactChange, ContactDetails, ContactDraft, ContactQuery, ContactStore,
    ContactUpsert, Identifier, ImportRow, NewerConsent, Phone, UpsertOutcome, Upserted,
};
use recado_domain::shared::{
    AccountId, ContactId, CursorPage, RowOutcome, StoreError, TagId, UpdateOutcome, WebhookKind, ZoneName,
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::consent::{ConsentColumns, decide_consent, pass_on_opt_out};
use super::events;
use super::list::{ContactList, ListedRow, MAX_SCAN, MAX_SCAN_BEFORE_INDEX, by_ids};
use super::rows::{COLUMNS, ContactRow, LabelRow, WrittenContact, insert, labels, load_tags, set_tags};
use super::search::SearchIndex;
use super::{upsert, user_ids};
use crate::analytics::{count_contacts, count_conversations};
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::{DbResult, corrupt, parse_enum};
use crate::filters::{RuleRow, SegmentRule};
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::contacts;
use crate::sql::{IdRow, TextRow, collect_column, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgContacts {
    tenants: TenantPool,
    search_index: Option<SearchIndex>,
    erased: ErasedOptOuts,
}

fn read_contacts(rows: Vec<ListedRow>) -> Result<Vec<Contact>, StoreError> {
    rows.into_iter().map(Contact::try_from).collect()
}

/// Reads contacts by their ids, newest first.
pub(crate) async fn read_newest_first(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: Vec<Uuid>,
) -> DbResult<Vec<Contact>> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let rows: Vec<ListedRow> = by_ids(account, ids).load(conn).await?;
    let mut contacts = read_contacts(rows)?;
    contacts.sort_by_key(|contact| std::cmp::Reverse(contact.id));
    Ok(contacts)
}

fn contact_page(rows: Vec<ListedRow>, limit: i64) -> Result<CursorPage<Contact>, StoreError> {
    Ok(CursorPage::cut(read_contacts(rows)?, limit, |contact: &Contact| {
        contact.id
    }))
}

impl PgContacts {
    /// Searches without the search index.
    pub fn new(tenants: TenantPool) -> Self {
        Self {
            tenants,
            search_index: None,
            erased: ErasedOptOuts::default(),
        }
    }

    /// New contacts of erased people who had opted out are opted out.
    #[must_use]
    pub fn with_erased_opt_outs(self, erased: ErasedOptOuts) -> Self {
        Self { erased, ..self }
    }

    /// Searches with the search index, if there is one. `owner` reads the index.
    #[must_use]
    pub fn with_search_index(self, owner: OwnerPool) -> Self {
        let search_index = Some(SearchIndex::new(owner));
        Self { search_index, ..self }
    }

    /// If a contact has the searched number: the page with this contact, or an empty one if cursor or filters exclude it.
    /// None: no contact has it, or the search is not a whole number.
    async fn number_page(
        &self,
        account: AccountId,
        list: &ContactList<'_>,
        before: Uuid,
    ) -> Result<Option<CursorPage<Contact>>, StoreError> {
        let Some(number) = list.by_number(before) else {
            return Ok(None);
        };
        let mut rows: Vec<ListedRow> = self.tenants.read_rows(account, number).await?;
        ListedRow::take_scan_end(&mut rows)
            .map(|_| contact_page(rows, 1))
            .transpose()
    }

    /// The search index, if the list needs it and there is one.
    async fn index_for(&self, list: &ContactList<'_>) -> Result<Option<&OwnerPool>, StoreError> {
        match &self.search_index {
            Some(index) if list.can_use_index() && index.exists().await? => Ok(Some(&index.owner)),
            _ => Ok(None),
        }
    }
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    version: Option<i64>,
    change: &ContactChange,
    now: OffsetDateTime,
    erased: &ErasedOptOuts,
) -> DbResult<UpdateOutcome<ContactDetails>> {
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent("opted_out_at", "consent_at", "$12");
    let user_id = change.wa_user_id.as_ref().and_then(Option::as_deref);
    let before = match change.phone.is_some() || change.wa_user_id.is_some() {
        true => user_ids::lock_identifiers(conn, account, id).await?,
        false => vec![],
    };
    // Writes only the fields of the change, so that it never writes back a stored value.
    let kind = WebhookKind::ContactUpdated;
    let statement = format!(
        "UPDATE contacts
         SET name = coalesce($4, name), phone = CASE WHEN $5 THEN $6 ELSE phone END,
           email = CASE WHEN $7 THEN $8 ELSE email END, wa_user_id = CASE WHEN $9 THEN $10 ELSE wa_user_id END,
           time_zone = CASE WHEN $14 THEN $15 ELSE time_zone END,
           attributes = coalesce($11, attributes), updated_at = $13, version = version + 1,
           opted_out_at = {opted_out_at}, consent_at = {consent_at}
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL AND version = coalesce($3, version)
         RETURNING {COLUMNS}, {is_subscribed}",
        is_subscribed = events::is_subscribed(kind),
    );
    let written: Option<WrittenContact> = sql(statement)
        .bind(account)
        .bind(id)
        .bind(version)
        .bind(change.name.as_deref())
        .bind(change.phone.is_some())
        .bind(change.phone.as_ref().and_then(Option::as_ref).map(Phone::as_str))
        .bind(change.email.is_some())
        .bind(change.email.as_ref().and_then(Option::as_deref))
        .bind(change.wa_user_id.is_some())
        .bind(user_id)
        .bind(change.attributes.clone().map(Value::Object))
        .bind(change.opted_out)
        .bind(now)
        .bind(change.time_zone.is_some())
        .bind(change.time_zone.as_ref().and_then(Option::as_ref).map(ZoneName::as_str))
        .get_result(&mut *conn)
        .await
        .optional()?;
    let Some(written) = written else {
        let found: Option<IdRow> =
            sql("SELECT id FROM contacts WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL")
                .bind(account)
                .bind(id)
                .get_result(&mut *conn)
                .await
                .optional()?;
        return Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale));
    };
    user_ids::check_free(conn, account, user_id, id).await?;
    let written = with_erased_opt_out(conn, account, written, change, &before, erased).await?;
    written.append_event(conn, account, kind).await?;
    if let Some(tags) = &change.tag_ids {
        set_tags(conn, account, id, tags).await?;
    }
    // The transaction has the row locked, so this is the contact as this write left it.
    let written = details(conn, account, id).await?;
    Ok(written.map_or(UpdateOutcome::Missing, UpdateOutcome::Done))
}

/// Opts the contact out if its new number or user id is of an erased person who had opted out. An opt-in that the change
/// states is newer.
async fn with_erased_opt_out(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    mut written: WrittenContact,
    change: &ContactChange,
    before: &[Identifier],
    erased: &ErasedOptOuts,
) -> DbResult<WrittenContact> {
    if change.opted_out.is_some() {
        return Ok(written);
    }
    let phone = change.phone.as_ref().and_then(Option::as_ref).map(Phone::as_str);
    let user_id = change.wa_user_id.as_ref().and_then(Option::as_deref);
    let added = AddedIdentifiers::new(written.contact.id, phone, user_id).without(before);
    if !added.identifiers.is_empty() {
        let opted_out = erased.apply(conn, account, &[added], NewerConsent::Yields).await?;
        let at = opted_out.as_slice().first().map(|(_, at)| *at);
        written.contact.opted_out_at = written.contact.opted_out_at.or(at);
    }
    Ok(written)
}

async fn details(conn: &mut AsyncPgConnection, account: AccountId, id: ContactId) -> DbResult<Option<ContactDetails>> {
    let query = contacts::table
        .filter(contacts::account_id.eq(account.0))
        .filter(contacts::id.eq(id.0))
        .filter(contacts::deleted_at.is_null())
        .select((
            ContactRow::as_select(),
            contacts::first_referral,
            contacts::same_person_as,
        ));
    let found: Option<(ContactRow, Option<Value>, Option<Uuid>)> = query.get_result(&mut *conn).await.optional()?;
    let Some((row, referral, same_person_as)) = found else {
        return Ok(None);
    };
    let user_ids = user_ids::user_ids(conn, account, vec![id.0]).await?.remove(&id);
    Ok(Some(ContactDetails {
        contact: load_tags(conn, account, row).await?,
        first_referral: referral.map(serde_json::from_value).transpose().map_err(corrupt)?,
        user_ids: user_ids.unwrap_or_default(),
        same_person_as: same_person_as.map(ContactId),
    }))
}

/// Deletes the contact and subtracts it and its conversation from the counts. The conversation stays locked until the
/// commit, so that a concurrent change of it counts either with or without this contact, never both.
async fn delete(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    now: OffsetDateTime,
) -> DbResult<bool> {
    let kind = WebhookKind::ContactDeleted;
    let statement = format!(
        "UPDATE contacts SET deleted_at = $3, updated_at = $3, version = version + 1
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
         RETURNING {COLUMNS}, {is_subscribed}",
        is_subscribed = events::is_subscribed(kind),
    );
    let deleted: Option<WrittenContact> = sql(statement)
        .bind(account)
        .bind(id)
        .bind(now)
        .get_result(&mut *conn)
        .await
        .optional()?;
    let Some(deleted) = deleted else {
        return Ok(false);
    };
    let deleted = deleted.append_event(conn, account, kind).await?;
    let status: Option<TextRow> = sql("SELECT status AS text FROM conversations
         WHERE account_id = $1 AND contact_id = $2 FOR NO KEY UPDATE")
    .bind(account)
    .bind(id)
    .get_result(&mut *conn)
    .await
    .optional()?;
    pass_on_opt_out(conn, account, id, now).await?;
    user_ids::delete(conn, account, id).await?;
    count_contacts(conn, account, Some(deleted.created_at), -1).await?;
    if let Some(status) = status {
        count_conversations(conn, account, &[(parse_enum(&status.text)?, -1)]).await?;
    }
    Ok(true)
}

#[async_trait]
impl ContactStore for PgContacts {
    async fn list(&self, account: AccountId, query: &ContactQuery) -> Result<CursorPage<Contact>, StoreError> {
        let segment = match query.filter.segment_id {
            None => None,
            Some(id) => {
                let rule = SegmentRule::query(account, id);
                let Some(rule) = self.tenants.read_row_if_any::<RuleRow, _>(account, rule).await? else {
                    return contact_page(vec![], query.page.limit);
                };
                Some(SegmentRule::try_from(rule)?)
            }
        };
        let list = ContactList::new(account, &query.filter, segment.as_ref());
        // Without a cursor it starts at the greatest id, so that one index scan serves both cases.
        let before = query.page.cursor.unwrap_or(Uuid::max());
        if let Some(page) = self.number_page(account, &list, before).await? {
            return Ok(page);
        }
        let index = self.index_for(&list).await?;
        let max_scan = index.map_or(MAX_SCAN, |_| MAX_SCAN_BEFORE_INDEX);
        let page = list.page(before, query.page.limit + 1, max_scan);
        let mut rows: Vec<ListedRow> = self.tenants.in_index_order().read_rows(account, page).await?;
        // The cursor is exclusive, and the end of the scan was not read yet.
        let next = ListedRow::take_scan_end(&mut rows).map(|end| Uuid::from_u128(end.as_u128().saturating_add(1)));
        if let (Some(owner), Some(next)) = (index, next) {
            let missing = query.page.limit + 1 - i64::try_from(rows.len()).unwrap_or_default();
            let ids: Vec<IdRow> = owner.rows(list.indexed_ids(next, missing)).await?;
            let found = by_ids(account, collect_column(&ids, |row| row.id));
            rows.extend(self.tenants.read_rows::<ListedRow, _>(account, found).await?);
        }
        match next {
            Some(next) if index.is_none() => Ok(CursorPage::partial(read_contacts(rows)?, next)),
            _ => contact_page(rows, query.page.limit),
        }
    }

    async fn find(&self, account: AccountId, id: ContactId) -> Result<Option<Contact>, StoreError> {
        let query = contacts::table
            .filter(contacts::account_id.eq(account.0))
            .filter(contacts::id.eq(id.0))
            .filter(contacts::deleted_at.is_null())
            .select(ContactRow::as_select());
        let (rows, labels) = self
            .tenants
            .read_both::<ContactRow, LabelRow, _, _>(account, query, labels(account, id))
            .await?;
        let tags = labels.into_iter().map(LabelRow::tag).collect();
        rows.into_iter().next().map(|row| row.with(tags)).transpose()
    }

    async fn details(&self, account: AccountId, id: ContactId) -> Result<Option<ContactDetails>, StoreError> {
        in_tenant!(self.tenants, account, |conn| details(conn, account, id))
    }

    async fn insert(
        &self,
        account: AccountId,
        id: ContactId,
        draft: &ContactDraft,
        tags: &[TagId],
        now: OffsetDateTime,
    ) -> Result<Contact, StoreError> {
        in_tenant!(self.tenants, account, |conn| insert(
            conn,
            account,
            id,
            draft,
            tags,
            now,
            &self.erased
        ))
    }

    async fn update(
        &self,
        account: AccountId,
        id: ContactId,
        version: Option<i64>,
        change: &ContactChange,
        now: OffsetDateTime,
    ) -> Result<UpdateOutcome<ContactDetails>, StoreError> {
        in_tenant!(self.tenants, account, |conn| update(
            conn,
            account,
            id,
            version,
            change,
            now,
            &self.erased
        ))
    }

    async fn delete(&self, account: AccountId, id: ContactId, now: OffsetDateTime) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.tenants, account, |conn| delete(conn, account, id, now)).map(RowOutcome::of)
    }

    async fn upsert(
        &self,
        account: AccountId,
        ids: &[ContactId],
        rows: &[ImportRow],
        now: OffsetDateTime,
    ) -> Result<BatchOutcome, StoreError> {
        if rows.is_empty() {
            return Ok(BatchOutcome::Written(Upserted::default()));
        }
        in_tenant!(
            self.tenants,
            account,
            |conn| upsert::upsert(conn, account, ids, rows, now, &self.erased),
            unless BatchOutcome::Refused(_)
        )
    }

    async fn upsert_one(
        &self,
        account: AccountId,
        id: ContactId,
        upsert: &ContactUpsert,
        now: OffsetDateTime,
    ) -> Result<UpsertOutcome, StoreError> {
        in_tenant!(
            self.tenants,
            account,
            |conn| upsert::upsert_one(conn, account, id, upsert, now, &self.erased),
            unless UpsertOutcome::AttributesExceeded
        )
    }
}
