//! Members and invites. Both read `users`, which the tenant role may not read. So they use the owner pool and name the
//! account in every statement.

mod invites;
mod members;

use diesel::prelude::QueryDsl;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;

pub use invites::PgInvites;
pub(crate) use invites::{FirstOwnerOutcome, insert as insert_invite, insert_first_owner};
pub(crate) use members::MemberRow;
pub use members::PgMembers;

use crate::errors::DbResult;
use crate::schema::accounts;

/// Serializes changes of an account's team. A change MUST take this lock before it reads anything on which it depends,
/// so that it sees what earlier changes committed. Inserts of rows that only refer to the account do not wait.
async fn lock_team(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<()> {
    accounts::table
        .find(account.0)
        .select(accounts::id)
        .for_no_key_update()
        .execute(conn)
        .await?;
    Ok(())
}
