//! Writes the contacts that inbound events add and change.

use std::collections::HashSet;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::NewerConsent;
use recado_domain::conversations::InboxChanges;
use recado_domain::shared::{AccountId, WebhookKind};
use uuid::Uuid;

use crate::contacts::{ChangedContact, append_if_subscribed, is_subscribed, write_user_ids};
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql, uuids};

/// Writes new and changed contacts with their user ids, and appends their events.
pub(super) async fn write_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changes: &InboxChanges,
    erased: &ErasedOptOuts,
) -> DbResult<()> {
    clear_released_ids(conn, account, changes).await?;
    let inserted = insert_contacts(conn, account, changes).await?;
    let mut updated = update_contacts(conn, account, changes).await?;
    write_user_ids(conn, account, &changes.user_ids).await?;
    let opted_out = erased.apply(conn, account, &changes.added, NewerConsent::Stays).await?;
    let written: HashSet<Uuid> = inserted.iter().chain(&updated).map(|contact| contact.id).collect();
    let others = opted_out
        .into_iter()
        .map(|(id, _)| id)
        .filter(|id| !written.contains(id));
    updated.extend(change_versions(conn, account, others.collect()).await?);
    append_if_subscribed(conn, account, WebhookKind::ContactCreated, &inserted).await?;
    append_if_subscribed(conn, account, WebhookKind::ContactUpdated, &updated).await
}

/// Changes the versions of contacts of which no other column was written but their consent.
async fn change_versions(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: Vec<Uuid>,
) -> DbResult<Vec<ChangedContact>> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let changed = sql(format!(
        "UPDATE contacts c SET updated_at = now(), version = version + 1
         FROM {keys} k WHERE c.account_id = $1 AND c.id = k.id RETURNING c.id, {is_subscribed}",
        keys = key_rows("$2", "id"),
        is_subscribed = is_subscribed(WebhookKind::ContactUpdated),
    ))
    .bind(account)
    .bind(ids)
    .load(conn)
    .await?;
    Ok(changed)
}

/// Clears phone and WhatsApp ids of the `released` contacts, which lose one of them to another contact of the batch.
/// Unique indexes are checked at every statement, so this has to precede the writes of the new owners.
/// [`update_contacts`] then writes the remaining ids of the cleared contacts.
async fn clear_released_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    InboxChanges { released, .. }: &InboxChanges,
) -> DbResult<()> {
    if released.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE contacts c SET phone = NULL, wa_id = NULL, wa_user_id = NULL
         FROM {keys} k WHERE c.account_id = $1 AND c.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(uuids(released))
    .execute(conn)
    .await?;
    Ok(())
}

async fn insert_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    InboxChanges { new_contacts, .. }: &InboxChanges,
) -> DbResult<Vec<ChangedContact>> {
    if new_contacts.is_empty() {
        return Ok(vec![]);
    }
    let kind = WebhookKind::ContactCreated;
    let written = sql(format!(
        "INSERT INTO contacts (account_id, id, name, phone, wa_id, wa_user_id, opted_out_at, consent_at, same_person_as)
         SELECT $1, m.* FROM unnest($2, $3, $4, $5, $6, $7, $8, $9)
           AS m (id, name, phone, wa_id, wa_user_id, opted_out_at, consent_at, same_person_as)
         RETURNING id, {}",
        is_subscribed(kind)
    ))
    .bind(account)
    .bind(collect_column(new_contacts, |contact| contact.id.0))
    .bind(collect_column(new_contacts, |contact| contact.name.clone()))
    .bind(collect_column(new_contacts, |contact| contact.phone.clone()))
    .bind(collect_column(new_contacts, |contact| contact.wa_id.clone()))
    .bind(collect_column(new_contacts, |contact| contact.wa_user_id.clone()))
    .bind(collect_column(new_contacts, |contact| contact.consent.opted_out_at))
    .bind(collect_column(new_contacts, |contact| contact.consent.changed_at))
    .bind(collect_column(new_contacts, |contact| {
        contact.same_person_as.map(|id| id.0)
    }))
    .load(conn)
    .await?;
    Ok(written)
}

async fn update_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    InboxChanges { changed, .. }: &InboxChanges,
) -> DbResult<Vec<ChangedContact>> {
    if changed.is_empty() {
        return Ok(vec![]);
    }
    let kind = WebhookKind::ContactUpdated;
    let statement = format!(
        "UPDATE contacts c SET phone = m.phone, wa_id = m.wa_id, wa_user_id = m.wa_user_id,
           opted_out_at = m.opted_out_at, consent_at = m.consent_at, same_person_as = m.same_person_as,
           updated_at = now(), version = version + 1
         FROM {keys} m WHERE c.account_id = $1 AND c.id = m.id
         RETURNING c.id, {is_subscribed}",
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7, $8",
            "id, phone, wa_id, wa_user_id, opted_out_at, consent_at, same_person_as"
        ),
        is_subscribed = is_subscribed(kind),
    );
    let written = sql(statement)
        .bind(account)
        .bind(collect_column(changed, |contact| contact.id.0))
        .bind(collect_column(changed, |contact| contact.phone.clone()))
        .bind(collect_column(changed, |contact| contact.wa_id.clone()))
        .bind(collect_column(changed, |contact| contact.wa_user_id.clone()))
        .bind(collect_column(changed, |contact| contact.consent.opted_out_at))
        .bind(collect_column(changed, |contact| contact.consent.changed_at))
        .bind(collect_column(changed, |contact| contact.same_person_as.map(|id| id.0)))
        .load(conn)
        .await?;
    Ok(written)
}
