//! `SessionVerifier`: verifies JSON Web Tokens of an OpenID-like identity provider (RFC 7519, 8725) with one shared
//! secret or the provider's published keys. The configuration and the key fix the algorithm, never the token. Keys in a
//! token's header (`jku`, `x5u`, `jwk`) are ignored.

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

/// The types of tokens that are accepted as sessions, in any case (RFC 7519, 5.1; RFC 9068, 2.1).
const TOKEN_TYPES: [&str; 2] = ["JWT", "at+jwt"];

/// Longest accepted token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

fn parse_header(token: &str) -> Result<Header, SessionError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(SessionError::Invalid);
    }
    let header = decode_header(token).map_err(|_| SessionError::Invalid)?;
    // `crit` lists extensions that a verifier must support (RFC 7515, 4.1.11). None is supported here.
    let is_supported = header.crit.is_none();
    // A provider signs other tokens with the same keys, for example ID tokens and logout tokens (RFC 8725, 3.11).
    let is_session = header
        .typ
        .as_deref()
        .is_none_or(|typ| TOKEN_TYPES.iter().any(|accepted| typ.eq_ignore_ascii_case(accepted)));
    match is_supported && is_session {
        true => Ok(header),
        false => Err(SessionError::Invalid),
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
