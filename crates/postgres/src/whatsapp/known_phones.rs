//! The phone numbers of people whom a number reaches by user id.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::messaging::ProfileKey;
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::whatsapp::KnownPhones;
use time::Duration;
use uuid::Uuid;

use super::{PgProfiles, USER_ID_SCOPE};
use crate::contacts::IDS_BY_USER_ID;
use crate::deterministic_ids::time_of;
use crate::errors::DbResult;
use crate::sql::{TextRow, sql};
use crate::transactions::in_tenant;

/// How much earlier than its id a reply may have been written: another server made the id.
const CLOCK_DIFFERENCE: Duration = Duration::days(1);

#[async_trait]
impl KnownPhones for PgProfiles {
    async fn phone_of(&self, number: ProfileKey, user_id: &str) -> Result<Option<String>, StoreError> {
        in_tenant!(self.0, number.account_id, |conn| phone_of(conn, number, user_id))
    }

    async fn note_sent_to_phone(&self, account: AccountId, message: Uuid) -> Result<(), StoreError> {
        in_tenant!(self.0, account, |conn| note_sent_to_phone(conn, account, message))
    }
}

/// The id is that of a send, a direct message or a reply.
async fn note_sent_to_phone(conn: &mut AsyncPgConnection, account: AccountId, message: Uuid) -> DbResult<()> {
    for statement in [
        "UPDATE campaign_sends SET by_user_id = false WHERE account_id = $1 AND id = $2 AND by_user_id",
        "UPDATE direct_messages SET by_user_id = false, updated_at = now()
         WHERE account_id = $1 AND id = $2 AND by_user_id",
    ] {
        let written = sql(statement).bind(account).bind(message).execute(&mut *conn).await?;
        if written > 0 {
            return Ok(());
        }
    }
    sql("UPDATE messages SET by_user_id = false WHERE account_id = $1 AND id = $2 AND created_at >= $3 AND by_user_id")
        .bind(account)
        .bind(message)
        .bind(time_of(message).saturating_sub(CLOCK_DIFFERENCE))
        .execute(conn)
        .await?;
    Ok(())
}

async fn phone_of(conn: &mut AsyncPgConnection, number: ProfileKey, user_id: &str) -> DbResult<Option<String>> {
    let row: Option<TextRow> = sql(format!(
        "SELECT c.phone AS text FROM ({IDS_BY_USER_ID}) ids
         JOIN contacts c ON c.account_id = $1 AND c.id = ids.id
         JOIN whatsapp_profiles p ON p.account_id = $1 AND p.id = $3
         WHERE c.deleted_at IS NULL AND c.phone IS NOT NULL
           AND fitting_user_id($1, c.id, c.wa_user_id, {USER_ID_SCOPE}) = $2
         ORDER BY c.id LIMIT 1"
    ))
    .bind(number.account_id)
    .bind(user_id)
    .bind(number.profile_id)
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(|row| row.text))
}
