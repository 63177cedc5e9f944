//! What sends teach about contacts: how the platform writes their number, and that they want no more messages.

use std::collections::BTreeMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::Consent;
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use super::told::telling;
use crate::errors::Attempt;
use crate::sql::sql;

/// Learns the contacts' ids with the platform, one each; one that another contact has is left there.
pub(crate) async fn learn_wa_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: Vec<Uuid>,
    wa_ids: Vec<String>,
) -> Attempt<()> {
    if contacts.is_empty() {
        return Ok(());
    }
    sql(
        "UPDATE contacts c SET wa_id = w.wa_id FROM unnest($2, $3) AS w (id, wa_id)
         WHERE c.account_id = $1 AND c.id = w.id AND c.wa_id IS DISTINCT FROM w.wa_id
           AND NOT EXISTS (SELECT FROM contacts o
             WHERE o.account_id = $1 AND o.wa_id = w.wa_id AND o.deleted_at IS NULL AND o.id <> w.id)",
    )
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

/// Notes that these contacts want no more messages, since when each says.
pub(crate) async fn withdraw(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    refusals: &[(Uuid, OffsetDateTime)],
) -> Attempt<()> {
    if refusals.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = refusals.iter().map(|(contact, _)| *contact).collect();
    let rows: Vec<ConsentRow> = sql("SELECT id, opted_out_at, consent_at FROM contacts
         WHERE account_id = $1 AND id = ANY ($2) ORDER BY id FOR NO KEY UPDATE")
    .bind(account)
    .bind(ids)
    .load(&mut *conn)
    .await?;
    let consent = |row: ConsentRow| {
        let consent = Consent {
            opted_out_at: row.opted_out_at,
            said_at: row.consent_at,
        };
        (row.id, consent)
    };
    let mut consents: BTreeMap<Uuid, Consent> = rows.into_iter().map(consent).collect();
    for (contact, at) in refusals {
        if let Some(consent) = consents.get_mut(contact) {
            *consent = consent.withdrawn(*at);
        }
    }
    let statement = "UPDATE contacts c SET opted_out_at = w.opted_out_at, consent_at = w.consent_at, updated_at = now()
         FROM unnest($2, $3, $4) AS w (id, opted_out_at, consent_at)
         WHERE c.account_id = $1 AND c.id = w.id
           AND (c.opted_out_at, c.consent_at) IS DISTINCT FROM (w.opted_out_at, w.consent_at)";
    sql(telling(statement, "c", "contact.updated", "c.id", "id"))
        .bind(account)
        .bind(consents.keys().copied().collect::<Vec<_>>())
        .bind(consents.values().map(|one| one.opted_out_at).collect::<Vec<_>>())
        .bind(consents.values().map(|one| one.said_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(())
}
