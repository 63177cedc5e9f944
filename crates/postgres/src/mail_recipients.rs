//! The limits on mail to one address, by a keyed hash of the address.

use diesel::prelude::{ExpressionMethods, QueryableByName};
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::mail::{ACCOUNT_INTERVAL, DAY, OutgoingMail, RecipientHash, may_be_mailed};
use recado_domain::shared::AccountId;

use crate::errors::DbResult;
use crate::mail;
use crate::schema::mail_recipients;
use crate::sql::sql;

/// How many expired rows a mail deletes: more than it inserts, so that the table does not grow.
const EXPIRED_BATCH: i64 = 100;

#[derive(QueryableByName)]
struct MailCounts {
    #[diesel(sql_type = BigInt)]
    from_account: i64,
    #[diesel(sql_type = BigInt)]
    from_all: i64,
}

/// Enqueues a mail in the caller's transaction, unless the address may not be mailed now. Returns whether it did.
pub(crate) async fn append_limited(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    recipient: &RecipientHash,
    mail: &OutgoingMail,
) -> DbResult<bool> {
    lock(conn, recipient).await?;
    let counts: MailCounts = sql(
        "SELECT count(*) FILTER (WHERE account_id = $2 AND mailed_at > now() - $3 * interval '1 microsecond')
             AS from_account,
           count(*) AS from_all
         FROM mail_recipients WHERE address_hash = $1 AND mailed_at > now() - $4 * interval '1 microsecond'",
    )
    .bind(recipient.0.as_slice())
    .bind(account)
    .bind(ACCOUNT_INTERVAL)
    .bind(DAY)
    .get_result(&mut *conn)
    .await?;
    if !may_be_mailed(counts.from_account, counts.from_all) {
        return Ok(false);
    }
    diesel::insert_into(mail_recipients::table)
        .values((
            mail_recipients::address_hash.eq(&recipient.0),
            mail_recipients::mail_id.eq(mail.id.0),
            mail_recipients::account_id.eq(account.0),
        ))
        .execute(&mut *conn)
        .await?;
    delete_expired(conn).await?;
    mail::append(conn, account, mail).await?;
    Ok(true)
}

/// Serializes mails to one address, so that concurrent invites of several accounts see each other's mails.
async fn lock(conn: &mut AsyncPgConnection, recipient: &RecipientHash) -> DbResult<()> {
    sql("SELECT pg_advisory_xact_lock(hashtextextended('recado mail ' || encode($1, 'hex'), 0))")
        .bind(recipient.0.as_slice())
        .execute(conn)
        .await?;
    Ok(())
}

async fn delete_expired(conn: &mut AsyncPgConnection) -> DbResult<()> {
    sql(
        "WITH old AS MATERIALIZED (SELECT address_hash, mail_id FROM mail_recipients
           WHERE mailed_at <= now() - $1 * interval '1 microsecond'
           ORDER BY mailed_at LIMIT $2 FOR UPDATE SKIP LOCKED)
         DELETE FROM mail_recipients WHERE (address_hash, mail_id) IN (SELECT address_hash, mail_id FROM old)",
    )
    .bind(DAY)
    .bind(EXPIRED_BATCH)
    .execute(conn)
    .await?;
    Ok(())
}
