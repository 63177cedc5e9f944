//! `APP_SECRET` and `APP_SECRET_PREVIOUS`, and the keys that are derived from them.

use std::sync::Arc;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroize as _;
use secrecy::{ExposeSecret as _, SecretBox};

/// The HKDF salt. It separates these keys from those that other programs derive from the same secret.
const SALT: &[u8] = b"recado";

const KEY_BYTES: usize = 32;

/// The length of a key id.
const KEY_ID_BYTES: usize = 8;

/// A secret of 32 bytes. Copies share its memory, and `Debug` does not show it.
#[derive(Clone, Debug)]
pub struct AppSecret(Arc<SecretBox<[u8; KEY_BYTES]>>);

impl AppSecret {
    /// Parses base64. None: the text is not base64, or does not encode 32 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut decoded = STANDARD.decode(text.trim()).ok()?;
        let bytes = <[u8; KEY_BYTES]>::try_from(decoded.as_slice()).ok();
        decoded.zeroize();
        bytes.map(Self::from)
    }

    /// Derives the key of a purpose with HKDF-SHA256. A key of one purpose reveals nothing about those of others.
    pub fn derive_key(&self, purpose: &str) -> anyhow::Result<SecretBox<[u8; KEY_BYTES]>> {
        let mut key = SecretBox::new(Box::new([0; KEY_BYTES]));
        self.expand(purpose, secrecy::ExposeSecretMut::expose_secret_mut(&mut key))?;
        Ok(key)
    }

    /// The id that names this secret in sealed values, in hexadecimal.
    pub fn key_id(&self) -> anyhow::Result<String> {
        let mut id = [0; KEY_ID_BYTES];
        self.expand("key id", &mut id)?;
        Ok(hex::encode(id))
    }

    fn expand(&self, purpose: &str, output: &mut [u8]) -> anyhow::Result<()> {
        let root = Salt::new(HKDF_SHA256, SALT).extract(self.expose());
        let info = [purpose.as_bytes()];
        let derived = root
            .expand(&info, Length(output.len()))
            .and_then(|key| key.fill(output));
        derived.map_err(|_| anyhow::anyhow!("the key for {purpose} cannot be derived from APP_SECRET"))
    }

    /// The bytes themselves, for what earlier versions encrypted and hashed with them.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        self.0.expose_secret()
    }
}

impl From<[u8; KEY_BYTES]> for AppSecret {
    fn from(mut bytes: [u8; KEY_BYTES]) -> Self {
        let secret = SecretBox::new(Box::new(bytes));
        bytes.zeroize();
        Self(Arc::new(secret))
    }
}

/// The length of an HKDF output.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The current secret, which seals and signs, and earlier ones, which only open and verify.
#[derive(Clone, Debug)]
pub struct AppSecrets {
    /// `APP_SECRET`.
    pub current: AppSecret,
    /// `APP_SECRET_PREVIOUS`.
    pub previous: Vec<AppSecret>,
}

impl AppSecrets {
    /// All secrets, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &AppSecret> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_differ_by_purpose_and_secret() {
        let (first, second) = (AppSecret::from([1; 32]), AppSecret::from([2; 32]));
        let key = |secret: &AppSecret, purpose| *secret.derive_key(purpose).unwrap().expose_secret();
        assert_eq!(key(&first, "a"), key(&first, "a"));
        assert_ne!(key(&first, "a"), key(&first, "b"));
        assert_ne!(key(&first, "a"), key(&second, "a"));
        assert_ne!(key(&first, "a"), *first.expose());
        assert_ne!(first.key_id().unwrap(), second.key_id().unwrap());
        assert_eq!(first.key_id().unwrap().len(), 2 * KEY_ID_BYTES);
    }

    /// The derivation is part of the format of stored values: a change would make all of them unreadable.
    #[test]
    fn key_derivation_never_changes() {
        let secret = AppSecret::from([7; 32]);
        assert_eq!(secret.key_id().unwrap(), "f2c6ef911b10faa1");
        let key = secret.derive_key("whatsapp_token").unwrap();
        assert_eq!(
            hex::encode(key.expose_secret()),
            "cf31e2a9452a3326553f6a4044b22d971c3aa5c2cda7a72dc891b4425efaa74b"
        );
    }

    #[test]
    fn app_secret_debug_shows_no_byte() {
        let secrets = AppSecrets {
            current: [107; 32].into(),
            previous: vec![[108; 32].into()],
        };
        let shown = format!("{secrets:?}");
        assert!(!shown.contains("107") && !shown.contains("108"), "{shown}");
    }
}
