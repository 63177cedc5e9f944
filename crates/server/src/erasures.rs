//! `recado erasures replay`: repeats the erasures that a restored database lacks.
//!
//! The command may be killed at any time and repeated. It requests the erasures; workers then remove the copies.

use std::sync::Arc;

use anyhow::Context as _;
use recado_domain::erasures::ErasureReplay;
use recado_gateways::media::ObjectMedia;
use recado_postgres::{OwnerPool, PgErasures, PoolConfig, TenantPool};

use crate::config::Config;
use crate::identifier_hash::AppIdentifierHasher;
use crate::sealing::AppCipher;
use recado_api::system::{SystemClock, SystemIds};

/// The list of erasures and the stores that know which ones are missing. None: there is no file store.
pub fn replayer(config: &Config, tenant: TenantPool, owner: OwnerPool) -> anyhow::Result<Option<ErasureReplay>> {
    let Some(url) = config.media_store_url.as_deref() else {
        return Ok(None);
    };
    let media =
        ObjectMedia::open(Some(url), std::env::vars()).map_err(|error| anyhow::anyhow!("MEDIA_STORE_URL {error}"))?;
    let hasher = Arc::new(AppIdentifierHasher::new(&config.app_secrets)?);
    let cipher = Arc::new(AppCipher::new(&config.app_secrets)?);
    let store = Arc::new(PgErasures::new(tenant, owner, hasher, cipher));
    Ok(Some(ErasureReplay {
        records: Arc::new(media),
        replays: store.clone(),
        store,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
    }))
}

/// Repeats the missing erasures, and prints their number.
pub fn replay() -> anyhow::Result<()> {
    let config = Config::read(&|name| std::env::var(name).ok())?;
    recado_gateways::tls::install(config.tls.authorities.clone());
    let pool = PoolConfig::new(config.database_url.clone(), 1)
        .tls(config.tls.database.clone())
        .tenant_login(config.tenant_database_url.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        recado_postgres::check_tls(&config.database_url, &config.tls.database).await?;
        let replay = replayer(&config, TenantPool::new(&pool)?, OwnerPool::new(&pool)?)?;
        let replay = replay.context("MEDIA_STORE_URL is not set: there is no list of erasures")?;
        let count = replay.run().await?;
        print_line(&format!("{count} erasures requested again"));
        Ok(())
    })
}

#[expect(clippy::print_stdout, reason = "the result of a command goes to its standard output")]
fn print_line(text: &str) {
    println!("{text}");
}
