//! Keyed hashes of the addresses that were sent mail, so that the database holds no address in clear text.

use recado_domain::mail::{RecipientHash, RecipientHasher};
use secrecy::ExposeSecret as _;

use recado_api::app_secret::AppSecret;
use recado_api::crypto::{HmacKey, hmac, hmac_key};

/// The purpose of the derived key.
const PURPOSE: &str = "mail recipient";

/// HMAC-SHA256 under a key derived from `APP_SECRET`. After a change of the secret, addresses count anew.
pub struct AppRecipientHasher(HmacKey);

impl AppRecipientHasher {
    pub fn new(secret: &AppSecret) -> anyhow::Result<Self> {
        let key = secret.derive_key(PURPOSE)?;
        Ok(Self(hmac_key(key.expose_secret())))
    }
}

impl RecipientHasher for AppRecipientHasher {
    fn hash(&self, address: &str) -> RecipientHash {
        let address = address.trim().to_lowercase();
        RecipientHash(hmac(&self.0, address.as_bytes()).as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipient_hash_ignores_case_and_depends_on_the_secret() {
        let hasher = AppRecipientHasher::new(&AppSecret::from([7; 32])).unwrap();
        let hash = hasher.hash("Bia@Example.com");
        assert_eq!(hash, hasher.hash(" bia@example.COM "));
        assert_ne!(hash, hasher.hash("bia@example.co"));
        assert_ne!(
            hash,
            AppRecipientHasher::new(&AppSecret::from([8; 32]))
                .unwrap()
                .hash("bia@example.com")
        );
        assert_eq!(hash.0.len(), 32);
    }
}
