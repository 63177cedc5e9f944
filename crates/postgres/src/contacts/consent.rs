//! Contact data that WhatsApp's results provide: the `wa_id`, and opt-outs.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::Consent;
use recado_domain::shared::{AccountId, ContactId, WebhookKind};
use time::OffsetDateTime;
use uuid::Uuid;

use super::events::{self, ChangedContact};
use crate::errors::DbResult;
use crate::sql::{IdRow, collect_column, key_rows, sql};

/// `Consent::decided` in SQL, for statements that decide without reading first: the expressions for `opted_out_at`
/// and `consent_at`, from the contact's stored values. `opted_out` is a boolean expression; null changes nothing. The
/// time is the database's, because several servers decide about one contact. A test compares the SQL with the domain
/// function.
pub(super) struct ConsentColumns {
    pub(super) opted_out_at: String,
    pub(super) consent_at: String,
}

pub(super) fn decide_consent(opted_out_at: &str, consent_at: &str, opted_out: &str) -> ConsentColumns {
    let last_change_at = format!("greatest({consent_at}, {opted_out_at})");
    let second = "date_trunc('second', now())";
    ConsentColumns {
        opted_out_at: format!(
            "CASE WHEN {opted_out} THEN coalesce({opted_out_at}, greatest(now(), {last_change_at}))
               WHEN ({opted_out}) IS NULL THEN {opted_out_at} END"
        ),
        consent_at: format!(
            "CASE WHEN {opted_out} THEN greatest(now(), {last_change_at})
               WHEN ({opted_out}) IS NULL THEN {consent_at}
               WHEN {opted_out_at} IS NOT NULL AND {last_change_at} >= {second}
                 THEN greatest(now(), {last_change_at} + interval '1 microsecond')
               ELSE greatest({second}, {last_change_at}) END"
        ),
    }
}

/// Stores the `wa_id` of each contact that is not erased. An id that another contact has stays there. If several contacts of the batch
/// have the same id, the oldest contact gets it. If another transaction gives the id to another contact meanwhile,
/// the unique index reports a conflict, and the transaction is retried.
pub(crate) async fn set_wa_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: Vec<Uuid>,
    wa_ids: Vec<String>,
) -> DbResult<()> {
    if contacts.is_empty() {
        return Ok(());
    }
    let mut assignments: Vec<(String, Uuid)> = wa_ids.into_iter().zip(contacts).collect();
    assignments.sort_unstable();
    assignments.dedup_by(|later, earlier| later.0 == earlier.0);
    let (wa_ids, contacts): (Vec<String>, Vec<Uuid>) = assignments.into_iter().unzip();
    sql(format!(
        "UPDATE contacts c SET wa_id = w.wa_id FROM {keys} w
         WHERE c.account_id = $1 AND c.id = w.id AND c.wa_id IS DISTINCT FROM w.wa_id AND c.erased_at IS NULL
           AND NOT EXISTS (SELECT FROM contacts o
             WHERE o.account_id = $1 AND o.wa_id = w.wa_id AND o.deleted_at IS NULL AND o.id <> w.id)",
        keys = key_rows("$2, $3", "id, wa_id"),
    ))
    .bind(account)
    .bind(contacts)
    .bind(wa_ids)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct ConsentRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    opted_out_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    consent_at: Option<OffsetDateTime>,
}

#[derive(QueryableByName)]
struct NowRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Opts contacts out now, because WhatsApp refused a message to them for that reason.
pub(crate) async fn opt_out_now(conn: &mut AsyncPgConnection, account: AccountId, contacts: &[Uuid]) -> DbResult<()> {
    if contacts.is_empty() {
        return Ok(());
    }
    let NowRow { now } = sql("SELECT now() AS now").get_result(&mut *conn).await?;
    let opt_outs: Vec<_> = contacts.iter().map(|contact| (*contact, now)).collect();
    opt_out(conn, account, &opt_outs).await
}

