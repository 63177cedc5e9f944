//! Members and invites. Both need the people behind them (`users`), whom no tenant's role may read, so that they run on
//! the platform's connections and name the account in every statement.

mod invites;
mod members;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;

pub use invites::PgInvites;
pub(crate) use invites::{insert as insert_invite, insert_first_owner};
pub(crate) use members::MemberRow;
pub use members::PgMembers;

use crate::errors::DbResult;
use crate::sql::sql;

/// Makes changes of one account's team wait for each other. Taken before anything is read that a change depends on:
/// what others committed meanwhile is then seen. Rows that only refer to the account do not wait.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<()> {
    sql("SELECT FROM accounts WHERE id = $1 FOR NO KEY UPDATE")
        .bind(account)
        .execute(conn)
        .await?;
    Ok(())
}
