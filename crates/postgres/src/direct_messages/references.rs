//! The references of messages whose content left. With a hash of the request, the same request is recognized.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::direct_messages::request_hash;
use recado_domain::shared::AccountId;
use serde_json::Value;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{collect_column, key_rows, sql};

/// A message that loses its content.
#[derive(QueryableByName)]
pub(crate) struct EndedMessage {
    #[diesel(sql_type = SqlUuid)]
    pub(crate) id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    client_reference: Option<String>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Jsonb)]
    request: Value,
}

/// The columns of an [`EndedMessage`].
pub(crate) const ENDED_MESSAGE: &str = "id, client_reference, status, request";

/// Stores the references of the messages that have one.
pub(crate) async fn store_references(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    messages: &[EndedMessage],
) -> DbResult<()> {
    let named: Vec<(&EndedMessage, &String)> = messages
        .iter()
        .filter_map(|message| Some((message, message.client_reference.as_ref()?)))
        .collect();
    sql(format!(
        "INSERT INTO direct_message_references (account_id, client_reference, message_id, status, request_hash)
         SELECT $1, k.reference, k.id, k.status, k.hash FROM {keys} k ORDER BY k.reference ON CONFLICT DO NOTHING",
        keys = key_rows("$2, $3, $4, $5", "reference, id, status, hash"),
    ))
    .bind(account)
    .bind(collect_column(&named, |(_, reference)| (*reference).clone()))
    .bind(collect_column(&named, |(message, _)| message.id))
    .bind(collect_column(&named, |(message, _)| message.status.clone()))
    .bind(collect_column(&named, |(message, _)| {
        request_hash(message.id.into(), &message.request).to_vec()
    }))
    .execute(conn)
    .await?;
    Ok(())
}
