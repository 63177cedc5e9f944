//! Verifies tokens that are signed with one shared secret.

use std::sync::Arc;

use async_trait::async_trait;
use jsonwebtoken::{Algorithm, DecodingKey};
use recado_domain::accounts::{Session, SessionError, SessionVerifier};
use recado_domain::shared::Clock;
use secrecy::{ExposeSecret, SecretString};

use super::Expected;

/// Shortest accepted secret, in bytes (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;

/// Session verifier that accepts only HS256.
pub struct Hs256Verifier {
    key: DecodingKey,
    expected: Expected,
    clock: Arc<dyn Clock>,
}

impl Hs256Verifier {
    /// The secret's bytes are used undecoded. Fails if it is shorter than `MIN_SECRET_BYTES`.
    pub fn new(secret: &SecretString, expected: Expected, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let secret = secret.expose_secret().as_bytes();
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "the session secret has {} bytes; at least {MIN_SECRET_BYTES} are required",
                secret.len()
            ));
        }
        Ok(Self {
            key: DecodingKey::from_secret(secret),
            expected,
            clock,
        })
    }
}

#[async_trait]
impl SessionVerifier for Hs256Verifier {
    async fn verify(&self, token: &str) -> Result<Session, SessionError> {
        super::parse_header(token)?;
        super::verify_token(token, (&self.key, Algorithm::HS256), &self.expected, self.clock.now())
    }
}
