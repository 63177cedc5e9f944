//! The search index of contacts: `recado migrate` builds it where it can, and a start logs whether there is one.

use recado_postgres::{DatabaseTls, OwnerPool, has_contact_search, prepare_contact_search};
use secrecy::SecretString;

/// Builds the index unless it exists. It is optional, so a failure is only logged.
pub async fn prepare(url: &SecretString, tls: &DatabaseTls) {
    match prepare_contact_search(url, tls).await {
        Ok(true) => tracing::info!("contacts have a search index"),
        // The reason is logged.
        Ok(false) => {}
        Err(error) => {
            let error = anyhow::Error::new(error);
            tracing::warn!(cause = format!("{error:#}"), "contacts have no search index");
        }
    }
}

/// Logs how this process searches contacts.
pub(crate) async fn log_mode(pool: &OwnerPool) {
    match has_contact_search(pool).await {
        Ok(true) => tracing::info!(mode = "index", "contacts are searched by trigrams"),
        Ok(false) => tracing::info!(
            mode = "scan",
            "contacts are searched without an index, a page reads a bounded number of them; if the server has pg_trgm \
             and btree_gin, run recado migrate"
        ),
        Err(error) => tracing::warn!(%error, "the search index of contacts cannot be looked for yet"),
    }
}
