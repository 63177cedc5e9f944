//! Services that are created once at startup, so that a configuration error fails there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use recado_domain::accounts::SessionVerifier;
use recado_domain::mail::Mailer;
use recado_domain::shared::{Clock, StoreError};
use recado_gateways::http::Http;
use recado_gateways::mail::{SmtpConfigError, SmtpMailer};
use recado_gateways::sessions::{Expected, Hs256Verifier, JwksVerifier};
use recado_postgres::{OwnerPool, PoolConfig, PoolRegistry};
use tokio::runtime::Handle;

use crate::config::{Config, SessionVerification};
use recado_api::readiness::Readiness;

/// Checks `SMTP_URL` and `MAIL_FROM` at startup instead of at the first mail.
pub(super) fn mailer(config: &Config) -> anyhow::Result<Option<Arc<dyn Mailer>>> {
    let Some(url) = &config.smtp_url else { return Ok(None) };
    let mailer = SmtpMailer::new(url, &config.mail_from).map_err(|error| match error {
        SmtpConfigError::From => anyhow::anyhow!("configuration: MAIL_FROM {error}"),
        SmtpConfigError::Url | SmtpConfigError::PlaintextPassword | SmtpConfigError::Tls => {
            anyhow::anyhow!("configuration: SMTP_URL {error}")
        }
    })?;
    Ok(Some(Arc::new(mailer)))
}

/// Checks the session configuration at startup instead of in every thread.
pub(super) fn verifier(config: &Config, http: Http, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<dyn SessionVerifier>> {
    let expected = Expected {
        issuer: config.session_issuer.clone(),
        audience: config.session_audience.clone(),
        max_age: config.identity.session_max_age,
    };
    match &config.session_verification {
        SessionVerification::Secret(secret) => {
            let verifier = Hs256Verifier::new(secret, expected, clock);
            Ok(Arc::new(verifier.map_err(|error| {
                anyhow::anyhow!("configuration: SESSION_JWT_SECRET: {error}")
            })?))
        }
        SessionVerification::Jwks(url) => {
            warn_about_unchecked_claims(&expected);
            let verifier = JwksVerifier::new(http.counted("identity"), url, expected, clock);
            Ok(Arc::new(verifier.map_err(|error| {
                anyhow::anyhow!("configuration: SESSION_JWKS_URL: {error}")
            })?))
        }
    }
}

/// A provider signs the tokens of all its applications with the same keys (RFC 8725, 3.8 and 3.9).
fn warn_about_unchecked_claims(expected: &Expected) {
    for (variable, is_unset) in [
        ("SESSION_JWT_ISSUER", expected.issuer.is_none()),
        ("SESSION_JWT_AUDIENCE", expected.audience.is_none()),
    ] {
        if is_unset {
            tracing::warn!(
                "{variable} is not set: tokens that the identity provider issues for other applications are \
                 accepted as sessions"
            );
        }
    }
}

/// The lock timeout of requests. With the default `DATABASE_WAIT_TIMEOUT`, a caller gets 503 within two seconds. The
/// timeout is longer than PostgreSQL's `deadlock_timeout` of one second.
const REQUEST_LOCK_TIMEOUT: Duration = Duration::from_millis(1150);

/// Sets the short timeouts of a request pool, so that callers get their 503 soon.
pub(super) fn with_request_timeouts(config: &Config, pool: PoolConfig) -> PoolConfig {
    let wait_timeout = config.database_wait_timeout.unsigned_abs();
    PoolConfig {
        wait_timeout,
        connect_timeout: wait_timeout,
        lock_timeout: REQUEST_LOCK_TIMEOUT,
        ..pool
    }
}

/// The readiness check has its own connection, so that busy request pools do not make the server look unready.
pub(super) fn readiness(config: &Config, pool_registry: &PoolRegistry) -> anyhow::Result<Readiness> {
    let pool = PoolConfig::new(config.database_url.clone(), 1).tls(config.tls.database.clone());
    let pool = pool.counted(pool_registry, "readiness");
    let pool =
        OwnerPool::new(&with_request_timeouts(config, pool)).context("DATABASE_URL is not a valid PostgreSQL URL")?;
    let runtime = Handle::current();
    Ok(Readiness::new(Box::new(move || {
        let pool = pool.clone();
        // The pool belongs to this runtime.
        let query = runtime.spawn(async move { recado_postgres::pending(&pool).await });
        Box::pin(async move { query.await.map_err(|error| StoreError::Failed(Box::new(error)))? })
    })))
}
