//! Keyed hashes of phone numbers and user ids, by which the opt-outs of erased people are stored.

use recado_domain::contacts::{Identifier, IdentifierHasher};
use recado_domain::shared::AccountId;
use secrecy::ExposeSecret as _;

use recado_api::app_secret::{AppSecret, AppSecrets};
use recado_api::crypto::{HmacKey, hmac, hmac_key};

/// The purpose of the derived key.
const PURPOSE: &str = "erased identifier";

/// HMAC-SHA256 over account and identifier, under a key derived from `APP_SECRET`. Those of `APP_SECRET_PREVIOUS` are
/// found, too.
pub struct AppIdentifierHasher {
    current: HmacKey,
    previous: Vec<HmacKey>,
}

impl AppIdentifierHasher {
    pub fn new(secrets: &AppSecrets) -> anyhow::Result<Self> {
        let key = |secret: &AppSecret| Ok(hmac_key(secret.derive_key(PURPOSE)?.expose_secret()));
        Ok(Self {
            current: key(&secrets.current)?,
            previous: secrets.previous.iter().map(key).collect::<anyhow::Result<_>>()?,
        })
    }
}

fn hash_under(key: &HmacKey, account: AccountId, identifier: &Identifier) -> Vec<u8> {
    let message = [account.0.as_bytes().as_slice(), identifier.as_str().as_bytes()].concat();
    hmac(key, &message).as_ref().to_vec()
}

impl IdentifierHasher for AppIdentifierHasher {
    fn hash(&self, account: AccountId, identifier: &Identifier) -> Vec<u8> {
        hash_under(&self.current, account, identifier)
    }

    fn all_hashes(&self, account: AccountId, identifier: &Identifier) -> Vec<Vec<u8>> {
        let keys = std::iter::once(&self.current).chain(&self.previous);
        keys.map(|key| hash_under(key, account, identifier)).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn hasher(current: u8, previous: &[u8]) -> AppIdentifierHasher {
        let secret = |byte: &u8| AppSecret::from([*byte; 32]);
        let secrets = AppSecrets {
            current: secret(&current),
            previous: previous.iter().map(secret).collect(),
        };
        AppIdentifierHasher::new(&secrets).unwrap()
    }

    #[test]
    fn identifier_hash_depends_on_secret_and_account() {
        let (one, other) = (AccountId(Uuid::from_u128(1)), AccountId(Uuid::from_u128(2)));
        let phone = Identifier::phone("+5511961234567");
        let hash = hasher(7, &[]).hash(one, &phone);
        assert_eq!(hash.len(), 32);
        assert_eq!(hash, hasher(7, &[]).hash(one, &Identifier::phone("5511961234567")));
        assert_ne!(hash, hasher(7, &[]).hash(other, &phone));
        assert_ne!(hash, hasher(8, &[]).hash(one, &phone));
    }

    #[test]
    fn hashes_under_earlier_secrets_are_found() {
        let account = AccountId(Uuid::from_u128(1));
        let phone = Identifier::phone("+5511961234567");
        let earlier = hasher(7, &[]).hash(account, &phone);
        let rotated = hasher(8, &[7]);
        assert!(rotated.all_hashes(account, &phone).contains(&earlier));
        assert_eq!(
            rotated.all_hashes(account, &phone).first(),
            Some(&rotated.hash(account, &phone))
        );
    }
}
