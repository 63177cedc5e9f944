//! The files of new messages, and messages that their author changed.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::conversations::{MessageChange, NewMessage};
use recado_domain::media::{AnnouncedFile, FileState};
use recado_domain::shared::{AccountId, MediaId, ProfileId};
use time::{Duration, OffsetDateTime};

use crate::errors::DbResult;
use crate::sql::{FlagRow, collect_column, sql};

/// How long after a message its author can change it here: the partitions before it are not searched.
const CHANGED_FOR: Duration = Duration::days(45);

/// Inserts the files of new messages, due at once.
pub(super) async fn insert_files(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    (profile, phone_number_id): (ProfileId, &str),
    messages: &[NewMessage],
) -> DbResult<()> {
    let files: Vec<(&NewMessage, MediaId, &AnnouncedFile)> = messages
        .iter()
        .filter_map(|new| new.file.as_ref().map(|(id, file)| (new, *id, file)))
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO message_media (account_id, id, message_id, conversation_id, profile_id, phone_number_id,
           wa_media_id, type, mime_type, file_name, expected_sha256, state, due_at, written_at)
         SELECT $1, f.id, f.message_id, f.conversation_id, $2, $3, f.wa_media_id, f.type, f.mime_type, f.file_name,
           f.expected_sha256, $4, now(), f.written_at
         FROM unnest($5, $6, $7, $8, $9, $10, $11, $12, $13)
           AS f (id, message_id, conversation_id, wa_media_id, type, mime_type, file_name, expected_sha256, written_at)",
    )
    .bind(account)
    .bind(profile)
    .bind(phone_number_id)
    .bind(FileState::Pending.as_str())
    .bind(collect_column(&files, |(_, id, _)| id.0))
    .bind(collect_column(&files, |(new, ..)| new.id.0))
    .bind(collect_column(&files, |(new, ..)| new.conversation_id.0))
    .bind(collect_column(&files, |(.., file)| file.wa_media_id.clone()))
    .bind(collect_column(&files, |(.., file)| file.kind.as_str().to_owned()))
    .bind(collect_column(&files, |(.., file)| file.mime_type.clone()))
    .bind(collect_column(&files, |(.., file)| file.file_name.clone()))
    .bind(collect_column(&files, |(.., file)| file.sha256.map(hex::encode)))
    .bind(collect_column(&files, |(new, ..)| new.message.at))
    .execute(conn)
    .await?;
    Ok(())
}

/// Applies a change of a message by its author. A revoked message loses its content, and its file is not fetched or kept
/// any more. A revoked message is not changed again. False: the message is not stored.
pub(super) async fn change_message(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    change: &MessageChange,
    now: OffsetDateTime,
) -> DbResult<bool> {
    let since = now.saturating_sub(CHANGED_FOR);
    let statement = match change.revoked_at {
        Some(_) => {
            "WITH found AS (SELECT id, created_at FROM messages
               WHERE account_id = $1 AND wa_message_id = $2 AND direction = $3 AND created_at >= $4),
             revoked AS (
               UPDATE messages m SET deleted_at = $5, text = NULL, caption = NULL, interactive = NULL,
                 media_ids = NULL, payload = '{}'
               FROM found f WHERE m.account_id = $1 AND m.id = f.id AND m.created_at = f.created_at
                 AND m.deleted_at IS NULL AND $6::text IS NULL RETURNING m.id),
             forgotten AS (
               UPDATE message_media f SET message_id = NULL, expires_at = now(), due_at = NULL,
                 state = CASE WHEN f.state = 'pending' THEN 'expired' ELSE f.state END
               FROM revoked r WHERE f.account_id = $1 AND f.message_id = r.id)
             SELECT EXISTS (SELECT FROM found) AS yes"
        }
        None => {
            "WITH found AS (SELECT id, created_at FROM messages
               WHERE account_id = $1 AND wa_message_id = $2 AND direction = $3 AND created_at >= $4),
             edited AS (
               UPDATE messages m SET text = $6, caption = CASE WHEN m.caption IS NULL THEN NULL ELSE $6 END
               FROM found f WHERE m.account_id = $1 AND m.id = f.id AND m.created_at = f.created_at
                 AND m.deleted_at IS NULL AND $5::timestamptz IS NULL)
             SELECT EXISTS (SELECT FROM found) AS yes"
        }
    };
    let found: FlagRow = sql(statement)
        .bind(account)
        .bind(change.wa_message_id.as_str())
        .bind(change.direction.as_str())
        .bind(since)
        .bind(change.revoked_at)
        .bind(change.text.as_deref())
        .get_result(conn)
        .await?;
    Ok(found.yes)
}
