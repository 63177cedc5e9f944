//! The production implementations of the ports for time and randomness: clock, UUIDs, secrets, jitter, and encryption
//! at rest.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_domain::shared::{Cipher, Clock, Ids, Sealed, Secrets};
use recado_domain::webhooks::Jitter;
use secrecy::{ExposeSecret, SecretString};
use time::OffsetDateTime;
use uuid::Uuid;

/// The machine's clock, truncated to microseconds, the precision of PostgreSQL.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> OffsetDateTime {
        let now = OffsetDateTime::now_utc();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }
}

/// Generates version 7 UUIDs.
pub struct SystemIds;

impl Ids for SystemIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Random tokens from the operating system.
pub struct SystemSecrets;

impl Secrets for SystemSecrets {
    fn token(&self, bytes: usize) -> SecretString {
        let mut random = vec![0; bytes];
        if aws_lc_rs::rand::fill(&mut random).is_err() {
            // Without randomness an attacker could guess every secret, so no response of this process is safe.
            std::process::abort();
        }
        SecretString::from(URL_SAFE_NO_PAD.encode(random))
    }
}

/// Random jitter from the operating system, from -1 to 1.
pub struct SystemJitter;

impl Jitter for SystemJitter {
    fn spread(&self) -> f64 {
        let mut random = [0; 4];
        // Without randomness there is no jitter. No secret depends on it.
        match aws_lc_rs::rand::fill(&mut random) {
            Ok(()) => f64::from(i32::from_le_bytes(random)) / f64::from(i32::MAX),
            Err(_) => 0.0,
        }
    }
}

/// AES-256-GCM with a random nonce for every text: `nonce || ciphertext || tag`.
pub struct AppCipher {
    key: RandomizedNonceKey,
}

impl AppCipher {
    /// `secret` is `APP_SECRET`.
    pub fn new(secret: &[u8; 32]) -> anyhow::Result<Self> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, secret);
        Ok(Self {
            key: key.map_err(|_| anyhow::anyhow!("the key for encryption at rest cannot be used"))?,
        })
    }
}

impl Cipher for AppCipher {
    fn seal(&self, secret: &SecretString) -> Sealed {
        let mut text = secret.expose_secret().as_bytes().to_vec();
        match self.key.seal_in_place_append_tag(Aad::empty(), &mut text) {
            Ok(nonce) => Sealed([nonce.as_ref().as_slice(), &text].concat()),
            // Sealing fails for texts of 64 GiB only. Bytes that cannot be opened are the safe result.
            Err(_) => Sealed(Vec::new()),
        }
    }

    fn open(&self, sealed: &Sealed) -> Option<SecretString> {
        let (nonce, text) = sealed.0.split_at_checked(NONCE_LEN)?;
        let nonce = <[u8; NONCE_LEN]>::try_from(nonce).ok()?;
        let mut text = text.to_vec();
        let text = self.key.open_in_place((&nonce).into(), Aad::empty(), &mut text).ok()?;
        std::str::from_utf8(text).ok().map(SecretString::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_tokens_have_their_length_and_differ() {
        let tokens: std::collections::HashSet<String> = (0..100)
            .map(|_| SystemSecrets.token(32).expose_secret().to_owned())
            .collect();
        assert_eq!(tokens.len(), 100);
        for token in tokens {
            assert_eq!(URL_SAFE_NO_PAD.decode(&token).unwrap().len(), 32, "{token}");
        }
    }

    #[test]
    fn cipher_opens_only_unchanged_bytes_of_its_own_key() {
        let cipher = AppCipher::new(&[7; 32]).unwrap();
        let secret = SecretString::from("EAAG-token");
        let sealed = cipher.seal(&secret);
        assert_eq!(cipher.open(&sealed).unwrap().expose_secret(), "EAAG-token");
        assert_ne!(cipher.seal(&secret), sealed);
        assert!(!sealed.0.windows(4).any(|bytes| bytes == b"EAAG"));
        for position in 0..sealed.0.len() {
            let mut changed = sealed.clone();
            changed.0[position] ^= 1;
            assert!(cipher.open(&changed).is_none(), "byte {position}");
        }
        assert!(AppCipher::new(&[8; 32]).unwrap().open(&sealed).is_none());
        assert!(cipher.open(&Sealed(vec![1, 2, 3])).is_none());
    }
}
