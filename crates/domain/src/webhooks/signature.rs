//! Webhook secrets and signatures according to Standard Webhooks 1.0.0.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

pub(super) const SECRET_BYTES: usize = 32;

/// How many of a secret's last characters are shown, so that an account can distinguish its secrets.
const HINT_CHARS: usize = 4;

/// The bytes of a secret: the key of its signatures.
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Decodes a base64url token of the [`Secrets`](crate::shared::Secrets) port.
    pub(super) fn from_token(token: &SecretString) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token.expose_secret()).ok()?;
        Some(Self(Zeroizing::new(bytes)))
    }

    /// Decodes the hexadecimal form, which is the published and the stored one.
    pub fn from_hex(text: &SecretString) -> Option<Self> {
        let bytes = hex::decode(text.expose_secret()).ok()?;
        Some(Self(Zeroizing::new(bytes)))
    }

    /// Decodes the form that Standard Webhooks libraries accept.
    pub fn from_signing_secret(text: &SecretString) -> Option<Self> {
        let base64 = text.expose_secret().strip_prefix("whsec_")?;
        Some(Self(Zeroizing::new(STANDARD.decode(base64).ok()?)))
    }

    /// The published hexadecimal form.
    pub(super) fn hex(&self) -> SecretString {
        SecretString::from(hex::encode(&*self.0))
    }

    /// The form that Standard Webhooks libraries accept.
    pub fn signing_secret(&self) -> SecretString {
        SecretString::from(format!("whsec_{}", STANDARD.encode(&*self.0)))
    }

    /// The last `HINT_CHARS` characters of the hexadecimal form.
    pub(super) fn hint(&self) -> String {
        let hex = self.hex();
        let text = hex.expose_secret();
        text.chars().skip(text.len().saturating_sub(HINT_CHARS)).collect()
    }

    /// Returns one entry of the header `webhook-signature`.
    fn sign(&self, message_id: &str, timestamp: i64, body: &[u8]) -> String {
        let mac = self.mac(message_id, timestamp, body);
        mac.map_or_else(String::new, |mac| {
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        })
    }

    /// Whether this secret made the signature. Compares in constant time.
    pub(super) fn verifies(&self, signature: &[u8], message_id: &str, timestamp: i64, body: &[u8]) -> bool {
        let mac = self.mac(message_id, timestamp, body);
        mac.is_some_and(|mac| mac.verify_slice(signature).is_ok())
    }

    fn mac(&self, message_id: &str, timestamp: i64, body: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC accepts keys of every length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(format!("{message_id}.{timestamp}.").as_bytes());
        mac.update(body);
        Some(mac)
    }
}

/// Returns the header `webhook-signature`: one signature for each secret.
pub fn sign(secrets: &[SecretBytes], message_id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets
        .iter()
        .map(|secret| secret.sign(message_id, timestamp, body))
        .collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_published_vectors() {
        let library = SecretString::from("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let library = SecretBytes::from_signing_secret(&library).unwrap();
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        let id = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
        let signature = sign(&[library], id, 1_649_367_553, body);
        assert_eq!(signature, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");

        let hex = SecretString::from("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        let ours = SecretBytes::from_hex(&hex).unwrap();
        let signing = ours.signing_secret();
        assert_eq!(
            signing.expose_secret(),
            "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        );
        assert_eq!(
            (ours.hex().expose_secret(), ours.hint().as_str()),
            (hex.expose_secret(), "1e1f")
        );
        let body = br#"{"type":"campaign.completed","timestamp":"2026-01-02T03:04:05Z","data":{"id":"11111111-1111-4111-8111-111111111111"}}"#;
        let signature = sign(&[ours], "msg_test_1", 1_767_323_045, body);
        assert_eq!(signature, "v1,WZEredzRFYANp8UrGiuHpdWs1P793MgX3wqDCSFhADM=");
    }

    #[test]
    fn signature_header_has_one_entry_per_secret() {
        let secrets = ["aa", "bb"].map(|hex| SecretBytes::from_hex(&SecretString::from(hex)).unwrap());
        let both = sign(&secrets, "id", 1, b"{}");
        let alone = secrets.map(|secret| sign(&[secret], "id", 1, b"{}"));
        assert_eq!(both, alone.join(" "));
        assert_ne!(alone[0], alone[1]);
    }

    #[test]
    fn malformed_secret_is_rejected() {
        assert!(SecretBytes::from_hex(&SecretString::from("no")).is_none());
        assert!(SecretBytes::from_token(&SecretString::from("a b")).is_none());
        for text in ["AAEC", "whsec_*"] {
            assert!(SecretBytes::from_signing_secret(&SecretString::from(text)).is_none());
        }
    }
}
