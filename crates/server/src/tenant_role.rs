//! Checks the role of `TENANT_DATABASE_URL` before anything is served.

use recado_postgres::{TenantRoleError, check_tenant_role};

use crate::config::Config;

/// Refuses a role that row-level security does not bind. An unreachable database does not stop the start: every new
/// connection of a tenant pool repeats the check.
pub(crate) async fn check(config: &Config) -> anyhow::Result<()> {
    let Some(url) = &config.tenant_database_url else {
        return Ok(());
    };
    match check_tenant_role(url, &config.tls.database).await {
        Ok(()) => Ok(()),
        Err(error @ TenantRoleError::Connect(_)) => {
            let error = anyhow::Error::new(error);
            tracing::warn!(
                cause = format!("{error:#}"),
                "the role of TENANT_DATABASE_URL cannot be checked yet; if it is missing, run recado migrate"
            );
            Ok(())
        }
        Err(error) => Err(anyhow::Error::new(error)
            .context("configuration: TENANT_DATABASE_URL: name a role that owns nothing, for example recado_tenant")),
    }
}
