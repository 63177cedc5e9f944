//! The search index of contacts: trigrams of name, phone number and e-mail address per account. It needs the extensions
//! `pg_trgm` and `btree_gin`, which not every server has, so it is no part of the schema: `recado migrate` builds it
//! where it can. Without it a search reads a bounded number of contacts for each page.

use std::sync::Arc;

use diesel::ConnectionError;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::shared::StoreError;
use secrecy::SecretString;
use thiserror::Error;
use tokio::sync::OnceCell;

use super::list::SEARCHED_TEXT;
use crate::migrate::{self, BoxError, LockRetryPolicy};
use crate::pool::OwnerPool;
use crate::sql::{FlagRow, TextRow, sql};
use crate::sqlstate::{self, bad_connection};
use crate::tenant_role::text;
use crate::tls::{DatabaseTls, parse_url};

/// Whether a valid index exists.
const HAS_INDEX: &str = "SELECT EXISTS (SELECT 1 FROM pg_index i
     WHERE i.indexrelid = to_regclass('public.contacts_search_idx') AND i.indisvalid) AS yes";

/// The extensions that the index needs and the server does not have, separated by commas.
const UNAVAILABLE: &str =
    "SELECT coalesce(string_agg(e.name, ', '), '') AS text FROM unnest('{pg_trgm,btree_gin}'::text[]) AS e (name)
     WHERE NOT EXISTS (SELECT 1 FROM pg_available_extensions a WHERE a.name = e.name)";

/// The schema-qualified operator class: the extension may be in a schema outside of the search path.
const OPERATOR_CLASS: &str = "SELECT format('%I.gin_trgm_ops', n.nspname) AS text
     FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm'";

#[derive(Debug, Error)]
pub enum SearchIndexError {
    #[error("the database cannot be reached")]
    Connect(#[source] ConnectionError),
    #[error("the search index of contacts cannot be built")]
    Build(#[source] BoxError),
}

/// Builds the search index unless it exists, while servers run. Returns false if the server lacks an extension, or if
/// the owner may not install it.
pub async fn prepare_contact_search(url: &SecretString, tls: &DatabaseTls) -> Result<bool, SearchIndexError> {
    let config = parse_url(url).map_err(|error| SearchIndexError::Connect(bad_connection(error)))?;
    let mut conn = sqlstate::connect(&config, tls)
        .await
        .map_err(SearchIndexError::Connect)?;
    let unavailable = text(&mut conn, UNAVAILABLE.to_owned()).await;
    let unavailable = unavailable.map_err(SearchIndexError::Connect)?;
    if !unavailable.is_empty() {
        tracing::info!(
            extensions = unavailable,
            "contacts have no search index, the server lacks extensions"
        );
        return Ok(false);
    }
    let install = "CREATE EXTENSION IF NOT EXISTS pg_trgm; CREATE EXTENSION IF NOT EXISTS btree_gin";
    if let Err(error) = conn.batch_execute(install).await {
        tracing::warn!(%error, "contacts have no search index, the owner may not install pg_trgm and btree_gin");
        return Ok(false);
    }
    build(&mut conn).await.map_err(SearchIndexError::Build)?;
    Ok(true)
}

/// Holds the lock of migrations, so that no other process builds the index or drops a broken one meanwhile.
async fn build(conn: &mut AsyncPgConnection) -> Result<(), BoxError> {
    migrate::lock(conn, LockRetryPolicy::default()).await?;
    conn.batch_execute("SET lock_timeout = 0; SET statement_timeout = 0")
        .await?;
    if sql(HAS_INDEX).get_result::<FlagRow>(conn).await?.yes {
        return Ok(());
    }
    let class: TextRow = sql(OPERATOR_CLASS).get_result(conn).await?;
    for statement in [
        "DROP INDEX CONCURRENTLY IF EXISTS contacts_search_idx".to_owned(),
        // Reads also scan the list of pending entries, so it is short.
        format!(
            "CREATE INDEX CONCURRENTLY contacts_search_idx ON contacts
               USING gin ((account_id::text), {SEARCHED_TEXT} {class})
               WITH (gin_pending_list_limit = 512) WHERE deleted_at IS NULL",
            class = class.text
        ),
    ] {
        conn.batch_execute(&statement).await?;
    }
    Ok(())
}

/// Whether contacts have the search index.
pub async fn has_contact_search(pool: &OwnerPool) -> Result<bool, StoreError> {
    Ok(pool.row::<FlagRow>(sql(HAS_INDEX)).await?.yes)
}

/// The search index as the stores use it: looked for once, with the first search.
#[derive(Clone, Debug)]
pub(super) struct SearchIndex {
    pub(super) owner: OwnerPool,
    exists: Arc<OnceCell<bool>>,
}

impl SearchIndex {
    pub(super) fn new(owner: OwnerPool) -> Self {
        Self {
            owner,
            exists: Arc::default(),
        }
    }

    pub(super) async fn exists(&self) -> Result<bool, StoreError> {
        self.exists
            .get_or_try_init(|| has_contact_search(&self.owner))
            .await
            .copied()
    }
}
