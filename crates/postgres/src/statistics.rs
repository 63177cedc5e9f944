//! What the planner knows of the tables. PostgreSQL looks once a minute whether a table has changed so much that it
//! should look at it anew. After the first large import that is too late: planned without knowing of it, looking up one
//! row goes through all of an account's.

use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::shared::StoreError;

use crate::errors::Attempt;
use crate::pool::PlatformPool;
use crate::sql::{Word, sql};
use crate::transactions::on_platform;

/// The table of which the planner knows least: more than a thousand rows changed, and more than it knew of.
const STRANGEST: &str = "SELECT format('%I.%I', t.schemaname, t.relname) AS word
     FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid
     WHERE t.n_mod_since_analyze > 1000 AND t.n_mod_since_analyze > c.reltuples
     ORDER BY t.n_mod_since_analyze DESC LIMIT 1";

/// The planner's knowledge.
#[derive(Clone, Debug)]
pub struct PgStatistics(PlatformPool);

impl PgStatistics {
    pub fn new(pool: PlatformPool) -> Self {
        Self(pool)
    }

    /// Looks at the table that the planner knows least of. False: it knows enough of all.
    pub async fn refresh(&self) -> Result<bool, StoreError> {
        on_platform!(self.0, |conn| refresh(conn))
    }
}

async fn refresh(conn: &mut AsyncPgConnection) -> Attempt<bool> {
    let Some(table) = sql(STRANGEST).get_result::<Word>(conn).await.optional()? else {
        return Ok(false);
    };
    conn.batch_execute(&format!("ANALYZE {}", table.word)).await?;
    Ok(true)
}
