//! Session tokens for development: as the identity provider would issue them, signed with the server's own secret.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::secrets::base64url;

/// Derives the user's id from the hash of the address (UUID version 8): the same address is always the same user.
pub fn user_id(email: &str) -> String {
    let digest = Sha256::digest(email.to_lowercase().as_bytes());
    let bytes = digest.first_chunk().copied().unwrap_or_default();
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// An HS256 JSON Web Token.
pub fn sign(secret: &str, user: &str, email: &str, name: Option<&str>, hours: u64) -> Result<String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?
        .as_secs();
    let mut claims = json!({ "sub": user, "email": email, "iat": now, "exp": now + hours * 3600 });
    if let (Some(name), Some(claims)) = (name, claims.as_object_mut()) {
        claims.insert("name".to_owned(), name.into());
    }
    let head = base64url(json!({ "alg": "HS256", "typ": "JWT" }).to_string().as_bytes());
    let signed = format!("{head}.{}", base64url(claims.to_string().as_bytes()));
    Ok(format!(
        "{signed}.{}",
        base64url(&hmac_sha256(secret.as_bytes(), signed.as_bytes())?)
    ))
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Result<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).context("cannot use SESSION_JWT_SECRET")?;
    mac.update(message);
    Ok(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_are_stable_uuids_of_version_8() {
        let id = user_id("Demo@recado.example");
        assert_eq!(id, user_id("demo@recado.example"));
        assert_ne!(id, user_id("other@recado.example"));
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(parts[2].starts_with('8'));
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']));
    }

    #[test]
    fn token_signature_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let mac = hmac_sha256(b"Jefe", b"what do ya want for nothing?").unwrap();
        assert_eq!(
            hex::encode(mac),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn token_has_three_parts_and_the_claims() {
        use base64::Engine;
        let token = sign("secret", "u", "e@x", Some("Eva"), 2).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(parts[1])
            .unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["sub"], "u");
        assert_eq!(claims["email"], "e@x");
        assert_eq!(claims["name"], "Eva");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 7200);
    }
}
