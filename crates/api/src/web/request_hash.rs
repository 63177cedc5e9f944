//! The hash by which a repeated request is recognized: an HMAC, so that an attacker cannot guess the content of a body
//! (a card number) from the stored hash.
//!
//! Every stored response has its own random key, sealed together with the response. So the hash needs no secret of the
//! server, and outlives the rotation of `APP_SECRET`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_domain::shared::Secrets;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use crate::app_secret::AppSecret;
use crate::crypto::{HmacContext, hmac_key};

/// Derived the key of earlier versions from `APP_SECRET`.
const UNVERSIONED_PURPOSE: &[u8; 32] = b"idempotency: what a request asks";

const RANDOM_BYTES: usize = 32;

/// The field of a stored response that holds its key.
pub const KEY_FIELD: &str = "request_key";

/// The key of a request's hash: base64url, as a stored response holds it.
#[derive(Clone, Debug)]
pub struct RequestKey(SecretString);

impl RequestKey {
    pub fn random(secrets: &dyn Secrets) -> Self {
        Self(secrets.token(RANDOM_BYTES))
    }

    pub fn from_stored(text: &str) -> Self {
        Self(SecretString::from(text))
    }

    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Begins the hash of a request; its body follows.
    pub fn begin(&self, method: &impl fmt::Display, path: &str) -> HmacContext {
        let key = URL_SAFE_NO_PAD.decode(self.expose()).unwrap_or_default();
        let mut hash = HmacContext::with_key(&hmac_key(&key));
        hash.update(format!("{method} {path}\n").as_bytes());
        hash
    }
}

/// The key under which earlier versions hashed every request.
pub fn unversioned_key(secret: &AppSecret) -> RequestKey {
    let key = [secret.expose().as_slice(), UNVERSIONED_PURPOSE].concat();
    RequestKey(SecretString::from(URL_SAFE_NO_PAD.encode(key)))
}

/// Adds the key to a stored response that has none. None: the text is not a stored response.
pub fn with_key(response: &SecretString, key: &RequestKey) -> Option<SecretString> {
    let mut fields: Map<String, Value> = serde_json::from_str(response.expose_secret()).ok()?;
    fields.entry(KEY_FIELD).or_insert_with(|| key.expose().into());
    serde_json::to_string(&fields).ok().map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: &RequestKey, path: &str) -> Vec<u8> {
        key.begin(&"POST", path).sign().as_ref().to_vec()
    }

    #[test]
    fn request_hash_depends_on_key_method_and_path() {
        let (key, other) = (unversioned_key(&[1; 32].into()), unversioned_key(&[2; 32].into()));
        assert_eq!(hash(&key, "/a"), hash(&RequestKey::from_stored(key.expose()), "/a"));
        assert_ne!(hash(&key, "/a"), hash(&key, "/b"));
        assert_ne!(hash(&key, "/a"), hash(&other, "/a"));
        assert_ne!(hash(&key, "/a"), key.begin(&"GET", "/a").sign().as_ref());
    }

    /// The hash that earlier versions stored: HMAC-SHA256 under the secret followed by the purpose.
    #[test]
    fn unversioned_hash_never_changes() {
        let stored = "6e1c17f13a18e845ca549b524d66ebad83e293f4927aa95c11a29ee2a1db3ccc";
        let hash = hash(&unversioned_key(&[b'k'; 32].into()), "/api/contacts");
        assert_eq!(hex::encode(hash), stored);
    }

    #[test]
    fn stored_response_gets_a_key_once() {
        let response = SecretString::from(r#"{"status":201,"headers":[],"body":"b"}"#);
        let (first, second) = (unversioned_key(&[1; 32].into()), unversioned_key(&[2; 32].into()));
        let extended = with_key(&response, &first).unwrap();
        let fields: Value = serde_json::from_str(extended.expose_secret()).unwrap();
        assert_eq!(
            (&fields[KEY_FIELD], &fields["body"]),
            (&first.expose().into(), &"b".into())
        );
        let unchanged = with_key(&extended, &second).unwrap();
        assert_eq!(unchanged.expose_secret(), extended.expose_secret());
        assert!(with_key(&SecretString::from("[]"), &first).is_none());
        assert!(!format!("{first:?}").contains(first.expose()));
    }
}
