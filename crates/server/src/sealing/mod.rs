//! Encryption at rest.
//!
//! A sealed value is `RSV1|<key id>|`, a nonce of 12 bytes, the ciphertext and a tag of 16 bytes. The algorithm is
//! AES-256-GCM-SIV: a random nonce that repeats by chance reveals no more than that two texts are equal, so the number
//! of values under one key needs no limit. Every purpose has its own key. The associated data is the marker, the purpose,
//! the account and the row.
//!
//! Earlier versions wrote AES-256-GCM under `APP_SECRET` itself, without associated data: nonce, ciphertext, tag. Such a
//! value is opened, and `recado secrets rotate` replaces it. Decision 48 gives the reasons.

use aws_lc_rs::aead::{AES_256_GCM, AES_256_GCM_SIV, Aad, NONCE_LEN, RandomizedNonceKey};
use recado_domain::shared::{Cipher, Resealer, SealContext, SealPurpose, Sealed, UnsealError};
use secrecy::{ExposeSecret as _, SecretString};

use recado_api::app_secret::{AppSecret, AppSecrets};
use recado_api::web::request_hash;

/// Begins every value of this version.
const VERSION: &[u8] = b"RSV1|";

/// The length of `RSV1|<key id>|`.
const MARKER_BYTES: usize = 22;

/// The keys that are derived from one secret.
struct SecretKeys {
    /// `RSV1|<key id>|`
    marker: Vec<u8>,
    by_purpose: Vec<(SealPurpose, RandomizedNonceKey)>,
    /// Opens the values of earlier versions.
    unversioned: RandomizedNonceKey,
    secret: AppSecret,
}

impl SecretKeys {
    fn new(secret: &AppSecret) -> anyhow::Result<Self> {
        let unusable = |_| anyhow::anyhow!("the key for encryption at rest cannot be used");
        let purpose_key = |purpose: &SealPurpose| {
            let key = secret.derive_key(purpose.as_str())?;
            let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, key.expose_secret()).map_err(unusable)?;
            Ok((*purpose, key))
        };
        Ok(Self {
            marker: [VERSION, secret.key_id()?.as_bytes(), b"|"].concat(),
            by_purpose: SealPurpose::ALL
                .iter()
                .map(purpose_key)
                .collect::<anyhow::Result<_>>()?,
            unversioned: RandomizedNonceKey::new(&AES_256_GCM, secret.expose()).map_err(unusable)?,
            secret: secret.clone(),
        })
    }

    fn key(&self, purpose: SealPurpose) -> Option<&RandomizedNonceKey> {
        let mut keys = self.by_purpose.iter();
        keys.find(|(of, _)| *of == purpose).map(|(_, key)| key)
    }
}

/// The associated data. Each part but the last has a fixed length or a terminator, so that no two places have the same.
fn associated_data(marker: &[u8], context: &SealContext) -> Aad<Vec<u8>> {
    let purpose = context.purpose.as_str().as_bytes();
    Aad::from(
        [
            marker,
            purpose,
            b"\0",
            context.account.as_bytes(),
            context.row.as_bytes(),
        ]
        .concat(),
    )
}

/// Seals under `APP_SECRET`, and opens under it and `APP_SECRET_PREVIOUS`.
pub struct AppCipher {
    current: SecretKeys,
    previous: Vec<SecretKeys>,
}

impl AppCipher {
    pub fn new(secrets: &AppSecrets) -> anyhow::Result<Self> {
        Ok(Self {
            current: SecretKeys::new(&secrets.current)?,
            previous: secrets
                .previous
                .iter()
                .map(SecretKeys::new)
                .collect::<anyhow::Result<_>>()?,
        })
    }

    fn all_keys(&self) -> impl Iterator<Item = &SecretKeys> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// Opens a value of either version.
    pub fn try_open(&self, sealed: &Sealed, context: &SealContext) -> Result<SecretString, UnsealError> {
        match sealed.0.split_at_checked(MARKER_BYTES) {
            Some((marker, rest)) if marker.starts_with(VERSION) && marker.ends_with(b"|") => {
                self.open_versioned(marker, rest, context)
            }
            _ => self.open_unversioned(&sealed.0).map(|(text, _)| text),
        }
    }

    fn open_versioned(&self, marker: &[u8], rest: &[u8], context: &SealContext) -> Result<SecretString, UnsealError> {
        let named = self.all_keys().find(|keys| keys.marker == marker).ok_or_else(|| {
            let key_id = marker.get(VERSION.len()..MARKER_BYTES - 1).unwrap_or_default();
            UnsealError::UnknownKey(String::from_utf8_lossy(key_id).escape_default().to_string())
        })?;
        let key = named.key(context.purpose).ok_or(UnsealError::WrongPlace)?;
        open(key, associated_data(marker, context), rest).ok_or(UnsealError::WrongPlace)
    }

    /// Opens a value of an earlier version. Returns the secret that opened it as well.
    fn open_unversioned(&self, sealed: &[u8]) -> Result<(SecretString, &AppSecret), UnsealError> {
        let mut opened = self.all_keys().filter_map(|keys| {
            let text = open(&keys.unversioned, Aad::from(Vec::new()), sealed)?;
            Some((text, &keys.secret))
        });
        opened.next().ok_or(UnsealError::Unrecognized)
    }
}

/// Opens `nonce || ciphertext || tag`.
fn open(key: &RandomizedNonceKey, data: Aad<Vec<u8>>, sealed: &[u8]) -> Option<SecretString> {
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = <[u8; NONCE_LEN]>::try_from(nonce).ok()?;
    let mut text = text.to_vec();
    let text = key.open_in_place((&nonce).into(), data, &mut text).ok()?;
    std::str::from_utf8(text).ok().map(SecretString::from)
}

impl Cipher for AppCipher {
    fn seal(&self, secret: &SecretString, context: &SealContext) -> Sealed {
        let marker = &self.current.marker;
        let mut text = secret.expose_secret().as_bytes().to_vec();
        let key = self.current.key(context.purpose);
        match key.map(|key| key.seal_in_place_append_tag(associated_data(marker, context), &mut text)) {
            Some(Ok(nonce)) => Sealed([marker.as_slice(), nonce.as_ref(), &text].concat()),
            // Every purpose has a key. Sealing fails without randomness, or for texts of 64 GiB. To store anything else
            // would lose the secret.
            Some(Err(_)) | None => std::process::abort(),
        }
    }

    fn open(&self, sealed: &Sealed, context: &SealContext) -> Option<SecretString> {
        match self.try_open(sealed, context) {
            Ok(text) => Some(text),
            Err(error) => {
                let (purpose, account) = (context.purpose.as_str(), context.account);
                tracing::warn!(purpose, %account, %error, "a sealed value cannot be opened");
                None
            }
        }
    }
}

impl Resealer for AppCipher {
    fn current_marker(&self) -> Vec<u8> {
        self.current.marker.clone()
    }

    fn reseal(&self, sealed: &Sealed, context: &SealContext) -> Result<Sealed, UnsealError> {
        let text = match self.open_unversioned(&sealed.0) {
            // Earlier versions hashed the request under their secret. The response takes that key along, so that a
            // repeated request is recognized without the secret.
            Ok((text, secret)) if context.purpose == SealPurpose::StoredResponse => {
                request_hash::with_key(&text, &request_hash::unversioned_key(secret)).unwrap_or(text)
            }
            Ok((text, _)) => text,
            Err(_) => self.try_open(sealed, context)?,
        };
        Ok(self.seal(&text, context))
    }
}

#[cfg(test)]
mod tests;
