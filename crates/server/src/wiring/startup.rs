//! Services that are created once at startup, so that a configuration error fails there.

use std::sync::Arc;

use recado_domain::accounts::SessionVerifier;
use recado_domain::mail::Mailer;
use recado_domain::shared::Clock;
use recado_gateways::http::Http;
use recado_gateways::mail::{SmtpConfigError, SmtpMailer};
use recado_gateways::sessions::{Expected, Hs256Verifier, JwksVerifier};

use crate::config::{Config, SessionVerification};

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
pub(super) fn verifier(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<dyn SessionVerifier>> {
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
            let http = Http::new().map_err(anyhow::Error::msg)?;
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
