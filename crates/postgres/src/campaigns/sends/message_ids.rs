//! The message ids that WhatsApp assigned to sends.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use uuid::Uuid;

use super::LockedSend;
use crate::errors::DbResult;
use crate::sql::sql;

impl LockedSend {
    /// Inserts the message ids that WhatsApp assigned and that are new to these sends.
    pub(super) async fn insert_message_ids(
        conn: &mut AsyncPgConnection,
        account: AccountId,
        sends: &[Self],
    ) -> DbResult<()> {
        let (message_ids, send_ids): (Vec<String>, Vec<Uuid>) = sends
            .iter()
            .filter(|send| send.message_id_is_new)
            .filter_map(|send| Some((send.row.wa_message_id.clone()?, send.row.id)))
            .unzip();
        if send_ids.is_empty() {
            return Ok(());
        }
        sql("INSERT INTO sent_messages (account_id, wa_message_id, send_id)
             SELECT $1, w.wa_message_id, w.send_id FROM unnest($2, $3) AS w (wa_message_id, send_id)
             ON CONFLICT DO NOTHING")
        .bind(account)
        .bind(message_ids)
        .bind(send_ids)
        .execute(conn)
        .await?;
        Ok(())
    }
}
