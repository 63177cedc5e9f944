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

/// The longest token looked at, in bytes.
const LONGEST: usize = 16 * 1024;

/// The header of a token that may be worth a look.
fn header(token: &str) -> Result<Header, SessionError> {
    if token.len() > LONGEST {
        return Err(SessionError::Invalid);
    }
    let header = decode_header(token).map_err(|_| SessionError::Invalid)?;
    // `crit` lists what a verifier must understand; nothing of that kind is understood here (RFC 7515, 4.1.11).
    match header.crit {
        None => Ok(header),
        Some(_) => Err(SessionError::Invalid),
    }
}

/// Checks the signature with a key and its one algorithm, then every claim.
fn session(
    token: &str,
    (key, algorithm): (&DecodingKey, Algorithm),
    expected: &Expected,
    now: OffsetDateTime,
) -> Result<Session, SessionError> {
    let mut signature_alone = Validation::new(algorithm);
    signature_alone.required_spec_claims.clear();
    signature_alone.validate_exp = false;
    signature_alone.validate_aud = false;
    let token = decode::<Claims>(token, key, &signature_alone).map_err(|_| SessionError::Invalid)?;
    token.claims.session(expected, now).ok_or(SessionError::Invalid)
}
