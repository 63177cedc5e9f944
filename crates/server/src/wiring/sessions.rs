//! Who asks: what proves sessions, and what makes account contexts of them.

use std::sync::Arc;

use recado_domain::accounts::{Accounts, SessionVerifier};
use recado_domain::api_keys::ApiKeys;
use recado_domain::shared::Clock;
use recado_gateways::http::Http;
use recado_gateways::sessions::{Expected, Hs256Verifier, JwksVerifier};

use super::Shared;
use crate::config::{Config, SessionProof};
use crate::web::auth::Authenticator;
use crate::web::support::SupportCookies;

/// Fails early on what would otherwise fail in every thread.
pub(super) fn verifier(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<dyn SessionVerifier>> {
    let expected = Expected {
        issuer: config.session_issuer.clone(),
        audience: config.session_audience.clone(),
    };
    match &config.session_proof {
        SessionProof::Secret(secret) => {
            let verifier = Hs256Verifier::new(secret, expected, clock);
            Ok(Arc::new(verifier.map_err(|fault| {
                anyhow::anyhow!("configuration: SESSION_JWT_SECRET: {fault}")
            })?))
        }
        SessionProof::Jwks(url) => {
            let http = Http::new().map_err(anyhow::Error::msg)?;
            let verifier = JwksVerifier::new(http, url, expected, clock);
            Ok(Arc::new(verifier.map_err(|fault| {
                anyhow::anyhow!("configuration: SESSION_JWKS_URL: {fault}")
            })?))
        }
    }
}

pub(super) fn authenticator(shared: &Shared, accounts: Arc<Accounts>, api_keys: Arc<ApiKeys>) -> Authenticator {
    Authenticator {
        verifier: shared.verifier.clone(),
        accounts,
        api_keys,
        clock: shared.clock.clone(),
        memory: shared.memory.clone(),
        support: Arc::new(SupportCookies::new(
            &shared.config.app_secret,
            shared.config.cookie_secure,
        )),
        cookie: shared.config.session_cookie.clone(),
        trusted_proxies: shared.config.trusted_proxies.clone(),
    }
}