/// Opts the other contacts of a person out if this contact, which is being deleted, had opted out: they counted as opted
/// out because of it, and lose their link to it. The caller MUST call it while they are linked.
pub(crate) async fn pass_on_opt_out(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    deleted: ContactId,
    now: OffsetDateTime,
) -> DbResult<()> {
    let linked: Vec<IdRow> = sql(
        "SELECT p.id FROM contacts d CROSS JOIN LATERAL same_person_contacts($1, $2) p (id)
         WHERE d.account_id = $1 AND d.id = $2 AND d.opted_out_at IS NOT NULL AND p.id <> $2",
    )
    .bind(account)
    .bind(deleted)
    .load(&mut *conn)
    .await?;
    let opt_outs: Vec<_> = linked.into_iter().map(|row| (row.id, now)).collect();
    opt_out(conn, account, &opt_outs).await
}

/// Opts contacts out, each with the time of its refusal. An erased contact has no consent any more.
pub(crate) async fn opt_out(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    opt_outs: &[(Uuid, OffsetDateTime)],
) -> DbResult<()> {
    if opt_outs.is_empty() {
        return Ok(());
    }
    let ids: BTreeSet<Uuid> = opt_outs.iter().map(|(contact, _)| *contact).collect();
    let rows: Vec<ConsentRow> = sql(format!(
        "SELECT c.id, c.opted_out_at, c.consent_at
         FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.id = k.id AND c.erased_at IS NULL
         ORDER BY c.id FOR NO KEY UPDATE OF c",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(ids.into_iter().collect::<Vec<_>>())
    .load(&mut *conn)
    .await?;
    let consent = |row: ConsentRow| {
        let consent = Consent {
            opted_out_at: row.opted_out_at,
            changed_at: row.consent_at,
        };
        (row.id, (consent, consent))
    };
    let mut consents: BTreeMap<Uuid, (Consent, Consent)> = rows.into_iter().map(consent).collect();
    for (contact, at) in opt_outs {
        if let Some((_, now)) = consents.get_mut(contact) {
            *now = now.with_opt_out(*at);
        }
    }
    consents.retain(|_, (before, now)| now != before);
    // For a contact that has already opted out only the consent time changes: no published value changes, so no event
    // is due.
    let (repeated, changed): (Vec<_>, Vec<_>) = consents
        .into_iter()
        .map(|(contact, (before, now))| (contact, now, before.opted_out_at == now.opted_out_at))
        .partition(|(.., repeated)| *repeated);
    write_changed(conn, account, &changed).await?;
    if !repeated.is_empty() {
        sql(format!(
            "UPDATE contacts c SET consent_at = w.consent_at FROM {keys} w WHERE c.account_id = $1 AND c.id = w.id",
            keys = key_rows("$2, $3", "id, consent_at"),
        ))
        .bind(account)
        .bind(collect_column(&repeated, |(contact, ..)| *contact))
        .bind(collect_column(&repeated, |(_, consent, _)| consent.changed_at))
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// Writes the consent of these contacts and appends their events.
async fn write_changed(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changed: &[(Uuid, Consent, bool)],
) -> DbResult<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let kind = WebhookKind::ContactUpdated;
    let statement = format!(
        "UPDATE contacts c SET opted_out_at = w.opted_out_at, consent_at = w.consent_at,
           updated_at = now(), version = version + 1
         FROM {keys} w WHERE c.account_id = $1 AND c.id = w.id
         RETURNING c.id, {is_subscribed}",
        keys = key_rows("$2, $3, $4", "id, opted_out_at, consent_at"),
        is_subscribed = events::is_subscribed(kind),
    );
    let written: Vec<ChangedContact> = sql(statement)
        .bind(account)
        .bind(collect_column(changed, |(contact, ..)| *contact))
        .bind(collect_column(changed, |(_, consent, _)| consent.opted_out_at))
        .bind(collect_column(changed, |(_, consent, _)| consent.changed_at))
        .load(&mut *conn)
        .await?;
    events::append_if_subscribed(conn, account, kind, &written).await
}
