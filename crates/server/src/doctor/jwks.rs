//! Can session tokens be verified?

use std::sync::Arc;

use recado_gateways::http::Http;
use recado_gateways::sessions::{Expected, JwksVerifier};

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;
use crate::config::{Config, SessionVerification};
use recado_api::system::SystemClock;

const NAME: &str = "jwks";

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["SESSION_JWT_SECRET", "SESSION_JWKS_URL"])?;
    let SessionVerification::Jwks(url) = &config.session_verification else {
        let found = "SESSION_JWT_SECRET verifies session tokens, without a key set";
        return Ok(vec![Diagnosis::ok(NAME, found)]);
    };
    let mut checks = unset_claims(config);
    checks.push(match fetch(url).await {
        Ok(0) => Diagnosis::fail(
            NAME,
            "the key set has no key that can verify a token",
            "check SESSION_JWKS_URL: the keys must be for RS256, ES256 or EdDSA",
        ),
        Ok(count) => Diagnosis::ok(NAME, format!("the key set has {count} usable keys")),
        Err(error) => Diagnosis::fail(
            NAME,
            format!("the key set cannot be fetched: {error}"),
            "check SESSION_JWKS_URL and the network to the identity provider",
        ),
    });
    Ok(checks)
}

/// Without them, a token of the same provider for another application is a session here.
fn unset_claims(config: &Config) -> Vec<Diagnosis> {
    let claims = [
        ("SESSION_JWT_ISSUER", "issuer", &config.session_issuer),
        ("SESSION_JWT_AUDIENCE", "audience", &config.session_audience),
    ];
    let unset = claims.into_iter().filter(|(_, _, value)| value.is_none());
    unset
        .map(|(variable, claim, _)| {
            Diagnosis::fail(
                NAME,
                format!("{variable} is not set: tokens with any {claim} are accepted"),
                format!("set {variable} to the {claim} that the identity provider writes for this application"),
            )
        })
        .collect()
}

async fn fetch(url: &str) -> Result<usize, String> {
    let verifier = JwksVerifier::new(Http::new()?, url, Expected::default(), Arc::new(SystemClock))?;
    verifier.fetch_key_count().await
}
