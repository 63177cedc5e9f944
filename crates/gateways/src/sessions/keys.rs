//! Keys that the provider publishes (JSON Web Key Set, RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// A public key and the only algorithm that it is used with.
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Result of a key lookup for a token.
pub(super) enum KeyMatch<'a> {
    Key(&'a DecodingKey, Algorithm),
    /// No matching key: a newer key set may have it.
    Unknown,
    /// A newer key set would not help: the named key is for another algorithm, or the token names no key and several
    /// match.
    Never,
}

/// Parses a key set. Skips keys that are not usable here: encryption, another type or curve, symmetric.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Key>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(body)?;
    Ok(set.keys.into_iter().filter_map(parse_key).collect())
}

fn parse_key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    let common = &jwk.common;
    let is_for_verifying = common
        .key_algorithm
        .is_none_or(|declared| declared == KeyAlgorithm::from(algorithm))
        && common
            .public_key_use
            .as_ref()
            .is_none_or(|key_use| *key_use == PublicKeyUse::Signature)
        && common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    is_for_verifying.then_some(Key {
        id: jwk.common.key_id,
        algorithm,
        key,
    })
}

/// Finds the key for a token with this `kid` and `alg`. `alg` only selects among keys. It never decides how a key is
/// used, which would allow algorithm confusion.
pub(super) fn find_key<'a>(keys: &'a [Key], id: Option<&str>, algorithm: Algorithm) -> KeyMatch<'a> {
    let mut candidates = keys.iter().filter(|key| key.algorithm == algorithm);
    let Some(id) = id else {
        return match (candidates.next(), candidates.next()) {
            (Some(key), None) => KeyMatch::Key(&key.key, key.algorithm),
            (Some(_), Some(_)) => KeyMatch::Never,
            (None, _) => KeyMatch::Unknown,
        };
    };
    match candidates.find(|key| key.id.as_deref() == Some(id)) {
        Some(key) => KeyMatch::Key(&key.key, key.algorithm),
        None if keys.iter().any(|key| key.id.as_deref() == Some(id)) => KeyMatch::Never,
        None => KeyMatch::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rsa(fields: &Value) -> Value {
        // Any number works, since these tests verify no signature.
        let mut key = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        for (name, value) in fields.as_object().unwrap() {
            key[name] = value.clone();
        }
        key
    }

    fn set(keys: &[Value]) -> Vec<Key> {
        parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn key_set_skips_unusable_keys() {
        let keys = set(&[
            rsa(&json!({ "kid": "encryption", "use": "enc" })),
            rsa(&json!({ "kid": "signing only", "key_ops": ["sign"] })),
            rsa(&json!({ "kid": "other algorithm", "alg": "RS512" })),
            json!({ "kid": "symmetric", "kty": "oct", "k": "c2VjcmV0" }),
            json!({ "kid": "curve", "kty": "EC", "crv": "P-384", "x": "AQAB", "y": "AQAB" }),
            json!({ "kid": "unknown curve", "kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB" }),
            json!({ "kid": "no base64", "kty": "RSA", "n": "?", "e": "AQAB" }),
            json!("nonsense"),
            rsa(&json!({ "kid": "good", "use": "sig", "alg": "RS256", "key_ops": ["verify"] })),
        ]);
        assert_eq!(
            keys.iter().map(|key| key.id.as_deref()).collect::<Vec<_>>(),
            [Some("good")]
        );
        assert!(set(&[]).is_empty());
        for unreadable in ["", "[]", "{}", "{\"keys\":{}}"] {
            assert!(parse(unreadable.as_bytes()).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn token_matches_its_named_key_or_the_only_key() {
        let single = set(&[rsa(&json!({ "kid": "a" }))]);
        assert!(matches!(
            find_key(&single, Some("a"), Algorithm::RS256),
            KeyMatch::Key(_, Algorithm::RS256)
        ));
        assert!(matches!(
            find_key(&single, None, Algorithm::RS256),
            KeyMatch::Key(_, Algorithm::RS256)
        ));
        assert!(matches!(
            find_key(&single, Some("b"), Algorithm::RS256),
            KeyMatch::Unknown
        ));
        assert!(matches!(
            find_key(&single, Some("a"), Algorithm::ES256),
            KeyMatch::Never
        ));
        assert!(matches!(find_key(&single, None, Algorithm::ES256), KeyMatch::Unknown));
        let two = set(&[rsa(&json!({ "kid": "a" })), rsa(&json!({}))]);
        assert!(matches!(find_key(&two, None, Algorithm::RS256), KeyMatch::Never));
    }
}
