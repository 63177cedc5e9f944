//! Proving sessions: JSON Web Tokens of an OpenID-like identity provider (RFC 7519, 8725), checked here by one shared
//! secret or by the provider's published keys. The algorithm is fixed by configuration and by the key, never by the
//! token; keys that a token brings along (`jku`, `x5u`, `jwk`) are not looked at.

mod claims;
mod hs256;
mod jwks;
mod keys;

use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use recado_domain::accounts::{Session, SessionError};
use time::OffsetDateTime;

pub use claims::Expected;
pub use hs256::Hs256Verifier;
pub use jwks::JwksVerifier;

use claims::Claims;

/// Longest accepted token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

fn parse_header(token: &str) -> Result<Header, SessionError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(SessionError::Invalid);
    }
    let header = decode_header(token).map_err(|_| SessionError::Invalid)?;
    // `crit` lists what a verifier must understand; nothing of that kind is understood here (RFC 7515, 4.1.11).
    match header.crit {
        None => Ok(header),
        Some(_) => Err(SessionError::Invalid),
    }
}

/// Verifies the signature with the key and its only algorithm, then all claims.
fn verify_token(
    token: &str,
    (key, algorithm): (&DecodingKey, Algorithm),
    expected: &Expected,
    now: OffsetDateTime,
) -> Result<Session, SessionError> {
    let mut signature_only = Validation::new(algorithm);
    signature_only.required_spec_claims.clear();
    signature_only.validate_exp = false;
    signature_only.validate_aud = false;
    let token = decode::<Claims>(token, key, &signature_only).map_err(|_| SessionError::Invalid)?;
    token.claims.into_session(expected, now).ok_or(SessionError::Invalid)
}
